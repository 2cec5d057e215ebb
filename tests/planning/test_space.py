import re
from dataclasses import replace
from math import prod

import numpy as np
import pytest

from escala import catalog
from escala.catalog.networks import network
from escala.model.network import Attention, Block, Embedding, Experts, FeedForward, Head, Network, Stack
from escala.model.network import StackRole as Role
from escala.model.plan import (
    PLACEMENTS,
    Compile,
    ContextKind,
    Plan,
    Plans,
    Precision,
    Recompute,
    Schedule,
    Split,
)
from escala.model.problem import Problem
from escala.model.workload import Workload
from escala.planning.cells import cells, expand, fill
from escala.planning.defaults import uncompiled
from escala.planning.simplicity import describe
from escala.planning.space import (
    Group,
    SpaceLimits,
    divisors,
    finish_choices,
    groups,
    recompute_choices,
    size,
    variants,
)

EVERYTHING = SpaceLimits()
ATTENTION = Attention(heads=8, kv_heads=4, head_dim=128, value_head_dim=128)
DENSE = FeedForward(width=4096)
EXPERTS = Experts(experts=6, top_k=2, width=1024)
PIPED = (int(Schedule.ONE_F_ONE_B), 1, int(Split.EVEN))


def question(
    *parts,
    devices: int = 8,
    batch: int = 16,
    tokens: int = 2048,
    layers: int = 8,
    engine: str = "pytorch",
    gpu: str = "h100-sxm",
) -> Problem:
    block = Block(name="layer", parts=parts or (ATTENTION, DENSE))
    stack = Stack(
        role=Role.DECODER,
        hidden=1024,
        blocks=(block,),
        pattern=(0,) * layers,
        embedding=Embedding(vocab=32000),
        head=Head(outputs=32000),
    )
    return Problem(
        workload=Workload(
            network=Network(name="small", family="test", stacks=(stack,)),
            sequence_tokens=tokens,
            global_batch=batch,
        ),
        cluster=catalog.cluster_for(gpu, devices),
        engine=catalog.engine(engine),
        assumptions=catalog.assumptions(),
    )


def degrees(problem: Problem, limits: SpaceLimits = EVERYTHING) -> set[tuple[int, int, int, int]]:
    return {(g.dp, g.tp, g.pp, g.cp) for g in groups(problem, limits)}


def group(problem: Problem, **fixed: int) -> Group:
    """The one group of these degrees; those not given are 1, but for dp."""
    given = {"tp": 1, "pp": 1, "cp": 1} | fixed
    (found,) = groups(problem, SpaceLimits(fixed={axis: (value,) for axis, value in given.items()}))
    return found


def test_divisors_rise():
    assert divisors(12) == (1, 2, 3, 4, 6, 12)
    assert divisors(1) == (1,)
    assert divisors(16_384) == tuple(2**power for power in range(15))


def test_degrees_divide_heads_tokens_and_devices():
    found = degrees(question())

    # tp divides 4 key-value heads; cp leaves 1,024 of 2,048 tokens; pp up to 8 layers
    assert {tp for _, tp, _, _ in found} == {1, 2, 4}
    assert {cp for _, _, _, cp in found} == {1, 2}
    assert {pp for _, _, pp, _ in found} == {1, 2, 4, 8}
    assert all(prod(each) == 8 for each in found)


def test_replicas_divide_the_batch():
    # batch 2: at most 2 replicas, and none of 3
    assert {dp for dp, _, _, _ in degrees(question(batch=2))} == {1, 2}


def test_what_the_engine_lacks_is_not_in_its_space():
    assert degrees(question(engine="deepspeed")) == {(8, 1, 1, 1)}


def test_images_are_only_spread_over_replicas():
    problem = question(batch=64)
    images = replace(problem, workload=replace(problem.workload, network=network("resnet-50")))

    assert degrees(images) == {(8, 1, 1, 1)}


def test_encoders_have_no_context_parallelism():
    problem = question(batch=64)
    encoder = replace(problem, workload=replace(problem.workload, network=network("bert-large")))

    assert {cp for _, _, _, cp in degrees(encoder)} == {1}


def test_two_stacks_are_not_cut_into_stages():
    problem = question(batch=64)
    t5 = replace(problem, workload=replace(problem.workload, network=network("t5-large")))

    assert {pp for _, _, pp, _ in degrees(t5)} == {1}


def test_sharding_of_sixteen_replicas_on_two_nodes():
    # DDP, ZeRO-1, FSDP over 16 and HSDP over a node of 8, each with and without resharding
    assert group(question(devices=16), tp=1).modes == (
        (0, 0, 1),
        (1, 0, 16),
        (3, 0, 16),
        (3, 1, 16),
        (3, 0, 8),
        (3, 1, 8),
    )


