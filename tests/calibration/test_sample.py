"""Rows that a fit learns from: votes by hand, and slopes against those that follow from the model."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from escala.calibration import Reading
from escala.calibration.free import Free
from escala.calibration.sample import MOST_ROWS, STEP, Sample, predicted, slopes, weights
from escala.model.columns import F64
from escala.model.estimate import time_of
from escala.model.interval import Regime
from escala.model.plan import Plans

GEMM = Free(name="test.gemm", of="accelerator", names=(), field="gemm_efficiency", sd=1.0)
STEPS = Free(name="test.step", of="engine", names=(), field="step_overhead_s", sd=1.0)
ELSEWHERE = Free(name="test.tpu", of="accelerator", names=("tpu",), field="gemm_efficiency", sd=1.0)


def rows(reading: Reading, *given: dict[str, Any]) -> list[Reading]:
    """Copies of a reading that share nothing but what is given."""
    plain = {"imputed": (), "regime": Regime.PIPELINE, "group": "one"}
    return [replace(reading, **({"configuration": str(i)} | plain | each)) for i, each in enumerate(given)]


def slopes_of(readings: Sequence[Reading], *free: Free) -> F64:
    sample, values = Sample.of(readings), np.zeros(len(free))
    return slopes(sample, free, values, predicted(sample, free, values), lambda share: None)


def test_repeats_of_a_configuration_share_one_vote(reading: Reading):
    again = [{"configuration": "a"}] * 3

    assert weights(rows(reading, *again, {})).tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1.0], rel=1e-12)


def test_noisy_rows_and_rows_with_assumed_fields_count_less(reading: Reading):
    kinds = [
        {},
        {"regime": Regime.EXPERTS},
        {"regime": Regime.SLOW},
        {"imputed": ("padding",)},
        {"imputed": ("link", "device memory")},
        {"regime": Regime.EXPERTS, "imputed": ("link", "micro-batch")},
    ]

    assert weights(rows(reading, *kinds)).tolist() == pytest.approx(
        [1, 0.5, 0.3, 0.6, 1, 0.5 * 0.6], rel=1e-12
    )


def test_a_source_counts_as_at_most_sixty_rows(reading: Reading):
    # 120 rows of weight 1 count half each; 100 of weight 0.5 are only 50 and stay
    many = [{"group": "many"}] * 120
    some = [{"group": "some", "regime": Regime.EXPERTS}] * 100

    found = weights(rows(reading, *many, *some))

    assert found.tolist() == pytest.approx([0.5] * 220, rel=1e-12)
    assert found[:120].sum() == pytest.approx(MOST_ROWS, rel=1e-12)


MARKS = st.fixed_dictionaries(
    {
        "configuration": st.sampled_from("abcdef"),
        "group": st.sampled_from(["one", "two"]),
        "regime": st.sampled_from(Regime),
        "imputed": st.sampled_from([(), ("link",), ("padding",)]),
    }
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(marks=st.lists(MARKS, max_size=100))
def test_no_row_counts_more_than_one_and_no_source_more_than_sixty(reading: Reading, marks):
    found = weights(rows(reading, *marks))

    assert ((found > 0) & (found <= 1)).all()
    for group in ("one", "two"):
        assert sum(w for w, m in zip(found, marks, strict=True) if m["group"] == group) <= MOST_ROWS + 1e-9


def test_rows_without_time_or_trust_are_out(reading: Reading):
    low = replace(reading, row=replace(reading.row, trust="low"))
    untimed = replace(reading, step_s=None, memory_bytes=1e9)

    sample = Sample.of([low, reading, untimed])

    assert (len(sample), sample.readings) == (1, (reading,))
    assert sample.log_published.tolist() == [math.log(reading.step_s or 0)]


def test_plans_that_ask_the_same_question_are_priced_together(reading: Reading):
    other = replace(reading, plan=replace(reading.plan, micro_batches=2 * reading.plan.micro_batches))
    elsewhere = replace(
        reading,
        problem=replace(reading.problem, workload=replace(reading.problem.workload, sequence_tokens=1024)),
    )

    sample = Sample.of([reading, elsewhere, other])

    assert [batch.tolist() for batch in sample.batches] == [[0, 2], [1]]
    alone = [
        np.log(time_of(each.problem, Plans.of(each.plan)).step_s)[0] for each in (reading, elsewhere, other)
    ]
    assert predicted(sample, (), np.zeros(0)).tolist() == pytest.approx(alone, rel=1e-12)


def test_a_row_bound_by_compute_gets_faster_as_products_do(computing: Reading):
    # seconds = work / speed: the logarithm falls by one for each of speed
    assert slopes_of([computing], GEMM)[0, 0] == pytest.approx(-1.0, rel=1e-9)


def test_the_slope_of_an_overhead_is_its_share_of_the_step(reading: Reading):
    sample = Sample.of([reading])
    step_s = float(np.exp(predicted(sample, (), np.zeros(0)))[0])
    share = reading.problem.engine.time.step_overhead_s / step_s

    # over a difference of 0.02: log(1 + share (e^0.02 - 1)) / 0.02
    expected = math.log1p(share * math.expm1(STEP)) / STEP
    assert share > 0
    assert slopes_of([reading], STEPS)[0, 0] == pytest.approx(expected, rel=1e-6)
    assert expected == pytest.approx(share, rel=0.02)


def test_what_a_number_does_not_touch_does_not_move(reading: Reading, computing: Reading):
    found = slopes_of([reading, computing], GEMM, ELSEWHERE, STEPS)

    assert found[:, 1].tolist() == [0.0, 0.0]
    assert found[1, 2] == 0.0  # it has no overhead
    assert (found[:, 0] < 0).all()
