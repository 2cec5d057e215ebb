from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escala.catalog.clusters import cluster_for
from escala.catalog.engines import assumptions, engine
from escala.errors import InvalidInput
from escala.model.estimate import Estimate, estimate, timed_layers
from escala.model.network import Attention, Block, Embedding, FeedForward, Head, Network, Stack, StackRole
from escala.model.plan import Plan, Plans, Recompute, Schedule, Split
from escala.model.problem import Problem
from escala.model.stages import in_flight, slots
from escala.model.workload import Workload
from escala.planning.stagework import stage_work
from escala.planning.timeline import Sends, Span, peak_in_flight, play, timeline

ATTENTION = Attention(heads=8, kv_heads=8, head_dim=64, value_head_dim=64)
SMALL = Block(name="small", parts=(ATTENTION, FeedForward(width=2048, is_gated=False)))
WIDE = Block(name="wide", parts=(ATTENTION, FeedForward(width=8192, is_gated=False)))
SEQUENCE_TOKENS = 512


FREE = Sends(send_s=0.0, exchange_s=0.0, exposed=1.0)


def network(pattern: Sequence[int], *, has_ends: bool = False) -> Network:
    """Small and wide layers by pattern; without ends every stage with the same layers takes the same time."""
    stack = Stack(
        role=StackRole.DECODER,
        hidden=512,
        blocks=(SMALL, WIDE),
        pattern=tuple(pattern),
        embedding=Embedding(vocab=32000) if has_ends else None,
        head=Head(outputs=32000) if has_ends else None,
    )
    return Network(name="test", family="test", stacks=(stack,))


def problem_for(plan: Plan, layers: Network) -> Problem:
    """The plan on H100 nodes under Megatron, with the bubble of the closed form (no measured ratio)."""
    batch = plan.dp * plan.micro_batch * plan.micro_batches
    return Problem(
        workload=Workload(network=layers, sequence_tokens=SEQUENCE_TOKENS, global_batch=batch),
        cluster=cluster_for("h100-sxm", plan.devices),
        engine=engine("megatron-core"),
        assumptions=replace(assumptions(), bubble_ratio=1.0),
    )


def pipeline(schedule: Schedule, pp: int, micro_batches: int, virtual: int = 1) -> Plan:
    return Plan(schedule=schedule, pp=pp, virtual_stages=virtual, micro_batches=micro_batches)


def last_s(spans: tuple[tuple[Span, ...], ...]) -> float:
    return max(span.end_s for own in spans for span in own)


def predicted(plan: Plan, layers: Network) -> Estimate:
    return estimate(problem_for(plan, layers), Plans.of(plan))


@pytest.mark.parametrize(
    ("schedule", "virtual"),
    [
        (Schedule.GPIPE, 1),
        (Schedule.ONE_F_ONE_B, 1),
        (Schedule.INTERLEAVED, 2),
        (Schedule.INTERLEAVED, 3),
        (Schedule.ZERO_BUBBLE_V, 2),
    ],
)
@given(pp=st.integers(2, 6), rounds=st.integers(1, 9))
def test_peak_in_flight_is_that_of_the_model(schedule: Schedule, virtual: int, pp: int, rounds: int):
    plan = pipeline(schedule, pp, pp * rounds if virtual > 1 else rounds, virtual)
    stages = plan.pp * plan.virtual_stages
    table = Plans.of(plan)
    each = slots(network([0] * stages), table)
    own = np.arange(plan.pp) * 1.0
    ranks = replace(each, rank=own, last_rank=own, row=np.zeros(plan.pp, np.int64))

    spans = play(plan, np.ones((3, stages)), FREE)

    assert [peak_in_flight(plan, own) for own in spans] == pytest.approx(in_flight(table, ranks), rel=1e-12)