def test_one_replica_has_nothing_to_shard():
    assert group(question(), tp=4, pp=2).modes == ((0, 0, 1),)


def test_the_engine_reshards_no_weights_in_a_pipeline_and_deals_no_split_parameters():
    found = group(question(devices=16, batch=32), tp=2, pp=2)

    # fully_shard does not reshard in a pipeline, and ZeRO-1 deals whole parameters, which tp has split
    assert found.modes == ((0, 0, 1), (3, 0, 4))


def test_zero_1_goes_with_a_pipeline():
    assert group(question(devices=16, batch=32), tp=1, pp=2).modes == ((0, 0, 1), (1, 0, 8), (3, 0, 8))


def test_micro_batches_are_all_divisors_of_a_replicas_share():
    assert group(question(batch=96)).micro == ((1, 12), (2, 6), (3, 4), (4, 3), (6, 2), (12, 1))


def test_micro_batches_stop_at_64():
    assert max(each for each, _ in group(question(batch=8 * 256)).micro) == 64


def test_one_domain_needs_one_mesh_order():
    assert all(len(each.orders) == 1 for each in groups(question(), EVERYTHING))


def test_orders_on_two_nodes_differ_in_a_stride_that_matters():
    # tp and dp alone: with tp innermost there is one order; all three axes dp, cp, pp give 6
    assert len(group(question(devices=16), tp=4).orders) == 1
    assert len(group(question(devices=64, batch=64, tokens=8192), tp=4, pp=4, cp=2).orders) == 6


def test_every_order_may_be_asked_for():
    problem = question(devices=64, batch=64, tokens=8192)
    fixed = {"tp": (4,), "pp": (4,), "cp": (2,)}

    (found,) = groups(problem, SpaceLimits(fixed=fixed, all_placements=True))

    assert len(found.orders) == 24


def test_sequence_parallelism_goes_with_tensor_parallelism():
    assert group(question()).sequence == (0,)
    assert group(question(), tp=2).sequence == (0, 1)


def test_ulysses_needs_key_value_heads_for_every_rank():
    ring, gather, ulysses = int(ContextKind.RING), int(ContextKind.ALL_GATHER), int(ContextKind.ULYSSES)

    # 4 key-value heads: cp 2 * tp 2 may, cp 2 * tp 4 may not
    assert group(question(), cp=2, tp=2).context == (ring, gather, ulysses)
    assert group(question(), cp=2, tp=4).context == (ring, gather)


def test_schedules_of_eight_layers_in_four_stages():
    found = group(question(batch=16), pp=4)
    interleaved, v = int(Schedule.INTERLEAVED), int(Schedule.ZERO_BUBBLE_V)

    # 8 micro-batches: 8 layers in 4 or 8 stages; 7 micro-batches would not interleave
    assert set(found.pipelines[8]) == {PIPED, (int(Schedule.GPIPE), 1, 0), (interleaved, 2, 0), (v, 2, 0)}


def test_interleaving_needs_micro_batches_that_pp_divides():
    found = group(question(batch=12), pp=4)

    schedules = {m: {schedule for schedule, _, _ in found.pipelines[m]} for _, m in found.micro}
    assert {m for m, kinds in schedules.items() if int(Schedule.INTERLEAVED) in kinds} == {
        m for m in schedules if m % 4 == 0
    }


def test_stages_may_count_embedding_and_head_as_layers():
    # 6 layers + 2 over 4 stages: balanced fits, even does not
    found = group(question(layers=6), pp=4)

    assert {split for schedule, _, split in found.pipelines[8] if schedule == Schedule.ONE_F_ONE_B} == {
        int(Split.BALANCED)
    }


def test_ragged_stages_stand_in_where_nothing_divides():
    # 9 layers over 4 stages: neither 9 nor 11
    found = group(question(layers=9), pp=4)

    assert {split for schedule, _, split in found.pipelines[8] if schedule == Schedule.ONE_F_ONE_B} == {
        int(Split.EVEN)
    }


def expert_degrees(problem: Problem, tp: int) -> set[tuple[int, int]]:
    limits = SpaceLimits(fixed={"tp": (tp,), "pp": (1,), "cp": (1,)})
    return {pair for each in groups(problem, limits) for pair in each.experts}


def test_expert_degrees_divide_experts_and_ranks():
    # 6 experts on 8 ranks: 1 and 2
    assert expert_degrees(question(ATTENTION, EXPERTS), 1) == {(1, 1), (2, 1)}


def test_expert_tensor_parallelism_is_none_or_all():
    # tp 2: experts whole, or split over both ranks
    assert expert_degrees(question(ATTENTION, EXPERTS), 2) == {(1, 1), (1, 2), (2, 1), (2, 2)}


def test_dense_networks_have_no_expert_degrees():
    assert group(question()).experts == ((1, 1),)


