"""Recorded beside predicted: the prediction is the model's own, and what cannot be compared is said."""

from dataclasses import replace

import pytest

from escala.catalog import engine
from escala.catalog.clusters import cluster_for
from escala.catalog.engines import assumptions
from escala.catalog.networks import network
from escala.errors import InvalidInput
from escala.measurement.runrecord import RUN_SCHEMA, Figure, Metered, Peak, Power, RunRecord, StepTimes
from escala.measurement.verify import verify
from escala.model.cluster import Place
from escala.model.estimate import Estimate, estimate
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.workload import Workload

PROBLEM = Problem(
    workload=Workload(network=network("llama-3.1-8b"), sequence_tokens=4096, global_batch=128),
    cluster=cluster_for("h100-sxm", 8, devices_per_node=None, network=None),
    engine=engine("pytorch"),
    assumptions=assumptions(),
)
PLAN = Plan(dp=8, zero=3, shard=8, micro_batch=1, micro_batches=16)
NOTHING = RunRecord(
    schema=RUN_SCHEMA,
    escala="0",
    sources=(),
    began=None,
    ended=None,
    last_step=None,
    step=None,
    ranks=(),
    tokens_per_s=None,
    tokens_per_s_per_device=None,
    samples_per_s=None,
    samples_per_s_per_device=None,
    flop_per_s_per_device=None,
    mfu=None,
    memory=(),
    power=None,
    metered=(),
    devices=None,
    global_batch=None,
    sequence_tokens=None,
    unsaid=(),
    notes=(),
)


@pytest.fixture(scope="module")
def predicted() -> Estimate:
    return estimate(PROBLEM, Plans.of(PLAN))


def took(step_s: float) -> StepTimes:
    return StepTimes(
        how="logged",
        median_s=step_s,
        low_quartile_s=step_s,
        high_quartile_s=step_s,
        samples=9,
        warmup_samples=1,
    )


def test_a_step_inside_the_interval_and_one_beyond_it(predicted: Estimate):
    value, ratio = float(predicted.step_s[0]), float(predicted.interval_ratio[0])
    inside = verify(replace(NOTHING, step=took(value * ratio * 0.999)), PROBLEM, PLAN).compared[0]
    beyond = verify(replace(NOTHING, step=took(value * ratio * 1.001)), PROBLEM, PLAN).compared[0]

    assert (inside.predicted, inside.low, inside.high) == (value, value / ratio, value * ratio)
    assert (inside.is_inside, beyond.is_inside) == (True, False)
    assert inside.error == pytest.approx(1 / (ratio * 0.999) - 1, rel=1e-12)


def test_a_rate_of_one_device_counts_for_all(predicted: Estimate):
    run = replace(NOTHING, tokens_per_s_per_device=Figure(value=1000.0, samples=3, origin="logged"))
    (rate,) = verify(run, PROBLEM, PLAN).compared

    assert (rate.recorded, rate.unit) == (8000.0, "tokens/s")
    assert rate.predicted == pytest.approx(128 * 4096 / float(predicted.step_s[0]), rel=1e-12)


def test_samples_are_compared_where_no_log_says_tokens(predicted: Estimate):
    run = replace(NOTHING, samples_per_s=Figure(value=20.0, samples=3, origin="logged"))
    (rate,) = verify(run, PROBLEM, PLAN).compared

    assert (rate.recorded, rate.unit) == (20.0, "samples/s")
    assert rate.predicted == pytest.approx(128 / float(predicted.step_s[0]), rel=1e-12)


@pytest.mark.parametrize("counter", ["allocated", "reserved", "device"])
def test_memory_is_compared_by_counter(counter: str, predicted: Estimate):
    run = replace(NOTHING, memory=(Peak(counter=counter, peak_bytes=5e10, lane="rank 0"),))
    (memory,) = verify(run, PROBLEM, PLAN).compared

    value = float(getattr(predicted.memory, f"{counter}_bytes")[0])
    known = PROBLEM.assumptions
    assert (memory.predicted, memory.low) == (value, value * known.memory_interval_low)
    assert memory.high == value * known.memory_interval_high


