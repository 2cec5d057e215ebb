"""Most probable values by hand arithmetic, in their limits, and against a search that knows only the loss."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escala.calibration.posterior import SCALE, Posterior, most_probable
from escala.model.columns import F64

CLOSE = 1e-9  # reweighting stops when values change by 1e-10
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def found(
    errors: list[float],
    slopes: list[list[float]],
    prior_sd: list[float],
    weights: list[float] | None = None,
    at: list[float] | None = None,
    rows: list[bool] | None = None,
) -> Posterior:
    return most_probable(
        np.array(errors, np.float64),
        np.array(slopes, np.float64).reshape(len(errors), len(prior_sd)),
        np.zeros(len(prior_sd)) if at is None else np.array(at),
        np.array(prior_sd),
        np.ones(len(errors)) if weights is None else np.array(weights),
        np.ones(len(errors), np.bool_) if rows is None else np.array(rows),
    )


def loss(values: F64, errors: F64, slopes: F64, prior_sd: F64, weights: F64) -> float:
    """The loss as the module states it."""
    soft = 2.0 * (np.sqrt(1.0 + ((errors + slopes @ values) / SCALE) ** 2) - 1.0)
    return float(weights @ soft + ((values / prior_sd) ** 2).sum())


def golden_section(of: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one valley is smallest."""
    while high - low > 1e-9:
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        low, high = (low, right) if of(left) < of(right) else (left, high)
    return (low + high) / 2.0


def test_one_row_and_one_number_by_hand():
    # at the value 0.09 the error is 0.18 - 0.09 = 3/4 scale, sqrt(1 + 9/16) = 5/4 and the pull of the row
    # 0.018 / (0.12^2 * 5/4) = 1: 0.09 / 1^2 = 1 * 0.09 balances; sd^2 = 1 / (1 + 1)
    one = found([0.18], [[-1.0]], prior_sd=[1.0], weights=[0.018])

    assert one.values[0] == pytest.approx(0.09, rel=CLOSE)
    assert one.sd[0] == pytest.approx(math.sqrt(0.5), rel=CLOSE)
    assert one.share[0] == pytest.approx(0.5, rel=CLOSE)


def test_without_rows_the_prior_stands():
    none = found([0.3], [[-1.0, 0.5]], prior_sd=[0.1, 0.4], rows=[False])

    assert none.values.tolist() == [0.0, 0.0]
    assert none.sd.tolist() == pytest.approx([0.1, 0.4], rel=1e-12)
    assert none.share.tolist() == pytest.approx([0.0, 0.0], abs=1e-12)


def test_a_number_that_no_row_moves_keeps_its_prior():
    two = found([0.3], [[-1.0, 0.0]], prior_sd=[0.1, 0.4])

    assert (two.values[1], two.sd[1], two.share[1]) == (0.0, pytest.approx(0.4, rel=1e-12), 0.0)
    assert two.share[0] > 0.1


def test_a_certain_prior_leaves_the_record():
    assert found([0.3, 0.2], [[-1.0], [-1.0]], prior_sd=[1e-6]).values[0] == pytest.approx(0.0, abs=1e-9)


def test_many_votes_with_small_errors_are_least_squares():
    # errors of 1e-6 are far inside the scale, where the loss is a square
    chance = np.random.default_rng(1)
    slopes, noise = chance.normal(size=(12, 3)), 1e-6 * chance.normal(size=12)
    truth = np.array([0.2, -0.1, 0.05])
    errors = noise - slopes @ truth

    many = found(errors.tolist(), slopes.tolist(), prior_sd=[10.0] * 3, weights=[1e9] * 12)

    expected = np.linalg.lstsq(slopes, -errors, rcond=None)[0]
    assert many.values.tolist() == pytest.approx(expected.tolist(), rel=CLOSE)
    assert many.share.tolist() == pytest.approx([1.0] * 3, abs=1e-6)


def test_the_pull_of_an_outlier_is_bounded():
    # far out a row pulls by weight / scale, whatever its error: value / sd^2 = 0.12 / 0.12
    values = [
        found([error], [[-1.0]], prior_sd=[0.1], weights=[0.12]).values[0] for error in (0.1, 1.0, 1e5, 1e6)
    ]

    assert values[1] < 10 * values[0]
    assert values[2:] == pytest.approx([0.01, 0.01], rel=CLOSE)


ERRORS = st.floats(-1.0, 1.0)
SLOPES = st.floats(-2.0, 2.0)
ROWS = st.lists(st.tuples(ERRORS, SLOPES, SLOPES, st.floats(0.0, 5.0)), min_size=1, max_size=8)
PRIORS = st.floats(0.02, 1.0)


@given(ROWS, PRIORS)
def test_one_number_is_where_a_search_finds_the_smallest_loss(rows, prior_sd: float):
    errors, slopes, _, weights = map(list, zip(*rows, strict=True))
    arrays = (np.array(errors), np.array(slopes)[:, None], np.array([prior_sd]), np.array(weights))

    value = found(errors, [[s] for s in slopes], [prior_sd], weights).values[0]

    # golden section tells values apart to about sqrt(rounding): 1e-7
    expected = golden_section(lambda v: loss(np.array([v]), *arrays), -60.0, 60.0)
    assert value == pytest.approx(expected, abs=3e-6)


@given(ROWS, PRIORS, PRIORS, st.integers(0, 2**32 - 1))
def test_no_step_away_lowers_the_loss(rows, first_sd: float, second_sd: float, seed: int):
    errors, slopes, others, weights = (np.array(column) for column in zip(*rows, strict=True))
    both, prior_sd = np.stack([slopes, others], axis=1), np.array([first_sd, second_sd])

    best = found(errors.tolist(), both.tolist(), prior_sd.tolist(), weights.tolist()).values

    least = loss(best, errors, both, prior_sd, weights)
    steps = np.random.default_rng(seed).normal(size=(50, 2)) * np.logspace(-4, 0, 50)[:, None]
    assert all(loss(best + step, errors, both, prior_sd, weights) >= least - 1e-9 for step in steps)


@given(ROWS, PRIORS)
def test_data_never_widen_what_is_known(rows, prior_sd: float):
    errors, slopes, _, weights = map(list, zip(*rows, strict=True))

    one = found(errors, [[s] for s in slopes], [prior_sd], weights)

    assert 0.0 < one.sd[0] <= prior_sd * (1 + 1e-12)
    assert -1e-12 <= one.share[0] <= 1.0


def test_where_the_slopes_were_taken_does_not_matter():
    # the same line through another point: error 0.3 at 0 is 0.3 - 0.2 at 0.2
    here = found([0.3, -0.1], [[-1.0], [0.5]], prior_sd=[0.5])
    there = found([0.1, 0.0], [[-1.0], [0.5]], prior_sd=[0.5], at=[0.2])

    assert there.values[0] == pytest.approx(here.values[0], rel=CLOSE)


def test_rows_that_are_left_out_do_not_count():
    kept = found([0.3, -0.1], [[-1.0], [0.5]], prior_sd=[0.5])
    more = found([0.3, 9.0, -0.1], [[-1.0], [3.0], [0.5]], prior_sd=[0.5], rows=[True, False, True])

    assert more.values[0] == kept.values[0]
