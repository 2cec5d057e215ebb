"""Own runs on top of the published fit: shrinkage by hand, known factors found again, outliers bounded."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from escala.calibration import Reading
from escala.calibration.own import OwnFit, OwnRun, OwnSample, calibrate, fit_own
from escala.calibration.own_list import LIMIT, OwnFree, engine_fields, own_numbers
from escala.catalog import cluster_for, engine
from escala.catalog.engines import assumptions
from escala.catalog.fitted import fitted
from escala.catalog.networks import network
from escala.errors import InvalidInput
from escala.model.estimate import time_of
from escala.model.interval import Regime
from escala.model.own import OwnNumber, OwnRuns
from escala.model.own_numbers import with_own
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.workload import Workload

PROBLEM = Problem(
    workload=Workload(network=network("llama-3.1-8b"), sequence_tokens=4096, global_batch=128),
    cluster=cluster_for("h100-sxm", 8),
    engine=engine("pytorch"),
    assumptions=assumptions(),
)
PLAN = Plan(dp=8, zero=3, shard=8, micro_batch=1, micro_batches=16)


def silent(label: str, share: float) -> None:
    """Nobody watches."""


def run(problem: Problem, plan: Plan, ratio: float = 1.0, name: str = "") -> OwnRun:
    """A run that took so many times as long as predicted."""
    return OwnRun(
        name=name or str(plan),
        problem=problem,
        plan=plan,
        seconds=ratio * float(time_of(problem, Plans.of(plan)).step_s[0]),
    )


def layouts(count: int) -> list[Plan]:
    """Plans of one problem that differ in how the batch is dealt."""
    plans = [
        replace(PLAN, micro_batch=size, micro_batches=16 // size, zero=zero, shard=8 if zero else 1)
        for zero in (3, 2, 1, 0)
        for size in (1, 2, 4, 8)
    ]
    return plans[:count]


def gemm(device: str, sd: float) -> OwnFree:
    number = OwnNumber(of="accelerator", name=device, field="gemm_efficiency")
    return OwnFree(number=number, before=0.7, sd=sd, is_measured=False, high=LIMIT * sd, informed_by="")


def value_of(found: OwnFit, field: str) -> float:
    """The logarithm of a factor."""
    return next(
        float(value)
        for each, value in zip(found.free, found.solved.posterior.values, strict=True)
        if each.number.field == field
    )


def steps(computing: Reading, count: int, ratio: float) -> list[OwnRun]:
    """Runs of a device that only multiplies, of different length: seconds = work / speed."""
    plans = [replace(computing.plan, micro_batches=n + 1) for n in range(count)]
    return [run(computing.problem, plan, ratio) for plan in plans]


def one_number(runs: Sequence[OwnRun], sd: float) -> OwnFit:
    return fit_own(OwnSample.of(runs), [gemm(runs[0].problem.accelerator.name, sd)], silent)


@pytest.mark.parametrize(("runs", "share"), [(1, 1 / 5), (4, 1 / 2), (16, 4 / 5)])
def test_a_factor_is_the_mean_of_prior_and_runs_by_their_precision(
    computing: Reading, runs: int, share: float
):
    # prior sd 0.06, a run 0.12: one run weighs a quarter of the prior, so it decides 1 / (1 + 4) of a
    # factor that it alone would put at 1 / 1.000001; four runs 4 / 8, sixteen 16 / 20
    found = one_number(steps(computing, runs, 1.000001), 0.06)

    assert found.solved.posterior.values[0] == pytest.approx(-share * math.log(1.000001), rel=1e-6)
    assert found.solved.posterior.share[0] == pytest.approx(share, rel=1e-6)
    assert found.solved.posterior.sd[0] == pytest.approx(0.06 * math.sqrt(1 - share), rel=1e-6)


def test_one_run_moves_less_than_ten():
    one, ten = (calibrate([run(PROBLEM, p, 1.1) for p in layouts(n)], silent) for n in (1, 10))

    for field in ("gemm_level", "gemm_efficiency"):
        assert value_of(ten, field) < value_of(one, field) < 0.0


def test_repeats_of_a_configuration_move_as_one_run_does():
    one = calibrate([run(PROBLEM, PLAN, 1.1)], silent)
    again = calibrate([run(PROBLEM, PLAN, 1.1)] * 5, silent)

    assert again.sample.weights.tolist() == pytest.approx([0.2] * 5, rel=1e-12)
    assert value_of(again, "gemm_level") == pytest.approx(value_of(one, "gemm_level"), rel=1e-9)


def test_how_long_a_run_goes_on_makes_no_other_configuration():
    longer = replace(PROBLEM, workload=replace(PROBLEM.workload, total_tokens=1e12))

    assert len(OwnSample.of([run(PROBLEM, PLAN), run(longer, PLAN)]).configurations) == 1


def test_noisy_regimes_count_as_in_the_published_fit():
    slow = replace(PROBLEM, cluster=cluster_for("h100-sxm", 16, network="10 Gb/s"))
    plan = replace(PLAN, dp=16, shard=16, micro_batches=8)

    assert OwnSample.of([run(slow, plan), run(PROBLEM, PLAN)]).weights.tolist() == [0.3, 1.0]


def test_a_run_as_predicted_moves_nothing():
    found = calibrate([run(PROBLEM, plan) for plan in layouts(4)], silent)

    assert np.abs(found.solved.posterior.values).max() < 1e-12
    assert found.factors == ()


def test_the_order_of_runs_does_not_matter():
    runs = [run(PROBLEM, plan, 1.0 + 0.03 * k) for k, plan in enumerate(layouts(6))]

    forth, back = calibrate(runs, silent), calibrate(runs[::-1], silent)

    assert forth.solved.posterior.values.tolist() == pytest.approx(
        back.solved.posterior.values.tolist(), rel=1e-8, abs=1e-12
    )
    assert forth.outside is not None
    assert back.outside is not None
    assert forth.outside.tolist() == pytest.approx(back.outside[::-1].tolist(), rel=1e-8)


def test_a_known_factor_is_found_again_when_the_prior_says_nothing():
    slower = calibrated_with(0.9)
    measured = [run(slower, plan) for plan in layouts(4)]
    runs = [replace(each, problem=PROBLEM) for each in measured]

    found = one_number(runs, 1e4)

    assert found.solved.posterior.values[0] == pytest.approx(math.log(0.9), abs=1e-6)
    assert np.abs(found.solved.errors).max() < 1e-6


def calibrated_with(factor: float) -> Problem:
    """The problem on devices whose products reach so much of what the catalog says."""
    group = PROBLEM.cluster.groups[0]
    chip = replace(group.accelerator, gemm_efficiency=factor * group.accelerator.gemm_efficiency)
    return replace(PROBLEM, cluster=replace(PROBLEM.cluster, groups=(replace(group, accelerator=chip),)))


def test_a_known_factor_is_approached_from_one_side_under_the_published_prior():
    slower = calibrated_with(0.9)
    runs = [replace(run(slower, plan), problem=PROBLEM) for plan in layouts(16)]

    found = calibrate(runs, silent)

    # device and engine share what is theirs together: their product has to fall, and not below the truth
    both = value_of(found, "gemm_level") + value_of(found, "gemm_efficiency")
    assert math.log(0.9) < both < 0.5 * math.log(0.9)
    assert np.abs(found.solved.errors).mean() < 0.5 * np.abs(found.before).mean()


def test_an_absurd_run_pulls_no_more_for_being_more_absurd():
    good = [run(PROBLEM, plan, 1.05) for plan in layouts(8)]
    odd = replace(PLAN, micro_batch=16, micro_batches=1)

    ten, thousand = (calibrate([*good, run(PROBLEM, odd, by)], silent) for by in (10.0, 1000.0))

    for field in ("gemm_level", "gemm_efficiency"):
        assert value_of(thousand, field) == pytest.approx(value_of(ten, field), rel=0.02)


def test_what_a_run_pulled_is_the_value_less_the_value_without_it(computing: Reading):
    two = steps(computing, 2, 1.0001)
    found = one_number([two[0], replace(two[1], seconds=two[1].seconds / 1.0001)], 0.06)

    # with both the factor is -e / 6, without the slow one 0, without the other -e / 5
    error = math.log(1.0001)
    assert found.pulls[:, 0].tolist() == pytest.approx([-error / 6, error / 5 - error / 6], rel=1e-3)


def test_fewer_than_three_configurations_leave_none_out():
    two = calibrate([run(PROBLEM, plan, 1.1) for plan in layouts(2)] * 2, silent)

    assert (two.outside, two.spreads) == (None, ())


def test_the_spread_is_the_eighty_per_cent_quantile_of_left_out_errors():
    found = calibrate([run(PROBLEM, plan, 1.0 + 0.02 * k) for k, plan in enumerate(layouts(4))], silent)

    assert found.outside is not None
    (spread,) = found.spreads
    # four sizes: 80 % of 3 steps is 2.4, and the next higher one is the largest
    assert spread.error == pytest.approx(float(np.abs(found.outside).max()), rel=1e-12)
    assert (spread.engine, spread.accelerator) == ("pytorch", "h100-sxm")
    assert (spread.regime, spread.configurations) == (Regime.SHARDED.name.lower(), 4)


def test_left_out_errors_are_larger_than_those_in_the_fit():
    found = calibrate([run(PROBLEM, plan, 1.1) for plan in layouts(5)], silent)

    assert found.outside is not None
    assert (np.abs(found.outside) > np.abs(found.solved.errors)).all()


def test_a_number_stops_at_its_limit_and_says_so(computing: Reading):
    found = one_number(steps(computing, 30, 2.0), 0.06)

    assert found.solved.posterior.values[0] == pytest.approx(-LIMIT * 0.06, rel=1e-12)
    assert found.solved.is_stopped.tolist() == [True]


def test_a_share_of_a_published_peak_stays_below_one():
    group = PROBLEM.cluster.groups[0]
    near = replace(group, accelerator=replace(group.accelerator, gemm_efficiency=0.99))
    problem = replace(PROBLEM, cluster=replace(PROBLEM.cluster, groups=(near,)))

    free = next(each for each in own_numbers([problem]) if each.number.field == "gemm_efficiency")

    assert free.high == pytest.approx(-math.log(0.99), rel=1e-12)


def test_priors_are_what_the_published_fit_leaves():
    sd = {each.name: each.sd for each in fitted().factors}
    free = {each.number.field: each for each in own_numbers([PROBLEM])}

    assert free["dispatch_s"].sd == sd["engine.pytorch.dispatch_s"]
    assert free["gemm_efficiency"].sd == sd["accelerator.h100-sxm.gemm_efficiency"]
    assert free["flash2_efficiency"].sd == sd["accelerator.hopper+blackwell.flash2_efficiency"]
    assert (free["bytes_per_s"].sd, free["latency_s"].sd) == (0.2, 0.5)


def test_what_a_bench_measured_has_the_spread_of_benches():
    measured = replace(PROBLEM, cluster=replace(PROBLEM.cluster, measured=("measured",)))
    free = {each.number.field: each for each in own_numbers([measured])}

    assert [free[field].sd for field in ("gemm_efficiency", "bytes_per_s", "latency_s")] == [0.06, 0.15, 0.25]
    assert free["gemm_efficiency"].is_measured
    assert not free["flash2_efficiency"].is_measured


def test_runs_beside_two_benches_of_one_machine_are_refused():
    measured = replace(PROBLEM, cluster=replace(PROBLEM.cluster, measured=("measured",)))
    link = replace(measured.cluster.links[0], bytes_per_s=1e9)
    again = replace(measured, cluster=replace(measured.cluster, links=(link, *measured.cluster.links[1:])))

    with pytest.raises(InvalidInput, match="calibrate the runs of each bench or cluster file alone"):
        own_numbers([measured, again])


def test_a_calibration_of_a_measured_machine_holds_for_that_bench_alone():
    measured = replace(PROBLEM, cluster=replace(PROBLEM.cluster, measured=("measured",)))
    found = calibrate([run(measured, plan, 1.1) for plan in layouts(3)], silent)
    link = replace(measured.cluster.links[0], bytes_per_s=1e9)
    again = replace(measured, cluster=replace(measured.cluster, links=(link, *measured.cluster.links[1:])))

    assert with_own(measured, made_of(found)).own is not None
    with pytest.raises(InvalidInput, match="calibrate again with runs planned on this cluster"):
        with_own(again, made_of(found))


def made_of(found: OwnFit) -> OwnRuns:
    """The calibration of a fit."""
    return OwnRuns(
        escala="",
        fit="",
        date="",
        digest="",
        runs=(),
        machines=(),
        factor=found.factors,
        spread=found.spreads,
    )


def test_only_links_that_are_crossed_are_free():
    wide = replace(PROBLEM, cluster=cluster_for("h100-sxm", 16))

    names = [{e.number.name for e in own_numbers([p]) if e.number.of == "link"} for p in (PROBLEM, wide)]

    assert names[0] == {"nvlink4"}
    assert len(names[1]) == 2


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("pytorch", ("gemm_level", "elementwise_passes", "dispatch_s")),
        ("tf1-xla", ("compiled_passes_ratio",)),
        ("automodel", ("gemm_level", "elementwise_passes", "dispatch_s")),  # no published run
    ],
)
def test_an_engine_has_at_most_three_numbers_of_its_own(name: str, fields: tuple[str, ...]):
    assert engine_fields(name) == fields


def test_an_earlier_calibration_of_the_plan_does_not_count_twice():
    runs = [run(PROBLEM, plan, 1.1) for plan in layouts(3)]
    first = calibrate(runs, silent)
    again = calibrate([replace(each, problem=with_own(PROBLEM, made_of(first))) for each in runs], silent)

    assert again.solved.posterior.values.tolist() == first.solved.posterior.values.tolist()