def test_energy_is_that_of_the_devices_alone(predicted: Estimate):
    drawn = Power(devices=4, samples=9, mean_w=2400.0, duration_s=60.0, energy_j=144e3, is_run=True)
    found = verify(replace(NOTHING, step=took(6.0), power=drawn), PROBLEM, PLAN)

    energy, site = found.compared[1], PROBLEM.cluster.site
    assert energy.recorded == pytest.approx(2400.0 * 8 / 4 * 6.0)
    assert predicted.footprint.energy_j is not None
    at_the_meter = float(predicted.footprint.energy_j[0])
    assert energy.predicted == pytest.approx(at_the_meter / site.node_power_ratio / site.pue, rel=1e-12)
    assert energy.low < energy.predicted < energy.high
    assert any("4 of 8 devices" in note for note in found.notes)


def test_windows_of_a_meter_are_power(predicted: Estimate):
    meter = Metered(tool="Zeus", scope="devices", devices=8, energy_j=30_000.0, duration_s=10.0)
    found = verify(replace(NOTHING, step=took(6.0), metered=(meter,)), PROBLEM, PLAN)

    assert found.compared[1].recorded == pytest.approx(3000.0 * 6.0)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, "not in the logs"),
        (
            {
                "metered": (
                    Metered(tool="CodeCarbon", scope="machine", devices=0, energy_j=9.0, duration_s=1.0),
                )
            },
            "no step",
        ),
        (
            {
                "step": took(1.0),
                "metered": (
                    Metered(tool="CodeCarbon", scope="machine", devices=0, energy_j=9.0, duration_s=1.0),
                ),
            },
            "not the devices alone",
        ),
        (
            {
                "step": took(1.0),
                "power": Power(
                    devices=16, samples=1, mean_w=1.0, duration_s=None, energy_j=None, is_run=False
                ),
            },
            "power of 16 devices, and the plan has 8",
        ),
    ],
)
def test_why_no_energy_is_compared_is_said(change: dict[str, object], why: str):
    missing = verify(replace(NOTHING, **change), PROBLEM, PLAN).missing

    assert why in missing[-1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"devices": 16}, "the run has 16 devices and the plan 8"),
        ({"global_batch": 64}, "the run has 64 samples in a global batch and the plan 128"),
        ({"sequence_tokens": 8192}, "the run has 8,192 tokens in a sequence and the plan 4,096"),
        ({"memory": (Peak(counter="host", peak_bytes=1.0, lane=""),)}, "counter 'host' is unknown"),
        ({"step": took(0.0)}, "has to be above zero"),
    ],
)
def test_another_run_is_refused(change: dict[str, object], said: str):
    with pytest.raises(InvalidInput, match=said):
        verify(replace(NOTHING, **change), PROBLEM, PLAN)


def test_a_plan_that_cannot_be_run_is_refused():
    with pytest.raises(InvalidInput, match="cannot be run"):
        verify(NOTHING, PROBLEM, replace(PLAN, dp=4, shard=4))


def test_a_mean_over_the_run_is_said_to_hold_its_warm_up():
    run = replace(NOTHING, step=replace(took(6.0), how="mean of the run"))

    assert "start and warm-up" in verify(run, PROBLEM, PLAN).notes[0]


def test_a_plan_of_a_measured_machine_says_which_one_it_is():
    place = Place(fingerprint="0", processor="an abacus", cores=2)
    problem = replace(PROBLEM, cluster=replace(PROBLEM.cluster, place=place))

    assert verify(replace(NOTHING, step=took(10.0)), problem, PLAN).notes[-1] == (
        "predicted for the machine that was measured, an abacus; logs do not name theirs"
    )
