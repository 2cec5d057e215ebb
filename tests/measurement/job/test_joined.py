"""The arithmetic that joins a trace with the run beside it; no torch is needed."""

from dataclasses import replace

import pytest

from escala.measurement.job.joined import joined
from escala.measurement.job.record import StepRun
from escala.measurement.job.spread import spread
from escala.measurement.profile.record import (
    Launches,
    Phases,
    Prediction,
    Profile,
    RankProfile,
    Speed,
    Steps,
    Verdict,
    Waits,
)

TRACED_S, PLAIN_S = 0.2, 0.1
NOTHING = {"data_s": 0.0, "forward_s": 0.1, "backward_s": 0.1, "optimizer_s": 0.0, "idle_s": 0.0}
RANK = RankProfile(
    rank=0,
    path="rank0.json",
    step_s=TRACED_S,
    phases=Phases(communication_s=0.0, **NOTHING),
    waits=Waits(compute_s=0.2, memory_s=0.0, launch_s=0.0, communication_s=0.0, input_s=0.0, idle_s=0.0),
    message_s=0.0,
    hidden_s=0.0,
    traffic=(),
    launches=Launches(count=1.0, mean_s=0.2, gap_s=0.0),
    memory=(),
    flop=4e9,
)
PROFILE = Profile(
    schema="escala/profile@1",
    escala="0",
    device="chip",
    has_device=False,
    backend=None,
    run_ranks=None,
    steps=Steps(how="marks", count=1, each_s=(TRACED_S,)),
    critical_rank=0,
    ranks=(RANK,),
    arrivals=(),
    speed=Speed(
        flop_per_s=2e10, device="chip", number_format="bf16", peak_flop_per_s=1e11, hfu=0.2, mfu=0.15
    ),
    verdict=Verdict(kind="compute", told="", changes=()),
    predicted=Prediction(
        plan_title="1 device",
        network="net",
        step_s=0.12,
        low_s=0.1,
        high_s=0.14,
        error=-0.4,
        axes=(),
        parts=(),
    ),
    unsaid=(),
    notes=(),
)
RUN = StepRun(
    target="train:make",
    device="cpu",
    ranks=2,
    threads=1,
    parallelism="data parallel",
    model="Net",
    parameters=1,
    optimizer="AdamW",
    samples=1,
    tokens=None,
    precision=None,
    recomputes=False,
    step_s=spread([PLAIN_S]),
    unit="samples",
    rate_per_s=20.0,
    flop=1e10,
    peak_bytes=None,
    memory=None,
    usage=(),
    what_if=None,
    notes=(),
    is_interrupted=False,
)


def test_rates_are_those_of_steps_that_no_profiler_slowed():
    speed = joined(PROFILE, RUN, "").speed

    # 1e10 FLOP of two ranks in 0.1 s: 5e10 FLOP/s a rank, half the peak of 1e11
    assert speed is not None
    assert speed.flop_per_s == pytest.approx(5e10, rel=1e-12)
    assert speed.hfu == pytest.approx(0.5, rel=1e-12)
    # the network's own work in half the time is twice the utilisation
    assert speed.mfu == pytest.approx(0.3, rel=1e-12)


def test_without_a_count_the_traced_products_stand():
    speed = joined(PROFILE, replace(RUN, flop=None), "").speed

    assert speed is not None
    assert speed.flop_per_s == pytest.approx(4e10, rel=1e-12)
    assert speed.hfu == pytest.approx(0.4, rel=1e-12)


def test_a_prediction_is_compared_with_the_unslowed_step():
    found = joined(PROFILE, RUN, "")

    assert found.predicted is not None
    assert found.predicted.error == pytest.approx(0.2, rel=1e-12)  # 0.12 s / 0.1 s - 1
    assert found.notes == (
        "a step took 100 ms, and 200 ms under the profiler; its parts are those of the trace",
    )


def test_a_trace_that_is_far_slower_than_the_step_is_called_distorted():
    # 0.2 s traced is twice 0.1 s, which a profiler may do; more than five times 0.03 s is not believed
    assert "distorted" not in joined(PROFILE, RUN, "").notes[0]
    assert "distorted" in joined(PROFILE, replace(RUN, step_s=spread([0.03])), "").notes[0]


def test_why_there_is_no_prediction_is_said():
    found = joined(replace(PROFILE, predicted=None), RUN, "no machine is given")

    assert found.unsaid == ("prediction: no machine is given",)
