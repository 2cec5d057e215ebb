"""The busiest expert rank: order statistics by hand, limits, capacity, what it adds to time and memory."""

from dataclasses import replace
from math import pi, sqrt

import numpy as np
import pytest

from escala.catalog import assumptions, cluster_for, engine
from escala.catalog.networks import network
from escala.model.estimate import estimate
from escala.model.loads import (
    bad_draw_ratio,
    bad_largest,
    dropped_share,
    expected_largest,
    load_ratio,
    rank_deviation,
)
from escala.model.matmuls import Shape
from escala.model.network import Experts, Network
from escala.model.plan import Plan, Plans, Recompute
from escala.model.problem import Problem
from escala.model.workload import Workload

EXPERTS = Experts(experts=64, top_k=8, width=1024)


def problem_of(name: str = "mixtral-8x7b", devices: int = 8, **known: float) -> Problem:
    return Problem(
        workload=Workload(network=network(name), sequence_tokens=4096, global_batch=devices),
        cluster=cluster_for("h100-sxm", devices),
        engine=engine("megatron-core"),
        assumptions=replace(assumptions(), **known),
    )


def ratio(
    part: Experts, ep: int, *, tokens: int = 4096, layers: float = 1.0, of=load_ratio, **known: float
) -> float:
    plans = Plans.of(Plan(dp=64, ep=ep))
    return float(of(problem_of(**known), plans, part, Shape.of(plans, tokens), layers)[0])


def with_experts(given: Network, **changes: object) -> Network:
    (stack,) = given.stacks
    (block,) = stack.blocks
    attention, experts = block.parts
    assert isinstance(experts, Experts)
    other = replace(block, parts=(attention, replace(experts, **changes)))
    return replace(given, stacks=(replace(stack, blocks=(other,)),))


def test_the_largest_of_two_normals_is_one_over_root_pi():
    assert expected_largest(2) == pytest.approx(1.0 / sqrt(pi), rel=1e-6)
    assert expected_largest(1) == 0.0


def test_the_largest_of_three_normals_is_one_and_a_half_over_root_pi():
    assert expected_largest(3) == pytest.approx(1.5 / sqrt(pi), rel=1e-6)


def test_the_largest_agrees_with_draws():
    drawn = np.random.default_rng(1).standard_normal((40_000, 32)).max(axis=1)

    # the mean of 40,000 maxima with deviation 0.5 is known to 0.0025
    assert expected_largest(32) == pytest.approx(drawn.mean(), abs=0.01)
    assert bad_largest(32) == pytest.approx(np.quantile(drawn, 0.9), abs=0.02)


def test_the_load_agrees_with_tokens_that_are_drawn():
    # 64 experts of equal chance on 8 ranks, 4096 * 8 choices a rank: multinomial, without skew
    counts = np.random.default_rng(2).multinomial(8 * 4096 * 8, np.full(8, 1 / 8), size=4000)

    drawn = (counts.max(axis=1) / counts.mean(axis=1)).mean()
    assert ratio(EXPERTS, 8, expert_skew=0.0) - 1.0 == pytest.approx(drawn - 1.0, rel=0.03)


def test_skew_by_hand():
    # 64 experts on 8 ranks: 8 each, 0.2 / sqrt(8); 4,096 * 8 choices
    plans = Plans.of(Plan(dp=64, ep=8))
    deviation = rank_deviation(plans, EXPERTS, Shape.of(plans, 4096), 0.2)[0]

    assert deviation == pytest.approx(sqrt(0.04 / 8 + 1 / 32768), rel=1e-12)
    assert ratio(EXPERTS, 8, expert_skew=0.2) == pytest.approx(1 + expected_largest(8) * deviation, rel=1e-12)


def test_published_imbalance_of_64_single_experts_comes_back():
    # the busiest of 64 experts lies 0.52 above the mean; a validation set leaves no sampling noise
    assert ratio(EXPERTS, 64, tokens=10**9) == pytest.approx(1.52, abs=0.01)


