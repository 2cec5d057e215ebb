"""The closed form and the timeline against what packages post and wait for."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escala.catalog.clusters import cluster_for
from escala.catalog.engines import assumptions, engine
from escala.catalog.networks import network
from escala.model.pipeline import exchanges, single_sends
from escala.model.plan import Plan, Plans, Schedule
from escala.model.problem import Problem
from escala.model.workload import Workload
from escala.planning.timeline import Sends, play
from planning.programs import Program, deepspeed_1f1b, megatron_1f1b, pytorch_1f1b, pytorch_gpipe, step_s

GPIPE, ONE_F_ONE_B = Schedule.GPIPE, Schedule.ONE_F_ONE_B
PROBLEM = Problem(
    workload=Workload(network=network("llama-3.2-1b"), sequence_tokens=2048, global_batch=8),
    cluster=cluster_for("h100-sxm", 8),
    engine=engine("megatron-2021"),
    assumptions=assumptions(),
)
SECONDS = st.floats(0.01, 10.0)
TIMELESS = settings(max_examples=40)


def pipeline(schedule: Schedule, pp: int, micro_batches: int) -> Plan:
    return Plan(schedule=schedule, pp=pp, micro_batches=micro_batches)


def sends_s(plan: Plan, send_s: float, exchange_s: float) -> float:
    """The seconds of all sends that the model counts."""
    plans = Plans.of(plan)
    return float((single_sends(PROBLEM, plans) * send_s + exchanges(plans) * exchange_s)[0])


def added_s(
    program: Program, plan: Plan, times: tuple[float, float], send_s: float, exchange_s: float
) -> float:
    """What sends add to a step of equal stages with these seconds forward and backward."""
    forward_s, backward_s = ([each] * plan.pp for each in times)
    with_sends, without = (
        step_s(program, plan.micro_batches, forward_s, backward_s, *each)
        for each in ((send_s, exchange_s), (0.0, 0.0))
    )
    return with_sends - without


@pytest.mark.parametrize(
    ("schedule", "program"), [(GPIPE, pytorch_gpipe), (ONE_F_ONE_B, pytorch_1f1b)], ids=["gpipe", "1f1b"]
)
@TIMELESS
@given(
    pp=st.integers(2, 8),
    micro_batches=st.integers(1, 20),
    times=st.tuples(SECONDS, SECONDS),
    send_s=SECONDS,
    ratio=st.floats(1.0, 2.0),
)
def test_sends_of_pytorch_are_counted(
    schedule: Schedule,
    program: Program,
    pp: int,
    micro_batches: int,
    times: tuple[float, float],
    send_s: float,
    ratio: float,
):
    plan = pipeline(schedule, pp, micro_batches)

    found = added_s(program, plan, times, send_s, ratio * send_s)

    assert found == pytest.approx(sends_s(plan, send_s, ratio * send_s), rel=1e-9)


@TIMELESS
@given(
    pp=st.integers(2, 8),
    micro_batches=st.integers(1, 20),
    backward_s=st.floats(1.0, 3.0),
    send_s=st.floats(0.01, 1.0),
)
def test_sends_of_megatron_are_counted_where_they_are_shorter_than_a_forward(
    pp: int, micro_batches: int, backward_s: float, send_s: float
):
    plan = pipeline(ONE_F_ONE_B, pp, micro_batches)

    found = added_s(megatron_1f1b, plan, (1.0, backward_s), send_s, send_s)

    assert found == pytest.approx(sends_s(plan, send_s, send_s), rel=1e-9)


@TIMELESS
@given(
    pp=st.integers(2, 8),
    micro_batches=st.integers(1, 20),
    backward_s=st.floats(1.0, 3.0),
    send_s=st.floats(0.01, 0.5),
)
def test_exchanges_of_deepspeed_are_two_sends(pp: int, micro_batches: int, backward_s: float, send_s: float):
    plan = pipeline(ONE_F_ONE_B, pp, micro_batches)

    found = added_s(deepspeed_1f1b, plan, (1.0, backward_s), send_s, send_s)

    assert found == pytest.approx(sends_s(plan, send_s, 2 * send_s), rel=1e-9)


@pytest.mark.parametrize(
    ("plan", "singles", "both_ways"),
    [
        # there and back m times, and past each rank between the ends
        (pipeline(GPIPE, 2, 4), 2 * 4, 0),
        (pipeline(GPIPE, 4, 4), 2 * (4 + 2), 0),
        # from one end to the other and back; then two exchanges a micro-batch, one between two ranks
        (pipeline(ONE_F_ONE_B, 2, 8), 2, 7),
        (pipeline(ONE_F_ONE_B, 4, 8), 6, 13),
        (pipeline(ONE_F_ONE_B, 4, 1), 6, 0),
        # other schedules: there and back for each chunk
        (replace(pipeline(Schedule.INTERLEAVED, 4, 8), virtual_stages=3), 2 * 8 * 3, 0),
    ],
)
def test_sends_by_hand(plan: Plan, singles: float, both_ways: float):
    plans = Plans.of(plan)

    assert (single_sends(PROBLEM, plans)[0], exchanges(plans)[0]) == (singles, both_ways)


@st.composite
def uneven(draw: st.DrawFn) -> tuple[int, np.ndarray, float, float]:
    """Micro-batches, seconds forward and backward of each stage, seconds of a send and of an exchange."""
    pp, micro_batches = draw(st.integers(2, 6)), draw(st.integers(1, 12))
    rows = [draw(st.lists(SECONDS, min_size=pp, max_size=pp)) for _ in range(2)]
    send_s = draw(SECONDS)
    return micro_batches, np.array(rows), send_s, send_s * draw(st.floats(1.0, 2.0))


@pytest.mark.parametrize(
    ("schedule", "program"), [(GPIPE, pytorch_gpipe), (ONE_F_ONE_B, pytorch_1f1b)], ids=["gpipe", "1f1b"]
)
@TIMELESS
@given(case=uneven())
def test_uneven_stages_are_played_as_pytorch_runs_them(
    schedule: Schedule, program: Program, case: tuple[int, np.ndarray, float, float]
):
    micro_batches, times, send_s, exchange_s = case
    plan = pipeline(schedule, times.shape[1], micro_batches)
    sends = Sends(send_s=send_s, exchange_s=exchange_s, exposed=1.0)

    spans = play(plan, np.vstack((times, np.zeros(times.shape[1]))), sends)

    last_s = max(own[-1].end_s for own in spans)
    # one end of the pipeline sends last; nobody waits for that
    assert last_s == pytest.approx(
        step_s(program, micro_batches, *times.tolist(), send_s, exchange_s), rel=1e-9
    )