@pytest.mark.parametrize("recompute", list(Recompute))
@pytest.mark.parametrize(("dp", "zero", "shard"), [(1, 0, 1), (4, 1, 4), (4, 3, 4)])
def test_one_stage_takes_the_estimated_step(recompute: Recompute, dp: int, zero: int, shard: int):
    plan = Plan(dp=dp, zero=zero, shard=shard, micro_batches=3, recompute=recompute, recompute_layers=2)
    layers = network([0, 0, 0, 0], has_ends=True)

    played = timeline(problem_for(plan, layers), plan)

    assert played.step_s == pytest.approx(predicted(plan, layers).step_s[0], rel=1e-12)


@pytest.mark.parametrize(
    "plan",
    [
        pipeline(Schedule.GPIPE, 4, 8),
        pipeline(Schedule.ONE_F_ONE_B, 4, 8),
        pipeline(Schedule.INTERLEAVED, 4, 8, 2),
        replace(pipeline(Schedule.ONE_F_ONE_B, 4, 8), tp=2, recompute=Recompute.FULL),
    ],
)
def test_equal_stages_take_the_closed_form_without_sends(plan: Plan):
    layers = network([0] * 8)
    problem, table = problem_for(plan, layers), Plans.of(plan)
    work = stage_work(problem, plan, timed_layers(problem, table))
    model = predicted(plan, layers)

    spans = play(plan, np.stack((work.forward_s, work.backward_s, work.weight_s)), FREE)

    # 8 micro-batches of 2 layers, with what is computed again, and the bubble
    time = timed_layers(problem, table)[0]
    busy_s = 8 * 2 * (time.forward_s + time.backward_s) + model.time.recompute_s
    assert last_s(spans) == pytest.approx((busy_s + model.time.bubble_s)[0], rel=1e-12)


@pytest.mark.parametrize("recompute", list(Recompute))
@pytest.mark.parametrize(
    "plan",
    [
        pipeline(Schedule.GPIPE, 4, 8),
        pipeline(Schedule.ONE_F_ONE_B, 4, 8),
        pipeline(Schedule.INTERLEAVED, 4, 8, 2),
        pipeline(Schedule.ZERO_BUBBLE_V, 4, 8, 2),
    ],
)
def test_first_rank_keeps_the_activations_of_the_model(plan: Plan, recompute: Recompute):
    plan = replace(plan, recompute=recompute, recompute_layers=4)
    layers = network([0] * 16)

    played = timeline(problem_for(plan, layers), plan)

    # whole layers of equal stages: the closed form is exact unless a rank recomputes some stages only
    is_mixed = recompute is Recompute.FIRST_LAYERS and plan.virtual_stages > 1
    plan_bytes = predicted(replace(plan, recompute=Recompute.FULL) if is_mixed else plan, layers)
    assert played.peak_kept_bytes[0] == pytest.approx(plan_bytes.memory.kinds.activations_bytes[0], rel=1e-12)


def test_first_layers_of_a_rank_are_recomputed_and_no_others():
    plan = pipeline(Schedule.INTERLEAVED, 2, 2, 2)
    plan = replace(plan, recompute=Recompute.FIRST_LAYERS, recompute_layers=2)
    problem = problem_for(plan, network([0] * 8))
    time = timed_layers(problem, Plans.of(plan))[0]

    work = stage_work(problem, plan, [time, time])

    # 2 layers a stage; each rank recomputes those of its first stage
    forward_s, backward_s = time.forward_s[0], time.backward_s[0]
    again_s = time.recompute_full_s[0]
    assert work.forward_s == pytest.approx(np.full(4, 2 * forward_s), rel=1e-12)
    assert work.backward_s == pytest.approx(
        [2 * (backward_s + again_s)] * 2 + [2 * backward_s] * 2, rel=1e-12
    )