def test_one_rank_has_every_token():
    assert ratio(EXPERTS, 1) == 1.0
    assert ratio(EXPERTS, 1, of=bad_draw_ratio) == 1.0


def test_more_layers_average_out():
    assert ratio(EXPERTS, 8, layers=16.0) - 1.0 == pytest.approx((ratio(EXPERTS, 8) - 1.0) / 4, rel=1e-12)


def test_a_measured_distribution_counts_as_it_is():
    # eight experts on two ranks: 1 + 1 + 1 + 1 against 1 + 1 + 1 + 3; the mean is 5
    part = Experts(experts=8, top_k=2, width=1, loads=(1.0,) * 7 + (3.0,))

    assert ratio(part, 2) == pytest.approx(6 / 5, rel=1e-12)
    assert ratio(part, 8) == pytest.approx(3 / (10 / 8), rel=1e-12)


def test_padded_buffers_hold_their_capacity_whatever_is_routed():
    padded = replace(EXPERTS, capacity_factor=1.25)

    assert (ratio(padded, 1), ratio(padded, 64)) == (1.25, 1.25)


def test_capacity_without_padding_cuts_the_busiest_off():
    cut = replace(EXPERTS, capacity_factor=1.01, is_padded=False)

    assert ratio(cut, 64) == 1.01
    assert ratio(cut, 1) == 1.0


def test_a_capacity_at_the_mean_drops_two_fifths_of_a_deviation():
    # E max(0, X - 1) of a normal with deviation s around 1: s / sqrt(2 pi); 0.2 and no noise
    dropping = replace(EXPERTS, capacity_factor=1.0)

    assert dropped_share(dropping, 0.2, 1e12) == pytest.approx(0.2 / sqrt(2 * pi), rel=1e-6)
    assert dropped_share(replace(dropping, capacity_factor=3.0), 0.2, 1e12) < 1e-20
    assert dropped_share(EXPERTS, 0.2, 1e12) == 0.0


def test_skew_costs_seconds_and_memory_and_widens_the_interval():
    plans = Plans.of(Plan(dp=8, ep=8, zero=1, shard=8))
    even = estimate(problem_of(expert_skew=0.0, expert_skew_high=0.0), plans)
    skewed = estimate(problem_of(), plans)

    assert skewed.step_s[0] > even.step_s[0]
    assert skewed.memory.allocated_bytes[0] > even.memory.allocated_bytes[0]
    assert skewed.memory.routing_bytes[0] > even.memory.routing_bytes[0] > 0.0


def test_dense_networks_have_no_bad_draw():
    plans = Plans.of(Plan(dp=8, zero=3, reshard=True, shard=8))

    assert estimate(problem_of("llama-3.1-8b"), plans).memory.routing_bytes[0] == 0.0


def test_recompute_leaves_the_bad_draw_of_one_layer():
    plans = Plans.of(
        [Plan(dp=8, ep=8, zero=1, shard=8, recompute=mode) for mode in (Recompute.NONE, Recompute.FULL)]
    )

    whole, one = estimate(problem_of(), plans).memory.routing_bytes
    assert 0.0 < one < whole


def test_measured_loads_of_a_network_move_its_step():
    problem = problem_of()
    busy = with_experts(problem.workload.network, loads=(1.0,) * 7 + (2.0,))
    other = replace(problem, workload=replace(problem.workload, network=busy))
    plans = Plans.of(Plan(dp=8, ep=8, zero=1, shard=8))

    assert estimate(other, plans).step_s[0] > estimate(problem, plans).step_s[0]


def test_loads_that_ranks_cannot_share_change_nothing():
    # such a plan is rejected, but it is still estimated to say so
    assert ratio(Experts(experts=8, top_k=2, width=1, loads=(1.0,) * 7 + (3.0,)), 16) == 1.0
