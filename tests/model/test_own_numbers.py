"""Factors of own runs move what they name, and nothing else; widths weigh own errors with published ones."""

import math
from dataclasses import replace

import numpy as np
import pytest

from escala.catalog import cluster_for, engine
from escala.catalog.engines import assumptions
from escala.catalog.networks import network
from escala.errors import InvalidInput
from escala.model.estimate import estimate
from escala.model.interval import LEAST_RATIO, Regime, combined_ratio, published_ratios
from escala.model.operations import Operations
from escala.model.own import OwnFactor, OwnRuns, OwnSpread
from escala.model.own_numbers import own_words, values_of, with_own, without_own
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.workload import Workload

PROBLEM = Problem(
    workload=Workload(network=network("llama-3.1-8b"), sequence_tokens=4096, global_batch=128),
    cluster=cluster_for("h100-sxm", 16),
    engine=engine("pytorch"),
    assumptions=assumptions(),
)
PLAN = Plan(dp=16, zero=3, shard=16, micro_batch=1, micro_batches=8)
DEVICE, LINK = PROBLEM.accelerator, PROBLEM.cluster.links[-1]


def factor(of: str, name: str, field: str, by: float, **given: object) -> OwnFactor:
    known = {"before": getattr(DEVICE, field, 1.0), "accelerator": "h100-sxm" if of == "link" else ""}
    return OwnFactor(of=of, name=name, field=field, factor=by, sd=0.02, share=0.5, **(known | given))


def runs(*factors: OwnFactor, spread: tuple[OwnSpread, ...] = ()) -> OwnRuns:
    return OwnRuns(
        escala="0",
        fit="f",
        date="2026-11-30",
        digest="d",
        runs=("one", "two"),
        machines=("16 × h100-sxm, pytorch",),
        factor=factors,
        spread=spread,
    )


GEMM = factor("accelerator", "h100-sxm", "gemm_efficiency", 0.9)
DISPATCH = factor("engine", "pytorch", "dispatch_s", 1.5)
WIRE = factor("link", LINK.name, "bytes_per_s", 0.8)
ALL = runs(GEMM, DISPATCH, WIRE)


def test_each_factor_multiplies_the_number_that_it_names():
    moved = with_own(PROBLEM, ALL)

    assert moved.accelerator.gemm_efficiency == DEVICE.gemm_efficiency * 0.9
    assert moved.engine.time.dispatch_s == PROBLEM.engine.time.dispatch_s * 1.5
    assert moved.cluster.links[-1].bytes_per_s == LINK.bytes_per_s * 0.8
    assert moved.cluster.links[0] == PROBLEM.cluster.links[0]


@pytest.mark.parametrize(
    "other",
    [
        replace(PROBLEM, engine=engine("megatron-core"), cluster=cluster_for("a100-sxm-80gb", 16)),
        replace(PROBLEM, engine=engine("hf-trainer"), cluster=cluster_for("h200-sxm", 16)),
    ],
    ids=lambda problem: problem.engine.name,
)
def test_another_engine_and_device_predict_as_without_it(other: Problem):
    moved = with_own(other, ALL)

    assert replace(moved, own=None) == other
    assert estimate(moved, Plans.of(PLAN)).step_s[0] == estimate(other, Plans.of(PLAN)).step_s[0]
    assert own_words(moved) == (
        "calibration with 2 own runs (2026-11-30) of 16 × h100-sxm, pytorch: moves nothing here",
    )


def test_the_device_keeps_its_factor_under_another_engine():
    moved = with_own(replace(PROBLEM, engine=engine("megatron-core")), ALL)

    assert moved.accelerator.gemm_efficiency == DEVICE.gemm_efficiency * 0.9
    assert moved.engine == engine("megatron-core")


def test_operations_that_a_bench_timed_are_numbers_of_their_device():
    timed = Operations(
        launch_s=4e-6,
        update_s=1e-9,
        pass_bytes_per_s=1e10,
        attention_flop_per_s=1e11,
        attention_backward_flop_per_s=1e11,
        convolution_s_per_flop=1e-11,
        convolution_s_per_byte=1e-10,
        convolution_backward_s_per_flop=1e-11,
        convolution_backward_s_per_byte=1e-10,
        pooled_s=1e-8,
    )
    group = PROBLEM.cluster.groups[0]
    known = replace(group, accelerator=replace(group.accelerator, operations=timed))
    problem = replace(PROBLEM, cluster=replace(PROBLEM.cluster, groups=(known,)))
    launch = factor("operations", "h100-sxm", "launch_s", 1.5, before=4e-6)

    moved = with_own(problem, runs(launch))

    assert moved.accelerator.operations == replace(timed, launch_s=6e-6)
    assert without_own(moved) == problem
    assert values_of(PROBLEM, launch) == ()


