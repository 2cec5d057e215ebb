from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escala.model.plan import Plan, Schedule
from escala.planning.schedules import Kind, Task, source, stage_ranks
from escala.planning.timeline import Sends, Span, peak_in_flight, play

FREE = Sends(send_s=0.0, exchange_s=0.0, exposed=1.0)


def waited(send_s: float) -> Sends:
    """Sends that receivers wait for in full, both ways as fast as one."""
    return Sends(send_s=send_s, exchange_s=send_s, exposed=1.0)


def pipeline(schedule: Schedule, pp: int, micro_batches: int, virtual: int = 1) -> Plan:
    return Plan(schedule=schedule, pp=pp, virtual_stages=virtual, micro_batches=micro_batches)


def seconds(plan: Plan, forward_s: float, backward_s: float, weight_s: float = 0.0) -> np.ndarray:
    """The same seconds on every stage."""
    columns = np.ones(plan.pp * plan.virtual_stages)
    return np.stack((columns * forward_s, columns * backward_s, columns * weight_s))


def last_s(spans: tuple[tuple[Span, ...], ...]) -> float:
    return max(span.end_s for own in spans for span in own)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """A plan with any pipeline schedule."""
    schedule = draw(st.sampled_from(list(Schedule)))
    if schedule is Schedule.NONE:
        return Plan(micro_batches=draw(st.integers(1, 9)))
    pp = draw(st.integers(2, 6))
    if schedule is Schedule.INTERLEAVED:
        return pipeline(schedule, pp, pp * draw(st.integers(1, 4)), draw(st.integers(2, 4)))
    return pipeline(schedule, pp, draw(st.integers(1, 18)), 2 if schedule is Schedule.ZERO_BUBBLE_V else 1)


@st.composite
def uneven(draw: st.DrawFn) -> tuple[Plan, np.ndarray, float]:
    """A plan with its own seconds for every task and stage, and the seconds of a send."""
    plan = draw(plans())
    each = st.floats(0.0, 10.0)
    stages = plan.pp * plan.virtual_stages
    rows = [draw(st.lists(each, min_size=stages, max_size=stages)) for _ in Kind]
    return plan, np.array(rows), draw(st.floats(0.0, 2.0))


# Closed forms of equal stages.


@pytest.mark.parametrize("schedule", [Schedule.GPIPE, Schedule.ONE_F_ONE_B])
@pytest.mark.parametrize(("pp", "micro_batches"), [(2, 1), (4, 4), (4, 3), (8, 32)])
def test_gpipe_and_1f1b_take_m_plus_pp_minus_1_micro_batches(schedule: Schedule, pp: int, micro_batches: int):
    plan = pipeline(schedule, pp, micro_batches)

    spans = play(plan, seconds(plan, 1.0, 2.0), FREE)

    assert last_s(spans) == (micro_batches + pp - 1) * (1.0 + 2.0)


@pytest.mark.parametrize(("pp", "micro_batches", "virtual"), [(2, 2, 2), (4, 4, 2), (4, 8, 4), (8, 16, 3)])
def test_interleaving_divides_the_bubble_by_the_virtual_stages(pp: int, micro_batches: int, virtual: int):
    plan = pipeline(Schedule.INTERLEAVED, pp, micro_batches, virtual)

    spans = play(plan, seconds(plan, 1.0, 2.0), FREE)

    # in chunks: m v of work on each rank, bubble (pp - 1) / v micro-batches = pp - 1 chunks
    assert last_s(spans) == (micro_batches * virtual + pp - 1) * (1.0 + 2.0)


@pytest.mark.parametrize(("pp", "micro_batches"), [(2, 3), (4, 7), (4, 16), (8, 64)])
def test_zero_bubble_v_leaves_the_start_of_one_micro_batch(pp: int, micro_batches: int):
    plan = pipeline(Schedule.ZERO_BUBBLE_V, pp, micro_batches, 2)

    spans = play(plan, seconds(plan, 1.0, 1.0, 1.0), FREE)

    # two chunks of F, B, W a micro-batch; the last rank starts after pp - 1 forwards, then nobody waits
    assert last_s(spans) == 6 * micro_batches + pp - 1
    assert all(own[-1].end_s - own[0].start_s == 6 * micro_batches for own in spans)


@pytest.mark.parametrize(
    ("backward_s", "weight_s", "idle_s"),
    [
        # the longest of F, B and 2 (B - W), once for each of the other ranks
        (1.0, 0.5, 1.0),
        (1.5, 1.0, 1.5),
        (2.0, 0.5, 3.0),
    ],
)
def test_zero_bubble_v_idles_more_when_backward_outlasts_weights(
    backward_s: float, weight_s: float, idle_s: float
):
    plan = pipeline(Schedule.ZERO_BUBBLE_V, 4, 16, 2)

    spans = play(plan, seconds(plan, 1.0, backward_s, weight_s), FREE)

    assert last_s(spans) == 2 * 16 * (1.0 + backward_s + weight_s) + (4 - 1) * idle_s


@pytest.mark.parametrize(("pp", "micro_batches"), [(2, 1), (4, 2), (4, 4), (8, 8), (8, 12)])
def test_zero_bubble_v_beats_1f1b_even_with_few_micro_batches(pp: int, micro_batches: int):
    plan = pipeline(Schedule.ZERO_BUBBLE_V, pp, micro_batches, 2)

    spans = play(plan, seconds(plan, 1.0, 1.0, 1.0), FREE)

    assert last_s(spans) == max(6 * micro_batches + pp - 1, 4 * micro_batches + 4 * pp - 2)
    assert last_s(spans) < 6 * (micro_batches + pp - 1)


