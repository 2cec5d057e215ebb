"""A processor whose operations were timed: every formula by hand, and no trace of it on other devices."""

from dataclasses import replace

import numpy as np
import pytest

from escala.model.efficiency import core_s, matmul_s, pass_s
from escala.model.estimate import time_of
from escala.model.matmuls import Matmul, Shape, layer_work
from escala.model.network import Block, Convolution, Experts, Network, Stack, StackRole
from escala.model.operations import (
    Operations,
    with_twice_the_arithmetic,
    with_twice_the_memory_speed,
    worked_keys,
)
from escala.model.parameters import network_parameters
from escala.model.plan import Plan, Plans, Precision
from escala.planning.sensitivity import sensitivity

KNOWN = Operations(
    launch_s=1e-6,
    update_s=2e-9,
    pass_bytes_per_s=1e10,
    attention_flop_per_s=1e11,
    attention_backward_flop_per_s=5e10,
    convolution_s_per_flop=5e-12,
    convolution_s_per_byte=1e-10,
    convolution_backward_s_per_flop=1e-11,
    convolution_backward_s_per_byte=2e-10,
    pooled_s=1e-8,
)
FP32 = Plan(precision=Precision.FP32)
ONE, FOUR = np.ones(1), np.full(1, 4.0)


@pytest.fixture
def problem(ideal, llama):
    return ideal(llama())


def timed(problem, known: Operations | None = KNOWN):
    group = problem.cluster.groups[0]
    other = replace(group, accelerator=replace(group.accelerator, operations=known))
    return replace(problem, cluster=replace(problem.cluster, groups=(other,)))


def matmul(rows: float, count: float = 1.0, *, is_grouped: bool = False) -> Matmul:
    sides = {"rows": ONE * rows, "inner": ONE * 1000, "outer": ONE * 1000, "count": ONE * count}
    return Matmul(**sides, is_grouped=is_grouped)


def test_a_product_computes_fetches_its_matrices_and_is_launched(problem):
    # 2 * 1000^3 FLOP at 200 GFLOP/s, 10 ms; three matrices of 4 MB at 1 TB/s, 12 us; a launch
    found = matmul_s(timed(problem), matmul(1000), ONE * 2e11, FOUR)

    assert found[0] == pytest.approx(10e-3 + 12e-6 + 1e-6, rel=1e-12)


def test_a_product_of_one_row_reads_its_weights(problem):
    # (1000 + 1000 * 1000 + 1000) * 4 bytes at 1 TB/s; 2 MFLOP in 10 us; a launch
    found = matmul_s(timed(problem), matmul(1), ONE * 2e11, FOUR)

    assert found[0] == pytest.approx(1_002_000 * 4 / 1e12 + 10e-6 + 1e-6, rel=1e-12)


def test_each_expert_is_a_product_of_its_own(problem):
    eight = matmul_s(timed(problem), matmul(1000, 8, is_grouped=True), ONE * 2e11, FOUR)

    assert eight[0] == pytest.approx(8 * (10e-3 + 12e-6 + 1e-6), rel=1e-12)


def test_attention_takes_every_key_of_a_block_also_when_causal(problem):
    assert worked_keys(256, is_causal=True) == 256  # one block of 512
    assert worked_keys(2048, is_causal=True) == (2048 + 512) / 2
    assert worked_keys(2048, is_causal=False) == 2048

    stack = problem.workload.network.main
    plans = Plans.of(FP32)
    (core,) = layer_work(stack.blocks[0], stack, Shape.of(plans, 256)).cores
    forward_s, backward_s = core_s(timed(problem), core, ONE, FOUR)

    # queries * heads * 256 keys * 2 * width at 100 GFLOP/s; 2.5 times that at 50
    flop = 2 * 256 * float(core.heads[0]) * 256 * core.width
    assert forward_s[0] == pytest.approx(flop / 1e11, rel=1e-12)
    assert backward_s[0] == pytest.approx(2.5 * flop / 5e10, rel=1e-12)


def test_passes_run_at_the_speed_of_passes(problem):
    assert pass_s(timed(problem), ONE * 1e10)[0] == pytest.approx(1.0, rel=1e-12)


def test_a_parameter_is_updated_in_the_timed_seconds(problem):
    found = time_of(timed(problem), Plans.of(FP32))

    assert found.optimizer_s[0] == pytest.approx(2e-9 * network_parameters(problem.workload.network).total)


def test_frameworks_overheads_of_gpus_are_not_charged(problem):
    assert time_of(timed(problem), Plans.of(FP32)).overhead_s[0] == 0.0


def test_launches_add_to_the_work_of_a_layer(problem):
    quick, slow = (timed(problem, replace(KNOWN, launch_s=launch_s)) for launch_s in (1e-6, 2e-6))
    found, twice = (time_of(each, Plans.of(FP32)) for each in (quick, slow))

    assert found.dispatch_s[0] > 0
    assert twice.dispatch_s[0] == pytest.approx(2 * found.dispatch_s[0], rel=1e-12)