def test_each_stage_has_its_own_layers_and_the_ends_theirs():
    plan = replace(pipeline(Schedule.ONE_F_ONE_B, 3, 3), split=Split.CUSTOM, stage_layers=(1, 3, 2))
    layers, bare = network([0, 0, 0, 1, 1, 1], has_ends=True), network([0, 0, 0, 1, 1, 1])
    problem = problem_for(plan, layers)
    small, wide = timed_layers(problem, Plans.of(plan))

    work = stage_work(problem, plan, [small, wide])
    middle = stage_work(problem_for(plan, bare), plan, [small, wide])

    own_s = [small.forward_s[0], 2 * small.forward_s[0] + wide.forward_s[0], 2 * wide.forward_s[0]]
    assert middle.forward_s == pytest.approx(own_s, rel=1e-12)
    assert (work.forward_s > middle.forward_s).tolist() == [True, False, True]


def test_weight_gradients_are_a_third_of_the_matrix_products():
    plan = pipeline(Schedule.ZERO_BUBBLE_V, 2, 4, 2)
    problem = problem_for(plan, network([0] * 4))
    time = timed_layers(problem, Plans.of(plan))

    work = stage_work(problem, plan, time)

    assert work.weight_s == pytest.approx(np.full(4, time[0].matmul_s[0] / 3), rel=1e-12)


def test_what_follows_the_pipeline_is_that_of_the_model():
    plan = replace(pipeline(Schedule.ONE_F_ONE_B, 4, 8), dp=2, zero=1, shard=2)
    layers = network([0] * 8, has_ends=True)
    time = predicted(plan, layers).time

    played = timeline(problem_for(plan, layers), plan)

    lasted_s = {phase.name: phase.end_s - phase.start_s for phase in played.phases}
    assert played.phases[0].start_s == played.pipeline_s
    assert played.step_s == pytest.approx(played.pipeline_s + sum(lasted_s.values()), rel=1e-12)
    for name in ("accumulate", "optimizer", "straggler", "overhead"):
        assert lasted_s[name] == pytest.approx(getattr(time, f"{name}_s")[0], rel=1e-9)


@pytest.mark.parametrize("schedule", [Schedule.GPIPE, Schedule.ONE_F_ONE_B])
@pytest.mark.parametrize("software", ["megatron-core", "megatron-deepspeed"])
@pytest.mark.parametrize(("pp", "micro_batches"), [(2, 8), (4, 8), (4, 2)])
def test_equal_stages_take_the_closed_form_with_sends(
    schedule: Schedule, software: str, pp: int, micro_batches: int
):
    plan = pipeline(schedule, pp, micro_batches)
    problem = replace(problem_for(plan, network([0] * 8)), engine=engine(software))

    played, model = timeline(problem, plan), estimate(problem, Plans.of(plan))

    # everything that is not in the pipeline follows it; each rank holds 8 / pp layers
    time = timed_layers(problem, Plans.of(plan))[0]
    busy_s = micro_batches * 8 / pp * (time.forward_s + time.backward_s)
    assert played.pipeline_s == pytest.approx(
        (busy_s + model.time.bubble_s + model.time.transfer_s)[0], rel=1e-12
    )


def test_bubble_shares_are_the_closed_form_without_sends():
    plan = pipeline(Schedule.ONE_F_ONE_B, 4, 8)
    problem = problem_for(plan, network([0] * 8))
    free = replace(problem.assumptions, transfer_latency_s=0.0, transfer_efficiency=1e30)
    links = tuple(replace(link, latency_s=0.0) for link in problem.cluster.links)
    problem = replace(problem, assumptions=free, cluster=replace(problem.cluster, links=links))

    played = timeline(problem, plan)

    # (pp - 1) / (m + pp - 1)
    assert played.bubble_share == pytest.approx([3 / 11] * 4, rel=1e-9)


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (pipeline(Schedule.INTERLEAVED, 4, 6, 2), "pp divides"),
        (pipeline(Schedule.NONE, 2, 4), "the schedule does not go with pp"),
        (pipeline(Schedule.ONE_F_ONE_B, 16, 16), "more pipeline stages than layers"),
    ],
)
def test_a_plan_without_an_order_is_refused(plan: Plan, reason: str):
    with pytest.raises(InvalidInput, match=reason):
        timeline(problem_for(plan, network([0] * 8)), plan)