@pytest.mark.parametrize(("pp", "modes"), [(1, 3 + 7), (2, 3 + 3), (3, 3 + 2), (8, 3)])
def test_recompute_is_none_selective_full_or_some_of_a_ranks_layers(pp, modes):
    # 8 layers over pp ranks: n - 1 choices of first layers on a rank of n
    assert recompute_choices(question(), pp, EVERYTHING) == modes


def test_an_engine_without_compile_has_one_finish_less():
    assert finish_choices(question(), EVERYTHING) == ((0, 1), (0, 1))
    assert finish_choices(question(engine="megatron-core"), EVERYTHING) == ((0,), (0,))


def on_a_processor() -> Problem:
    """The question on a device that a bench calls a processor."""
    problem = question()
    (nodes,) = problem.cluster.groups
    nodes = replace(nodes, accelerator=replace(nodes.accelerator, architecture="cpu"))
    return replace(problem, cluster=replace(problem.cluster, groups=(nodes,)))


def test_plans_for_processors_are_compiled_only_when_asked_for():
    asked = SpaceLimits(fixed={"compile": (int(Compile.DEFAULT),)})

    assert finish_choices(on_a_processor(), EVERYTHING) == ((0,), (0, 1))
    assert finish_choices(on_a_processor(), asked) == ((1,), (0, 1))
    assert [each.option for each in uncompiled(on_a_processor(), EVERYTHING)] == ["--fix compile=true"]
    assert uncompiled(on_a_processor(), asked) == uncompiled(question(), EVERYTHING) == ()


def test_a_user_may_forbid_compile():
    limits = SpaceLimits(fixed={"compile": (int(Compile.OFF),)})

    assert finish_choices(question(), limits) == ((0,), (0, 1))


def test_a_user_may_fix_recompute():
    limits = SpaceLimits(fixed={"recompute": (int(Recompute.FULL),)})

    assert recompute_choices(question(), 1, limits) == 1


def test_limits_keep_what_is_allowed():
    limits = SpaceLimits(fixed={"tp": (2, 16)})

    assert limits.keep("tp", (1, 2, 4)) == (2,)
    assert limits.keep("pp", (1, 2, 4)) == (1, 2, 4)


@pytest.mark.parametrize("fixed", [{"tp": (3,)}, {"dp": (16,)}, {"zero": (2,)}, {"micro_batch": (5,)}])
def test_what_cannot_be_leaves_an_empty_space(fixed):
    limits = SpaceLimits(fixed=fixed)

    assert groups(question(), limits) == []
    assert size(question(), limits, []) == 0


@pytest.mark.parametrize(
    "problem", [question(), question(ATTENTION, EXPERTS, devices=16, batch=64), question(layers=7)]
)
def test_cells_and_their_expansion_are_the_ways_of_the_group(problem):
    for each in groups(problem, EVERYTHING):
        table = cells(each)
        columns, _ = expand(each, table)
        rows = np.column_stack(list(columns.values()))

        assert len(table) == len(each.experts) * each.micro_ways
        assert len(rows) == each.ways
        assert len(np.unique(rows, axis=0)) == each.ways


@pytest.mark.parametrize(
    "problem",
    [
        question(devices=16, batch=32, tokens=8192),
        question(ATTENTION, EXPERTS, devices=64, batch=64, tokens=4096),
    ],
)
def test_the_degrees_in_a_title_multiply_to_the_devices(problem):
    for each in groups(problem, EVERYTHING):
        columns, _ = expand(each, cells(each)[:1])
        plans = fill(columns, len(columns["dp"]), Plan(precision=Precision.BF16))
        for plan in (plans[row] for row in range(len(plans))):
            layout = re.sub(r"\([^)]*\)", "", describe(plan).split(" · ")[0])
            degrees = map(int, re.findall(r"(?<![-\w])\d+", layout))

            assert prod(degrees) == problem.cluster.devices, describe(plan)


def test_local_steps_leave_only_plans_whose_replicas_could_train_alone():
    limits = SpaceLimits(fixed={"local_steps": (20,)})

    modes = {
        (each.dp * each.cp, *mode) for each in groups(question(devices=16), limits) for mode in each.modes
    }

    assert limits.plain.local_steps == 20
    assert modes
    assert all(shard < replicas and zero in (0, 3) for replicas, zero, _, shard in modes)


def test_size_is_ways_times_variants():
    problem = question()
    every = groups(problem, EVERYTHING)

    # recompute modes * compile or not * loss fused or not
    assert variants(problem, EVERYTHING, 2) == 6 * 2 * 2
    assert size(problem, EVERYTHING, every) == sum(
        each.ways * variants(problem, EVERYTHING, each.pp) for each in every
    )


def test_placements_are_codes_of_orders():
    assert PLACEMENTS[group(question()).orders[0]].startswith("tp")
    assert Plans.__slots__[0] == "dp"