def test_a_convolution_runs_backward_at_the_speed_that_was_timed_backward(ideal):
    part = Convolution(inputs=64, outputs=64, kernel=3, output_pixels=400)
    block = Block(name="layer", parts=(part,), norms=0)
    stack = Stack(role=StackRole.CONVOLUTION, hidden=64, blocks=(block,), pattern=(0,), tokens=400)
    problem = timed(ideal(Network(name="images", family="test", stacks=(stack,))))
    found = time_of(problem, Plans.of(replace(FP32, micro_batch=2)))

    # 5 ps a FLOP forward, 10 ps of twice as many backward; bytes once at 10 GB/s, twice at 5; three launches
    flop = 2 * 800 * 64 * 64 * 9
    moved_bytes = (800 * 128 + 64 * 9 * 64) * 4
    expected_s = flop / 2e11 + 2 * flop / 1e11 + moved_bytes / 1e10 + 2 * moved_bytes / 5e9 + 3e-6
    assert found.matmul_s[0] == pytest.approx(expected_s, rel=1e-12)


def test_a_pooled_output_takes_the_timed_seconds_on_a_processor_only(ideal):
    plain = Convolution(inputs=3, outputs=64, kernel=7, output_pixels=1600)

    def passes_s(part: Convolution, known: Operations | None) -> float:
        block = Block(name="stem", parts=(part,), norms=0)
        stack = Stack(role=StackRole.CONVOLUTION, hidden=64, blocks=(block,), pattern=(0,), tokens=400)
        problem = timed(ideal(Network(name="images", family="test", stacks=(stack,))), known)
        return float(time_of(problem, Plans.of(replace(FP32, micro_batch=2))).elementwise_s[0])

    # 2 images * 400 pixels * 64 channels * 10 ns
    pooled = replace(plain, pooled_pixels=400)
    assert passes_s(pooled, KNOWN) - passes_s(plain, KNOWN) == pytest.approx(2 * 400 * 64 * 1e-8, rel=1e-9)
    assert passes_s(pooled, None) == passes_s(plain, None)


def test_twice_the_hardware_halves_the_seconds_of_convolutions():
    quick, wide = with_twice_the_arithmetic(KNOWN), with_twice_the_memory_speed(KNOWN)

    assert quick is not None
    assert wide is not None
    assert (quick.convolution_s_per_flop, quick.convolution_s_per_byte) == (2.5e-12, 1e-10)
    assert (wide.convolution_s_per_flop, wide.convolution_s_per_byte) == (5e-12, 5e-11)
    assert quick.convolution_backward_s_per_flop == 5e-12
    assert wide.convolution_backward_s_per_byte == 1e-10


def test_twice_the_hardware_is_twice_as_fast(problem):
    assert with_twice_the_arithmetic(None) is None
    assert with_twice_the_memory_speed(None) is None
    faster = {each.title: each.step_ratio for each in sensitivity(timed(problem), FP32)}

    assert faster["2 × peak FLOP/s"] < 1.0
    assert faster["2 × memory bandwidth"] < 1.0


def test_an_activation_of_several_operations_moves_more_on_a_processor_only(ideal, llama):
    plain = llama(is_gated=False, width=8192)
    (block,) = plain.main.blocks
    parts = (block.parts[0], replace(block.parts[1], activation_passes=41.0))
    several = replace(plain, stacks=(replace(plain.main, blocks=(replace(block, parts=parts),)),))
    plans = Plans.of(FP32)

    # 41 passes * tokens * width * 4 bytes * 4 layers at 10 GB/s
    tokens = ideal(plain).workload.sequence_tokens
    found = [time_of(timed(ideal(each)), plans).elementwise_s[0] for each in (plain, several)]
    assert found[1] - found[0] == pytest.approx(41 * tokens * 8192 * 4 * 4 / 1e10, rel=1e-9)
    assert time_of(ideal(plain), plans).step_s[0] == time_of(ideal(several), plans).step_s[0]


def test_an_rms_norm_of_several_operations_moves_more_than_a_layer_norm(ideal, llama):
    rms, layer = (timed(ideal(llama(norm_weights=count))) for count in (1, 2))
    plans = Plans.of(FP32)

    # 19 passes * 2 norms * tokens * hidden * 4 bytes * 4 layers at 10 GB/s
    tokens = rms.workload.sequence_tokens
    found = [time_of(each, plans).elementwise_s[0] for each in (layer, rms)]
    assert found[1] - found[0] == pytest.approx(19 * 2 * tokens * 2048 * 4 * 4 / 1e10, rel=1e-9)


def test_routed_tokens_move_in_their_own_format(ideal, llama):
    dense = llama()
    (block,) = dense.main.blocks
    experts = Experts(experts=4, top_k=2, width=1408)
    sparse = replace(dense, stacks=(replace(dense.main, blocks=(replace(block, parts=(experts,)),)),))
    problem = timed(ideal(sparse))

    # 12 passes * 2 of 4 experts * tokens * hidden * 4 bytes * 4 layers at 10 GB/s
    tokens = problem.workload.sequence_tokens
    expected_s = problem.assumptions.routing_passes * 2 * tokens * 2048 * 4 * 4 / 1e10
    assert time_of(problem, Plans.of(FP32)).routing_s[0] == pytest.approx(expected_s, rel=1e-12)
