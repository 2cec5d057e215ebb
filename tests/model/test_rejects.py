from dataclasses import replace

import pytest

from escala import catalog
from escala.catalog.engines import engines
from escala.model.estimate import estimate
from escala.model.network import (
    Attention,
    Block,
    Convolution,
    Embedding,
    Experts,
    FeedForward,
    Head,
    Network,
    Stack,
    StackRole,
)
from escala.model.plan import (
    Compile,
    ContextKind,
    Offload,
    Plan,
    Plans,
    Precision,
    Recompute,
    Schedule,
    Split,
)
from escala.model.problem import Problem
from escala.model.rejects import REASONS, Reject, describe, needs, rejects
from escala.model.workload import Batching, Lengths, Workload


def network(*parts, role: StackRole = StackRole.DECODER, layers: int = 8) -> Network:
    """8 layers, 8 heads, 4 key-value heads, 4 experts: small enough to see what divides what."""
    attention = Attention(heads=8, kv_heads=4, head_dim=16, value_head_dim=16)
    block = Block(name="layer", parts=parts or (attention, FeedForward(width=384)))
    stack = Stack(
        role=role,
        hidden=128,
        blocks=(block,),
        pattern=(0,) * layers,
        embedding=Embedding(vocab=1000),
        head=Head(outputs=1000),
    )
    return Network(name="small", family="test", stacks=(stack,))


DENSE = network()
MIXTURE = network(
    Attention(heads=8, kv_heads=4, head_dim=16, value_head_dim=16), Experts(experts=4, top_k=2, width=96)
)
ENCODER = network(role=StackRole.ENCODER)
IMAGES = network(Convolution(inputs=3, outputs=8, kernel=3, output_pixels=100))


def problem_of(
    of: Network, plan: Plan, *, engine: str = "pytorch", gpu: str = "h100-sxm", tokens: int = 64
) -> Problem:
    """A problem that fits the plan's devices and batch."""
    batch = plan.dp * plan.micro_batch * plan.micro_batches
    return Problem(
        workload=Workload(network=of, sequence_tokens=tokens, global_batch=batch),
        cluster=catalog.cluster_for(gpu, plan.devices),
        engine=replace(catalog.engine(engine), lacks=()),
        assumptions=catalog.assumptions(),
    )


def piped(pp: int, **values) -> Plan:
    return Plan(**({"pp": pp, "schedule": Schedule.ONE_F_ONE_B, "micro_batches": 8} | values))


BROKEN = [
    (Reject.TENSOR_HEADS, DENSE, Plan(tp=16)),
    (Reject.TENSOR_KV_HEADS, DENSE, Plan(tp=8)),
    (Reject.TENSOR_WIDTH, DENSE, Plan(tp=3)),
    (Reject.TENSOR_KIND, IMAGES, Plan(tp=2)),
    (Reject.TENSOR_KIND, IMAGES, piped(2)),
    (Reject.SEQUENCE_WITHOUT_TENSOR, DENSE, Plan(sp=True)),
    (Reject.CONTEXT_KIND, ENCODER, Plan(cp=2)),
    (Reject.CONTEXT_HEADS, DENSE, Plan(cp=16, cp_kind=ContextKind.ULYSSES)),
    (Reject.CONTEXT_HEADS, DENSE, Plan(cp=8, tp=2, cp_kind=ContextKind.ULYSSES)),
    (Reject.CONTEXT_SPLIT, DENSE, Plan(cp=64)),
    (Reject.EXPERTS, DENSE, Plan(dp=2, ep=2)),
    (Reject.EXPERTS, MIXTURE, Plan(dp=8, ep=8)),
    (Reject.EXPERT_RANKS, MIXTURE, Plan(dp=2, ep=4)),
    (Reject.EXPERT_RANKS, MIXTURE, Plan(dp=4, tp=4, ep=2, etp=2)),
    (Reject.STAGES, DENSE, piped(16)),
    (Reject.STAGES, DENSE, piped(4, schedule=Schedule.INTERLEAVED, virtual_stages=3)),
    (Reject.STAGE_SPLIT, DENSE, piped(2, split=Split.CUSTOM, stage_layers=(3, 4))),
    (Reject.STAGE_SPLIT, DENSE, piped(2, split=Split.CUSTOM, stage_layers=(3, 3, 2))),
    (Reject.SCHEDULE, DENSE, piped(2, schedule=Schedule.NONE)),
    (Reject.SCHEDULE, DENSE, Plan(schedule=Schedule.ONE_F_ONE_B)),
    (Reject.SCHEDULE, DENSE, piped(2, virtual_stages=2)),
    (Reject.SCHEDULE, DENSE, piped(2, schedule=Schedule.INTERLEAVED)),
    (Reject.SCHEDULE, DENSE, piped(2, schedule=Schedule.ZERO_BUBBLE_V, virtual_stages=1)),
    (
        Reject.SCHEDULE_MICRO_BATCHES,
        DENSE,
        piped(4, schedule=Schedule.INTERLEAVED, virtual_stages=2, micro_batches=6),
    ),
    (Reject.SHARD, DENSE, Plan(dp=8, zero=3, shard=3)),
    (Reject.SHARD, DENSE, Plan(dp=4, cp=4, zero=3, shard=2)),
    (Reject.SHARD, DENSE, Plan(dp=8, zero=0, shard=8)),
    (Reject.SHARD, DENSE, Plan(dp=8, zero=1, shard=4)),
    (Reject.SHARD, DENSE, Plan(dp=8, zero=2, shard=8, reshard=True)),
    (Reject.ENGINE, DENSE, Plan(dp=4, cp=2, dynamic_cp=True)),
    (Reject.OFFLOAD, DENSE, Plan(dp=8, offload_optimizer=Offload.CPU)),
    (Reject.LOCAL_STEPS, DENSE, Plan(local_steps=4)),
    (Reject.LOCAL_FRAGMENTS, DENSE, Plan(dp=8, local_fragments=2)),
    (Reject.LOCAL_FRAGMENTS, DENSE, Plan(dp=8, local_steps=4, local_overlap_steps=4)),
    (Reject.LOCAL_STEPS, DENSE, Plan(dp=4, cp=2, local_steps=4)),
    (Reject.LOCAL_STEPS, DENSE, Plan(dp=8, zero=3, shard=8, local_steps=4)),
    (Reject.LOCAL_STEPS, DENSE, Plan(dp=8, zero=1, shard=8, local_steps=4)),
]


