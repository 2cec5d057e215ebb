"""Factors that made the published values are found again; a source left out has no say in its errors."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from escala.calibration import Reading
from escala.calibration.fitting import (
    FEWEST_ROWS,
    INSIDE_RATIO,
    Fit,
    calibrated,
    fit,
    interval_ratios,
)
from escala.calibration.free import Free
from escala.calibration.posterior import Posterior
from escala.calibration.sample import Sample, predicted
from escala.catalog.fitted import CALIBRATED_ROWS
from escala.model.columns import F64
from escala.model.interval import Regime

# Priors so wide that they say nothing; the catalog holds no factor by these names.
PRODUCTS = Free(name="test.products", of="accelerator", names=(), field="gemm_efficiency", sd=1e4)
STEPS = Free(name="test.steps", of="engine", names=(), field="step_overhead_s", sd=1e4)
ELSEWHERE = Free(name="test.tpu", of="accelerator", names=("tpu",), field="gemm_efficiency", sd=1.0)


def silent(label: str, share: float) -> None:
    """Nobody watches."""


def ran(reading: Reading, micro_batch: int, micro_batches: int, group: str) -> Reading:
    plan = replace(reading.plan, micro_batch=micro_batch, micro_batches=micro_batches)
    name = f"{group} {micro_batch} x {micro_batches}"
    return replace(reading, plan=plan, group=group, configuration=name, imputed=())


def published(readings: Sequence[Reading], free: Sequence[Free], truth: F64) -> list[Reading]:
    """The readings as the model with these factors would have been measured."""
    seconds = np.exp(predicted(Sample.of(readings), free, truth))
    return [replace(each, step_s=float(s)) for each, s in zip(readings, seconds, strict=True)]


@pytest.fixture
def readings(reading: Reading) -> list[Reading]:
    """Two sources of three runs each, from short steps to long ones."""
    return [ran(reading, 1, n, group) for group, n in product(("one", "two"), (1, 4, 64))]


def test_known_factors_are_found_again(readings: list[Reading]):
    truth = np.log([0.8, 1.7])

    found = fit(published(readings, (PRODUCTS, STEPS), truth), (PRODUCTS, STEPS), silent)

    # each round of lines leaves the curvature of the last: 0.5, 0.03, 1e-4, 1e-7
    assert found.posterior.values.tolist() == pytest.approx(truth.tolist(), abs=1e-6)
    assert np.abs(found.inside).max() < 1e-6
    assert np.abs(found.outside).max() < 1e-6


def test_numbers_that_touch_no_row_are_not_fitted(readings: list[Reading]):
    found = fit(readings, (ELSEWHERE, PRODUCTS), silent)

    assert found.free == (PRODUCTS,)
    assert found.posterior.values.shape == (1,)


def test_progress_runs_to_its_end_in_every_round(readings: list[Reading]):
    seen: list[tuple[str, float]] = []

    fit(readings, (PRODUCTS, STEPS), lambda label, share: seen.append((label, share)))

    assert seen == [(f"round {k} of 4", share) for k in (1, 2, 3, 4) for share in (0.5, 1.0)]


def left_out(readings: Sequence[Reading], change: Callable[[Reading], Reading]) -> tuple[F64, F64]:
    """Logarithms of seconds predicted for source two when it is left out, before and after a change of it."""
    both = []
    for rows in (readings, [change(each) if each.group == "two" else each for each in readings]):
        found = fit(rows, (PRODUCTS,), silent)
        both.append((found.outside + found.sample.log_published)[found.sample.groups == "two"])
    return both[0], both[1]


def test_a_source_has_no_say_in_its_left_out_prediction(computing: Reading):
    # step = work / speed: its logarithm is a line in that of the speed, so lines leave nothing out
    readings = [ran(computing, n, n, group) for group, n in product(("one", "two"), (1, 2, 4))]
    readings = published(readings, (PRODUCTS,), np.log([1.1]))

    before, after = left_out(readings, lambda each: replace(each, step_s=3.0 * (each.step_s or 0.0)))

    assert after.tolist() == pytest.approx(before.tolist(), abs=1e-8)


def test_left_out_is_worse_than_inside_where_sources_disagree(readings: list[Reading]):
    rows = published(readings, (PRODUCTS,), np.log([1.0]))
    rows = [
        replace(each, step_s=1.2 * (each.step_s or 0.0)) if each.group == "two" else each for each in rows
    ]

    found = fit(rows, (PRODUCTS,), silent)

    assert (np.abs(found.outside) > np.abs(found.inside)).all()


def result(readings: Sequence[Reading], inside: F64, outside: F64) -> Fit:
    none = Posterior(values=np.zeros(0), sd=np.zeros(0), share=np.zeros(0))
    return Fit(sample=Sample.of(readings), free=(), posterior=none, inside=inside, outside=outside)


def test_names_stand_on_at_least_five_rows(readings: list[Reading]):
    names = ["b"] * CALIBRATED_ROWS + ["c"] * (CALIBRATED_ROWS - 1) + ["a"] * (CALIBRATED_ROWS + 1)

    assert calibrated(Sample.of(readings), names) == ("a", "b")


def test_a_regime_with_enough_rows_has_its_own_width_and_others_that_of_all(reading: Reading):
    few = [replace(reading, regime=Regime.LONG, imputed=())]
    many = [replace(reading, regime=Regime.EXPERTS, imputed=())] * FEWEST_ROWS
    outside = np.array([0.5] + [0.2] * FEWEST_ROWS)

    ratios = interval_ratios(result([*few, *many], np.full(len(outside), 0.1), outside))

    # 80 % of all rows lie within 0.2, so long context does not get its own 0.5
    assert ratios["interval_experts_ratio"] == pytest.approx(math.exp(0.2), rel=1e-12)
    assert ratios["interval_long_ratio"] == pytest.approx(math.exp(0.2), rel=1e-12)
    assert ratios["interval_experts_known_ratio"] == pytest.approx(math.exp(0.1 * INSIDE_RATIO), rel=1e-12)


def test_what_is_known_never_widens_an_interval(reading: Reading):
    rows = [replace(reading, imputed=())] * FEWEST_ROWS

    ratios = interval_ratios(result(rows, np.full(FEWEST_ROWS, 0.3), np.full(FEWEST_ROWS, 0.2)))

    assert set(ratios) == {
        f"interval_{kind.name.lower()}{known}_ratio" for kind in Regime for known in ("", "_known")
    }
    assert set(ratios.values()) == {ratios["interval_long_ratio"]}