def test_a_link_of_that_name_between_other_devices_stays():
    other = replace(PROBLEM, cluster=cluster_for("a100-sxm-80gb", 16, network=LINK.name))

    assert values_of(other, WIRE) == ()


def test_taking_a_calibration_away_restores_every_bit():
    problem = replace(
        PROBLEM, cluster=replace(PROBLEM.cluster, links=(*PROBLEM.cluster.links, replace(LINK)))
    )

    assert without_own(with_own(problem, ALL)) == problem
    assert without_own(PROBLEM) is PROBLEM


def test_a_second_calibration_takes_the_place_of_the_first():
    assert with_own(with_own(PROBLEM, ALL), runs(GEMM)) == with_own(PROBLEM, runs(GEMM))


def test_a_factor_beside_another_value_of_the_device_is_refused():
    with pytest.raises(InvalidInput, match=r"beside gemm_efficiency 0\.5 of h100-sxm.*calibrate again"):
        with_own(PROBLEM, runs(replace(GEMM, before=0.5)))


def test_a_factor_beside_another_bench_of_the_link_is_refused():
    with pytest.raises(InvalidInput, match="calibrate again"):
        with_own(PROBLEM, runs(replace(WIRE, before=2 * LINK.bytes_per_s, is_measured=True)))

    with_own(PROBLEM, runs(replace(WIRE, before=2 * LINK.bytes_per_s)))  # another number of ports is no fault


def test_words_name_what_moved_and_count_what_hardly_did():
    moved = with_own(PROBLEM, runs(GEMM, replace(DISPATCH, factor=1.001)))

    assert own_words(moved) == (
        "calibrated with 2 own runs (2026-11-30): h100-sxm gemm_efficiency × 0.900",
        "1 more by less than 0.5 %",
    )
    assert own_words(PROBLEM) == ()


def test_own_errors_count_beside_five_published_votes_by_hand():
    # ln 1.2 = 0.1823; five own runs with 0.05: sqrt((5 * 0.1823^2 + 5 * 0.05^2) / 10) = 0.1337
    assert combined_ratio(1.2, 5, 0.05) == pytest.approx(
        math.exp(math.sqrt((math.log(1.2) ** 2 + 0.05**2) / 2)), rel=1e-12
    )


def test_no_own_run_leaves_the_published_width():
    assert combined_ratio(1.2, 0, 0.0) == pytest.approx(1.2, rel=1e-12)


def test_many_own_runs_lead_to_their_own_spread():
    assert combined_ratio(1.2, 1_000_000, 0.07) == pytest.approx(math.exp(0.07), rel=1e-5)


def test_a_width_never_falls_below_the_noise_of_repeats():
    assert combined_ratio(1.05, 1_000_000, 0.0) == LEAST_RATIO


def test_own_runs_may_widen_an_interval():
    assert combined_ratio(1.1, 5, 0.4) > 1.1


def test_only_the_regime_that_ran_gets_another_interval():
    spread = OwnSpread(
        engine="pytorch", accelerator="h100-sxm", regime="sharded", configurations=5, error=0.01
    )
    moved = with_own(PROBLEM, runs(spread=(spread,)))
    pipeline = replace(PLAN, dp=8, pp=2, zero=1, shard=8)

    before, after = (estimate(each, Plans.of([PLAN, pipeline])) for each in (PROBLEM, moved))

    assert before.regime.tolist() == [Regime.SHARDED, Regime.PIPELINE]
    published = float(published_ratios(PROBLEM)[Regime.SHARDED])
    assert after.interval_ratio[0] == combined_ratio(published, 5, 0.01) < before.interval_ratio[0]
    assert after.interval_ratio[1] == before.interval_ratio[1]
    assert np.array_equal(after.step_s, before.step_s)