@pytest.mark.parametrize(("bit", "of", "plan"), BROKEN)
def test_a_rule_sets_its_bit_when_broken(bit, of, plan):
    found = int(rejects(problem_of(of, plan), Plans.of(plan))[0])

    assert found & bit, describe(found)


def test_devices_must_be_those_of_the_cluster():
    problem = problem_of(DENSE, Plan(dp=4))

    assert rejects(problem, Plans.of(Plan(dp=2, micro_batches=2)))[0] == Reject.DEVICES


def test_micro_batches_must_make_up_the_global_batch():
    problem = problem_of(DENSE, Plan(dp=4))

    assert rejects(problem, Plans.of(Plan(dp=4, micro_batches=2)))[0] == Reject.BATCH


def test_sp_needs_tokens_that_tp_divides():
    plan = Plan(tp=4, sp=True)

    assert rejects(problem_of(DENSE, plan, tokens=62), Plans.of(plan))[0] == Reject.SEQUENCE_SPLIT


def test_a_device_without_the_unit_is_told():
    plan = Plan(precision=Precision.FP8_TENSORWISE)

    assert rejects(problem_of(DENSE, plan, gpu="a100-sxm-80gb"), Plans.of(plan))[0] == Reject.PRECISION


def test_what_the_engine_lacks_is_told():
    plan = Plan(tp=2)
    problem = problem_of(DENSE, plan)

    limited = replace(problem, engine=replace(problem.engine, lacks=("tp",)))

    assert rejects(limited, Plans.of(plan))[0] == Reject.ENGINE


def test_the_site_may_not_have_the_power():
    plan = Plan(dp=8)
    problem = problem_of(DENSE, plan)
    # 8 devices at 0.9 of 700 W are 5 kW before the node and the building
    poor = replace(problem.cluster, site=replace(problem.cluster.site, power_limit_w=5000.0))

    assert rejects(replace(problem, cluster=poor), Plans.of(plan))[0] == Reject.SITE_POWER


def test_what_does_not_fit_is_told_by_the_estimate():
    problem = problem_of(DENSE, Plan())
    group = problem.cluster.groups[0]
    tiny = replace(group, accelerator=replace(group.accelerator, memory_bytes=1e6))

    found = estimate(replace(problem, cluster=replace(problem.cluster, groups=(tiny,))), Plans.of(Plan()))

    assert found.reject[0] == Reject.MEMORY


SOUND = [
    (DENSE, Plan()),
    (DENSE, Plan(dp=2, tp=4, sp=True, zero=3, reshard=True, shard=2)),
    (DENSE, Plan(dp=8, zero=3, reshard=True, shard=4)),
    (DENSE, Plan(cp=4, cp_kind=ContextKind.ULYSSES)),
    (DENSE, Plan(cp=8, dp=2, zero=1, shard=16)),
    (DENSE, piped(4, schedule=Schedule.INTERLEAVED, virtual_stages=2)),
    (DENSE, piped(4, schedule=Schedule.ZERO_BUBBLE_V, virtual_stages=2)),
    (DENSE, piped(8, schedule=Schedule.GPIPE)),
    (DENSE, piped(5, split=Split.BALANCED)),
    (DENSE, piped(2, split=Split.CUSTOM, stage_layers=(5, 3))),
    (MIXTURE, Plan(dp=8, tp=2, ep=4)),
    (MIXTURE, Plan(dp=4, tp=4, ep=4, etp=4)),
    (ENCODER, Plan(tp=4, dp=2)),
    (IMAGES, Plan(dp=8)),
]