def test_sends_of_the_middle_ranks_are_exposed():
    plan = pipeline(Schedule.ONE_F_ONE_B, 3, 100)
    longer = replace(plan, micro_batches=101)

    slow = Sends(send_s=0.25, exchange_s=0.375, exposed=1.0)

    shorter_s, longer_s = (last_s(play(each, seconds(each, 1.0, 2.0), slow)) for each in (plan, longer))

    # one more micro-batch: forward, exchange with the next, backward, exchange with the one before
    assert longer_s - shorter_s == 1.0 + 0.375 + 2.0 + 0.375


@pytest.mark.parametrize(("pp", "micro_batches", "virtual"), [(2, 8, 2), (4, 16, 2), (4, 8, 4), (8, 16, 2)])
def test_hidden_sends_show_where_a_pipeline_fills_and_drains(pp: int, micro_batches: int, virtual: int):
    plan = pipeline(Schedule.INTERLEAVED, pp, micro_batches, virtual)
    hidden = Sends(send_s=0.125, exchange_s=0.125, exposed=0.0)

    spans = play(plan, seconds(plan, 1.0, 2.0), hidden)

    # one from each stage to the next and back, whatever the micro-batches
    assert last_s(spans) == (micro_batches * virtual + pp - 1) * 3.0 + 2 * (pp * virtual - 1) * 0.125


# Micro-batches in flight.


@given(st.integers(2, 8), st.integers(1, 40))
def test_peak_in_flight_of_the_v_is_at_most_pp(pp: int, micro_batches: int):
    plan = pipeline(Schedule.ZERO_BUBBLE_V, pp, micro_batches, 2)

    spans = play(plan, seconds(plan, 1.0, 1.0, 1.0), FREE)

    # at most 2 pp - 1 - rank chunks on the way down and rank + 1 on the way up, half a micro-batch each
    down = [min(micro_batches, 2 * pp - 1 - rank) for rank in range(pp)]
    up = [min(micro_batches, rank + 1) for rank in range(pp)]
    held = [peak_in_flight(plan, own) for own in spans]
    assert held == [(a + b) / 2 for a, b in zip(down, up, strict=True)]
    assert max(held) == min(pp, micro_batches)


# Any stages.


@given(uneven())
def test_tasks_wait_for_their_input_and_start_without_delay(case: tuple[Plan, np.ndarray, float]):
    plan, table, send_s = case
    ranks = stage_ranks(plan.schedule, plan.pp, plan.virtual_stages)

    spans = play(plan, table, waited(send_s))

    flat = {Task(span.kind, span.stage, span.micro_batch): span for own in spans for span in own}
    for own in spans:
        free_s = 0.0
        for span in own:
            task = Task(span.kind, span.stage, span.micro_batch)
            needed = source(task, len(ranks) - 1)
            is_sent = needed is not None and ranks[needed.stage] != ranks[task.stage]
            assert span.receive_s == pytest.approx(send_s * is_sent, abs=1e-9)
            arrival_s = flat[needed].end_s + send_s * is_sent if needed else 0.0
            assert span.start_s == max(free_s + send_s * is_sent, arrival_s)
            assert span.end_s == span.start_s + table[span.kind, span.stage]
            free_s = span.end_s


@given(uneven())
def test_the_pipeline_takes_at_least_its_slowest_rank(case: tuple[Plan, np.ndarray, float]):
    plan, table, send_s = case
    rank_of = np.array(stage_ranks(plan.schedule, plan.pp, plan.virtual_stages))
    kinds = 3 if plan.schedule is Schedule.ZERO_BUBBLE_V else 2
    busy_s = np.bincount(rank_of, weights=table[:kinds].sum(axis=0)) * plan.micro_batches

    spans = play(plan, table, waited(send_s))

    assert last_s(spans) >= busy_s.max() * (1 - 1e-12)


@given(uneven())
def test_no_stage_takes_longer_than_if_all_were_as_slow_as_the_slowest(case: tuple[Plan, np.ndarray, float]):
    plan, table, send_s = case
    slowest = np.broadcast_to(table.max(axis=1, keepdims=True), table.shape)

    assert last_s(play(plan, table, waited(send_s))) <= last_s(play(plan, slowest, waited(send_s))) * (
        1 + 1e-12
    )


@given(uneven().filter(lambda case: case[0].schedule in (Schedule.GPIPE, Schedule.ONE_F_ONE_B)))
def test_uneven_stages_take_at_most_the_closed_form_of_the_slowest(case: tuple[Plan, np.ndarray, float]):
    plan, table, _ = case
    slowest_s = table[Kind.F].max() + table[Kind.B].max()

    spans = play(plan, table, FREE)

    assert last_s(spans) <= (plan.micro_batches + plan.pp - 1) * slowest_s * (1 + 1e-12)


def test_deep_pipeline_of_many_micro_batches_ends():
    plan = pipeline(Schedule.ONE_F_ONE_B, 64, 512)

    assert last_s(play(plan, seconds(plan, 1.0, 2.0), FREE)) == (512 + 63) * 3.0
