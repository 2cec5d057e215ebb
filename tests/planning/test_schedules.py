from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escala.model.plan import Schedule
from escala.planning.schedules import (
    SPLITS_BACKWARD,
    Kind,
    Task,
    order,
    orders,
    receiver,
    source,
    stage_ranks,
)

PIPELINES = (Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED, Schedule.ZERO_BUBBLE_V)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[Schedule, int, int, int]:
    """A schedule with pp, virtual stages and micro-batches that go with it."""
    schedule = draw(st.sampled_from(PIPELINES))
    pp = draw(st.integers(2, 7))
    if schedule is Schedule.INTERLEAVED:
        return schedule, pp, draw(st.integers(1, 4)), pp * draw(st.integers(1, 4))
    virtual = 2 if schedule is Schedule.ZERO_BUBBLE_V else 1
    return schedule, pp, virtual, draw(st.integers(1, 20))


def names(tasks: list[Task]) -> str:
    """Tasks as text: kind, micro-batch, and a tick for every pp stages up."""
    return " ".join(f"{task.kind.name}{task.micro_batch}" for task in tasks)


def test_one_rank_alternates_forward_and_backward():
    assert names(order(Schedule.NONE, 1, 1, 2, rank=0)) == "F0 B0 F1 B1"


def test_gpipe_runs_all_forwards_then_all_backwards_in_reverse():
    assert names(order(Schedule.GPIPE, 2, 1, 3, rank=0)) == "F0 F1 F2 B2 B1 B0"


@pytest.mark.parametrize(
    ("rank", "expected"),
    [
        # pp - 1 - rank forwards ahead, then one forward and one backward in turn
        (0, "F0 F1 F2 B0 F3 B1 B2 B3"),
        (1, "F0 F1 B0 F2 B1 F3 B2 B3"),
        (2, "F0 B0 F1 B1 F2 B2 F3 B3"),
    ],
)
def test_one_forward_one_backward_by_hand(rank: int, expected: str):
    assert names(order(Schedule.ONE_F_ONE_B, 3, 1, 4, rank)) == expected


def test_interleaved_changes_chunk_after_pp_micro_batches():
    tasks = order(Schedule.INTERLEAVED, 2, 2, 4, rank=1)

    # ahead: 2 (pp - 1 - rank) + (v - 1) pp = 2 forwards; rank 1 holds stages 1 and 3
    written = " ".join(f"{task.kind.name}{task.stage}.{task.micro_batch}" for task in tasks[:9])
    assert written == "F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 F1.2 B1.0 F1.3"


def test_zero_bubble_v_turns_on_the_last_rank():
    tasks = order(Schedule.ZERO_BUBBLE_V, 2, 2, 3, rank=1)

    # rank 1 holds stages 1 (down) and 2 (up): the way up follows at once, W fills the wait for B
    written = " ".join(f"{task.kind.name}{task.stage}.{task.micro_batch}" for task in tasks[:9])
    assert written == "F1.0 F2.0 F1.1 F2.1 B2.0 W2.0 F1.2 B1.0 W1.0"


@given(shapes())
def test_every_task_runs_exactly_once_on_the_rank_of_its_stage(shape: tuple[Schedule, int, int, int]):
    schedule, pp, virtual, micro_batches = shape
    ranks = stage_ranks(schedule, pp, virtual)
    every = list(Kind) if schedule in SPLITS_BACKWARD else [Kind.F, Kind.B]

    found = Counter((rank, task) for rank, tasks in enumerate(orders(*shape)) for task in tasks)

    assert found == {
        (ranks[stage], Task(kind, stage, number)): 1
        for kind in every
        for stage in range(pp * virtual)
        for number in range(micro_batches)
    }


@given(shapes())
def test_backward_comes_after_forward_and_weight_gradient_after_backward(
    shape: tuple[Schedule, int, int, int],
):
    for tasks in orders(*shape):
        place = {task: index for index, task in enumerate(tasks)}
        for kind, stage, number in ((task.kind, task.stage, task.micro_batch) for task in tasks):
            if kind > Kind.F:
                assert place[Task(Kind(kind - 1), stage, number)] < place[Task(kind, stage, number)]


def test_forward_goes_up_and_backward_down_the_stages():
    assert source(Task(Kind.F, 0, 5), last_stage=3) is None
    assert source(Task(Kind.F, 2, 5), last_stage=3) == Task(Kind.F, 1, 5)
    assert source(Task(Kind.B, 2, 5), last_stage=3) == Task(Kind.B, 3, 5)
    assert source(Task(Kind.B, 3, 5), last_stage=3) == Task(Kind.F, 3, 5)
    assert source(Task(Kind.W, 2, 5), last_stage=3) == Task(Kind.B, 2, 5)


def test_nothing_is_sent_at_the_ends_and_at_the_turn_of_the_v():
    ranks = stage_ranks(Schedule.ZERO_BUBBLE_V, 2, 2)

    assert ranks == [0, 1, 1, 0]
    assert [receiver(Kind.F, stage, ranks) for stage in range(4)] == [1, None, 0, None]
    assert [receiver(Kind.B, stage, ranks) for stage in range(4)] == [None, 0, None, 1]
    assert [receiver(Kind.W, stage, ranks) for stage in range(4)] == [None] * 4
