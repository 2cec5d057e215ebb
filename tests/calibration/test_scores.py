"""Errors, coverage and verdicts by hand arithmetic, and their limiting cases."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escala.calibration.samples import Errors, Sample, errors_of, groups_of
from escala.calibration.scores import DIMENSIONS, score, verdicts_of, worst_of
from escala.calibration.scoring import predict
from escala.model.memory import Verdict
from escala.model.plan import Recompute


def sample(published: float, predicted: float, configuration: str = "", ratio: float = 1.2) -> Sample:
    return Sample(
        id=f"{published}-{predicted}",
        configuration=configuration or f"{published}-{predicted}",
        published=published,
        predicted=predicted,
        low=predicted / ratio,
        high=predicted * ratio,
    )


def test_errors_by_hand():
    # errors +10 %, -20 %, +60 %; intervals 0.92..1.32, 0.67..0.96, 1.33..1.92
    found = errors_of([sample(1.0, 1.1), sample(1.0, 0.8), sample(1.0, 1.6)])

    assert found is not None
    assert found.mape == pytest.approx((0.1 + 0.2 + 0.6) / 3, rel=1e-12)
    assert found.median_absolute_error == pytest.approx(0.2, rel=1e-12)
    assert found.bias == pytest.approx(0.1, rel=1e-12)
    assert found.coverage == pytest.approx(1 / 3, rel=1e-12)
    assert found.interval_ratio == pytest.approx(1.2, rel=1e-12)
    assert (found.worst.id, found.worst.error) == ("1.0-1.6", pytest.approx(0.6, rel=1e-12))


def test_rows_of_one_configuration_are_one_vote_with_their_mean_error():
    # a: +10 % and +30 %, so +20 %; b: -40 %
    found = errors_of([sample(1.0, 1.1, "a"), sample(1.0, 1.3, "a"), sample(1.0, 0.6, "b")])

    assert found is not None
    assert (found.rows, found.configurations) == (3, 2)
    assert found.mape == pytest.approx((0.1 + 0.3 + 0.4) / 3, rel=1e-12)
    assert found.mape_by_configuration == pytest.approx((0.2 + 0.4) / 2, rel=1e-12)
    assert found.median_by_configuration == pytest.approx(0.3, rel=1e-12)


def test_perfect_predictions_have_no_error_and_full_coverage():
    found = errors_of([sample(seconds, seconds, ratio=1.0) for seconds in (0.5, 1.0, 20.0)])

    assert found is not None
    assert (found.mape, found.median_absolute_error, found.bias, found.coverage) == (0.0, 0.0, 0.0, 1.0)


def test_no_sample_has_no_errors():
    assert errors_of([]) is None
    assert groups_of([]) == ()


def test_groups_stand_by_number_of_rows_then_by_name():
    pairs = [("b", sample(1, 1)), ("a", sample(1, 2)), ("c", sample(1, 1)), ("c", sample(1, 3))]

    assert [(each.name, each.errors.rows) for each in groups_of(pairs)] == [("c", 2), ("a", 1), ("b", 1)]


SECONDS = st.floats(1e-3, 1e4)
SAMPLES = st.lists(st.builds(sample, SECONDS, SECONDS, st.sampled_from("abc")), min_size=1, max_size=12)


@given(SAMPLES, st.randoms())
def test_the_order_of_rows_does_not_matter(samples: list[Sample], chance):
    mixed = chance.sample(samples, len(samples))
    before, after = errors_of(samples), errors_of(mixed)

    assert before is not None
    assert after is not None
    for field in fields(Errors):
        if field.name != "worst":
            assert getattr(after, field.name) == pytest.approx(
                getattr(before, field.name), rel=1e-9, abs=1e-12
            )
    assert after.worst == before.worst


@given(SAMPLES)
def test_medians_lie_between_the_smallest_and_the_largest_error(samples: list[Sample]):
    found = errors_of(samples)

    assert found is not None
    assert abs(found.bias) <= abs(found.worst.error)
    assert 0.0 <= found.median_absolute_error <= abs(found.worst.error) * (1 + 1e-12)


def test_low_trust_rows_are_scored_apart(predicted):
    rows = [predicted(1.0, 1.1, id="a"), predicted(1.0, 3.0, id="b", trust="low")]

    found = score(rows)

    assert found.time is not None
    assert found.low_trust_time is not None
    assert (found.time.rows, found.time.mape) == (1, pytest.approx(0.1, rel=1e-12))
    assert (found.low_trust_time.rows, found.low_trust_time.mape) == (1, pytest.approx(2.0, rel=1e-12))
    assert [each.reading.row.id for each in worst_of(rows, 5)] == ["a"]


def test_a_table_of_low_trust_rows_only_has_no_other_figure(predicted):
    found = score([predicted(1.0, 1.1, trust="low", published_bytes=2.0, ran_out=True)])

    assert (found.time, found.memory, found.sweeps, found.ran_out.rows) == (None, None, None, 0)
    assert all(groups == () for groups in found.time_by.values())
    assert found.low_trust_time is not None
    assert found.low_trust_memory is not None


def test_every_row_with_a_time_is_in_one_group_of_each_dimension(predicted):
    found = score([predicted(1.0, 1.1, source="a"), predicted(2.0, 1.0, source="b"), predicted(None, 1.0)])

    assert found.time_by.keys() == DIMENSIONS.keys()
    assert {sum(each.errors.rows for each in groups) for groups in found.time_by.values()} == {2}
    assert [each.name for each in found.time_by["source"]] == ["a", "b"]


def test_memory_is_scored_in_its_own_interval(predicted, reading):
    low, high = (getattr(reading.problem.assumptions, f"memory_interval_{end}") for end in ("low", "high"))
    inside = predicted(None, 1.0, published_bytes=100.0, memory_bytes=99.0 / high)
    outside = predicted(None, 1.0, published_bytes=100.0, memory_bytes=101.0 / low)

    found = score([inside, outside]).memory

    assert found is not None
    assert (found.rows, found.coverage) == (2, 0.0)
    assert score([predicted(None, 1.0, published_bytes=100.0, memory_bytes=100.0)]).memory.coverage == 1.0


def test_verdicts_of_runs_that_died_and_of_runs_that_ran(predicted):
    dead = [Verdict.DOES_NOT_FIT, Verdict.RISKY, Verdict.FITS, Verdict.FITS]
    ran = [Verdict.FITS, Verdict.FITS, Verdict.DOES_NOT_FIT, Verdict.FITS, Verdict.RISKY]
    rows = [predicted(None, 1.0, ran_out=True, verdict=verdict) for verdict in dead]
    rows += [predicted(1.0, 1.0, verdict=verdict) for verdict in ran]

    found = score(rows)

    assert (found.ran_out.does_not_fit, found.ran_out.risky, found.ran_out.fits) == (1, 1, 2)
    assert found.ran.does_not_fit_share == pytest.approx(1 / 5, rel=1e-12)


def test_a_run_whose_recompute_is_not_printed_is_judged_with_full_recompute(reading):
    plain = replace(reading, plan=replace(reading.plan, recompute=Recompute.NONE), imputed=())
    open_one = replace(plain, imputed=("recompute",))
    full = replace(plain, plan=replace(plain.plan, recompute=Recompute.FULL))

    told, judged, least = predict([plain, open_one, full])

    assert (judged.need_share, judged.verdict) == (least.need_share, least.verdict)
    assert judged.need_share < told.need_share
    assert (judged.step_s, judged.memory_bytes) == (told.step_s, told.memory_bytes)


@given(st.lists(st.tuples(st.sampled_from(Verdict), st.booleans())))
def test_every_run_that_ran_is_in_the_verdicts_of_all(predicted, called: list[tuple[Verdict, bool]]):
    imputed = {True: ("recompute",), False: ()}
    rows = [
        predicted(1.0, 1.0, verdict=verdict, imputed=imputed[is_open], published_bytes=1.0)
        for verdict, is_open in called
    ]

    found = score(rows)

    assert found.all_ran == verdicts_of(rows)
    assert found.all_ran.rows == found.ran.rows + found.ran_unprinted.rows == len(rows)
    assert found.ran_unprinted.rows == sum(is_open for _, is_open in called)


def test_nothing_is_scored_without_predictions():
    found = score([])

    assert (found.time, found.memory, found.sweeps, found.ran.does_not_fit_share) == (None, None, None, None)


def test_the_worst_row_is_the_one_that_is_off_most_in_either_direction(predicted):
    rows = [predicted(1.0, 1.5, id="high"), predicted(1.0, 0.2, id="low"), predicted(1.0, 1.0, id="right")]

    assert [each.reading.row.id for each in worst_of(rows, 2)] == ["low", "high"]
