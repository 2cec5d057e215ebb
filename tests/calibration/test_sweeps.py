"""Rank correlation, pairs, regret and the usual rule by hand, and what makes rows a sweep."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escala.calibration.ranks import average_ranks, least_regret, ordered_pairs, regret, spearman
from escala.calibration.sweeps import by_group, summary, sweep_scores
from escala.calibration.usual_rule import rule_distance

SECONDS = st.floats(1e-3, 1e4)


def column(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


def test_equal_values_share_the_mean_of_their_ranks():
    assert average_ranks(column(10, 30, 20, 20)).tolist() == [1.0, 4.0, 2.5, 2.5]


def test_rank_correlation_by_hand():
    # ranks 1 2 3 4 against 2 1 4 3: 1 - 6 * 4 / (4 * 15)
    assert spearman(column(1, 2, 3, 4), column(20, 10, 40, 30)) == pytest.approx(0.6, rel=1e-12)
    assert spearman(column(1, 2, 3), column(3, 2, 1)) == pytest.approx(-1.0, rel=1e-12)
    # ranks 1 2 3 against 1.5 1.5 3: 1.5 / sqrt(2 * 1.5)
    assert spearman(column(1, 2, 3), column(5, 5, 9)) == pytest.approx(1.5 / 3**0.5, rel=1e-12)


def test_rank_correlation_of_equal_values_is_unknown():
    assert spearman(column(1, 2, 3), column(5, 5, 5)) is None


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=20, unique=True))
def test_a_growing_function_ranks_perfectly(values: list[int]):
    published = np.array(values, np.float64)

    assert spearman(published, np.sqrt(published)) == pytest.approx(1.0, rel=1e-12)
    pairs, ordered = ordered_pairs(published, 3.0 * published)
    assert pairs == ordered
    assert regret(published, np.sqrt(published)) == 0.0


def test_pairs_within_five_percent_do_not_count():
    # 100 and 104 are a tie; 100-120 and 104-120 count, and the prediction turns the second round
    assert ordered_pairs(column(100, 104, 120), column(1, 3, 2)) == (2, 1)


def test_a_tie_of_the_prediction_is_not_ordered():
    assert ordered_pairs(column(1, 2), column(1, 1)) == (1, 0)


def test_regret_by_hand():
    assert regret(column(10, 12, 15), column(2, 1, 3)) == pytest.approx(0.2, rel=1e-12)
    assert regret(column(10, 12, 15), column(1, 1, 3)) == pytest.approx(0.1, rel=1e-12)
    assert least_regret(column(10, 12, 15), column(3, 1, 1)) == pytest.approx(0.2, rel=1e-12)


@pytest.mark.parametrize(
    ("parameters", "allowed"),
    [
        (0.9e9, [(1, 1)]),
        (1e9, [(2, 1), (4, 1)]),
        (13e9, [(4, 2), (4, 4), (8, 2), (8, 4)]),
        (70e9, [(8, 4), (8, 8)]),
        (175e9, [(8, 8), (8, 16)]),
        (1e12, [(8, 8), (8, 16)]),
    ],
)
def test_the_usual_rule_allows_degrees_by_size(parameters: float, allowed: list[tuple[int, int]]):
    every = [(tp, pp) for tp in (1, 2, 4, 8, 16) for pp in (1, 2, 4, 8, 16)]
    tp, pp = (np.array(degrees) for degrees in zip(*every, strict=True))

    inside = rule_distance(parameters, tp, pp) == 0.0

    assert [pair for pair, is_in in zip(every, inside, strict=True) if is_in] == allowed


def test_distance_from_the_rule_counts_doublings():
    # 13B: tp 4 to 8, pp 2 to 4. (1, 1): 2 + 1; (16, 8): 1 + 1; (4, 1): 1
    found = rule_distance(13e9, np.array([1, 16, 4, 8]), np.array([1, 8, 1, 2]))

    assert found.tolist() == [3.0, 2.0, 1.0, 0.0]


# GPT 1.7B: the rule takes tp 2 to 4 and no pipeline
LAYOUTS = [{"tp": 1}, {"tp": 2}, {"tp": 4}, {"tp": 8}]


def test_a_sweep_by_hand(predicted):
    times = zip(LAYOUTS, (10.0, 11.0, 14.0, 20.0), (10.5, 10.0, 15.0, 21.0), strict=True)

    (found,) = sweep_scores([predicted(published, step, **layout) for layout, published, step in times])

    # predicted best is tp 2 (11 against 10); the rule takes tp 2 and 4 (12.5 on average)
    assert found.regret == pytest.approx(0.1, rel=1e-12)
    assert found.rule_regret == pytest.approx(0.25, rel=1e-12)
    assert found.rule_least_regret == pytest.approx(0.1, rel=1e-12)
    assert (found.pairs, found.ordered) == (6, 5)
    assert found.spearman == pytest.approx(0.8, rel=1e-12)


def test_where_the_rule_allows_no_layout_the_nearest_is_taken(predicted):
    layouts = [{"tp": 8}, {"tp": 1, "pp": 2}, {"tp": 16}, {"tp": 16, "pp": 2}]
    times = zip(layouts, (10.0, 11.0, 14.0, 20.0), strict=True)

    (found,) = sweep_scores([predicted(published, published, **layout) for layout, published in times])

    assert (found.regret, found.rule_regret) == (0.0, 0.0)


def test_repeats_of_a_layout_are_one_choice(predicted):
    rows = [predicted(10.0, 10.0, **layout) for layout in LAYOUTS[:3]] + [predicted(20.0, 10.0, **LAYOUTS[0])]

    assert sweep_scores(rows) == ()


def test_other_quantities_low_trust_and_rows_without_time_make_no_sweep(predicted):
    rows = [predicted(10.0, 10.0, **layout) for layout in LAYOUTS[:3]]
    others = [
        predicted(10.0, 10.0, **LAYOUTS[3], trust="low"),
        predicted(None, 10.0, **LAYOUTS[3]),
        predicted(10.0, 10.0, **LAYOUTS[3], quantity="MFU"),
        predicted(10.0, 10.0, **LAYOUTS[3], sweep="another"),
    ]

    assert [sweep_scores([*rows, other]) for other in others] == [(), (), (), ()]
    assert len(sweep_scores([*rows, predicted(10.0, 10.0, **LAYOUTS[3])])) == 1


def test_sweeps_together_are_means_of_sweeps_and_shares_of_all_pairs(predicted):
    right = [
        predicted(10.0 * (1 + i), 1.0 + i, sweep="a", group="g", **each) for i, each in enumerate(LAYOUTS)
    ]
    wrong = [
        predicted(10.0 * (1 + i), 9.0 - i, sweep="b", group="g", **each) for i, each in enumerate(LAYOUTS)
    ]

    found = summary("all", sweep_scores([*right, *wrong]))

    assert found is not None
    assert (found.sweeps, found.layouts, found.pairs, found.ruled) == (2, 8, 12, 2)
    assert (found.spearman, found.ordered_share) == (pytest.approx(0.0, abs=1e-12), 0.5)
    assert found.regret == pytest.approx((0.0 + 3.0) / 2, rel=1e-12)
    assert [each.name for each in by_group(sweep_scores([*right, *wrong]))] == ["g"]


@given(chance=st.randoms(), times=st.lists(st.tuples(SECONDS, SECONDS), min_size=8, max_size=8))
def test_the_order_of_rows_does_not_matter(predicted, chance, times: list[tuple[float, float]]):
    layouts = [{"tp": tp, "pp": pp} for tp in (1, 2, 4, 8) for pp in (1, 2)]
    rows = [predicted(*pair, **layout) for layout, pair in zip(layouts, times, strict=True)]
    before, after = (summary("all", sweep_scores(each)) for each in (rows, chance.sample(rows, len(rows))))

    assert before is not None
    assert after is not None
    assert (after.pairs, after.ordered_share) == (before.pairs, before.ordered_share)
    assert (after.spearman or 0.0) == pytest.approx(before.spearman or 0.0, rel=1e-9, abs=1e-12)
    for name in ("regret", "rule_regret", "rule_least_regret"):
        assert getattr(after, name) == pytest.approx(getattr(before, name), rel=1e-9, abs=1e-12)


def test_no_sweep_has_no_summary():
    assert summary("all", ()) is None
    assert by_group(()) == ()