@pytest.mark.parametrize(("of", "plan"), SOUND)
def test_a_sound_plan_breaks_no_rule(of, plan):
    found = int(rejects(problem_of(of, plan), Plans.of(plan))[0])

    assert describe(found) == []


def test_every_bit_has_one_reason():
    assert list(REASONS) == list(Reject)
    assert len(set(REASONS.values())) == len(Reject)


def test_reasons_come_in_the_order_of_the_bits():
    assert describe(int(Reject.MEMORY | Reject.DEVICES)) == [REASONS[Reject.DEVICES], REASONS[Reject.MEMORY]]
    assert describe(0) == []


def test_bits_of_many_plans_are_those_of_each():
    problem = problem_of(DENSE, Plan(dp=8))
    plans = [plan for _, of, plan in BROKEN if of is DENSE]

    together = rejects(problem, Plans.of(plans))

    assert together.tolist() == [int(rejects(problem, Plans.of(plan))[0]) for plan in plans]


ABILITIES = {
    "tp": Plan(tp=2),
    "pp": piped(2),
    "cp": Plan(cp=2),
    "ep": Plan(dp=2, ep=2),
    "etp": Plan(tp=2, etp=2),
    "ddp": Plan(dp=2),
    "zero-1": Plan(dp=2, zero=1, shard=2),
    "zero-2": Plan(dp=2, zero=2, shard=2),
    "zero-3": Plan(dp=2, zero=3, reshard=True, shard=2),
    "no-reshard": Plan(dp=2, zero=3, shard=2),
    "hsdp": Plan(dp=4, zero=3, reshard=True, shard=2),
    "hsdp-with-ep": Plan(dp=4, ep=2, zero=3, reshard=True, shard=2),
    "zero-2-with-pp": piped(2, dp=2, zero=2, shard=2),
    "reshard-with-pp": piped(2, dp=2, zero=3, shard=2, reshard=True),
    "zero-1-with-model-parallel": Plan(dp=2, cp=2, zero=1, shard=4),
    "zero-1-with-split-weights": Plan(dp=2, tp=2, zero=1, shard=2),
    "gpipe": piped(2, schedule=Schedule.GPIPE),
    "interleaved": piped(2, schedule=Schedule.INTERLEAVED, virtual_stages=2),
    "zero-bubble-v": piped(2, schedule=Schedule.ZERO_BUBBLE_V, virtual_stages=2),
    "uneven-stages": piped(3),
    "ulysses": Plan(cp=2, cp_kind=ContextKind.ULYSSES),
    "all-gather-cp": Plan(cp=2, cp_kind=ContextKind.ALL_GATHER),
    "selective": Plan(recompute=Recompute.SELECTIVE),
    "first-layers": Plan(recompute=Recompute.FIRST_LAYERS, recompute_layers=1),
    "compile": Plan(compile=Compile.DEFAULT),
    "fused-loss": Plan(fused_loss=True),
    "fp8": Plan(precision=Precision.FP8_ROWWISE),
    "micro-batches": Plan(micro_batches=2),
}


@pytest.mark.parametrize(("ability", "plan"), ABILITIES.items())
def test_an_ability_is_used_by_the_plan_that_needs_it(ability, plan):
    problem = problem_of(MIXTURE, plan)

    assert needs(problem, Plans.of(plan))[ability].tolist() == [True]


@pytest.mark.parametrize("ability", sorted(ABILITIES.keys() - {"ddp"}))
def test_a_single_device_uses_no_ability(ability):
    assert needs(problem_of(MIXTURE, Plan()), Plans.of(Plan()))[ability].tolist() == [False]


@pytest.mark.parametrize("name", engines())
def test_engines_lack_only_abilities_that_rules_know(name):
    problem = problem_of(DENSE, Plan())

    for ability in catalog.engine(name).lacks:
        assert needs(problem, Plans.of(Plan()))[ability].shape == (1,)


def test_padded_rows_are_not_shared_by_length():
    problem = problem_of(DENSE, Plan(dp=4, cp=2))
    padded = Lengths(quantile_tokens=(100.0,), batching=Batching.PADDED)
    padded_problem = replace(problem, workload=replace(problem.workload, lengths=padded))

    found = int(rejects(padded_problem, Plans.of(Plan(dp=4, cp=2, dynamic_cp=True)))[0])

    assert found & Reject.CONTEXT_DYNAMIC


@pytest.mark.parametrize(
    ("engine_name", "cp", "is_refused"),
    [
        ("pytorch", 8, False),  # a key-value head each
        ("pytorch", 16, False),  # 32 heads of queries, two copies of each of 8 key-value heads
        ("pytorch", 64, True),  # more ranks than heads of queries
        ("megatron-core", 16, True),  # no copies
    ],
)
def test_ulysses_has_as_many_ranks_as_key_heads_or_copies_of_them(engine_name, cp, is_refused):
    plan = Plan(cp=cp, cp_kind=ContextKind.ULYSSES)
    problem = problem_of(catalog.networks.network("llama-3.1-8b"), plan, engine=engine_name)

    assert bool(int(rejects(problem, Plans.of(plan))[0]) & Reject.CONTEXT_HEADS) == is_refused
