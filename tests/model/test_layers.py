"""Terms of one layer that the step does not show: experts, dispatch, routing, convolutions, casts."""

from dataclasses import replace

import numpy as np
import pytest

from escala import catalog
from escala.model.engine import ConvolutionLayout
from escala.model.estimate import timed_layers
from escala.model.network import (
    Attention,
    Block,
    Convolution,
    Experts,
    FeedForward,
    Network,
    Stack,
    StackRole,
)
from escala.model.parameters import block_parameters
from escala.model.plan import Compile, Dispatcher, Plan, Plans, Precision
from escala.model.workload import Lora, Method

ENDLESS = 1e30
ATTENTION = Attention(heads=16, kv_heads=4, head_dim=128, value_head_dim=128)


def network(*parts, hidden: int = 2048) -> Network:
    stack = Stack(
        role=StackRole.DECODER, hidden=hidden, blocks=(Block(name="layer", parts=parts),), pattern=(0,)
    )
    return Network(name="one layer", family="test", stacks=(stack,))


EVEN = (1.0,)
SIXTEEN = Experts(experts=16, top_k=2, width=1408, loads=16 * EVEN)
MIXTURE = network(ATTENTION, Experts(experts=8, top_k=2, width=1408, loads=8 * EVEN))
DENSE = network(ATTENTION, FeedForward(width=5632))


def with_chip(problem, **values):
    group = problem.cluster.groups[0]
    other = replace(group, accelerator=replace(group.accelerator, **values))
    return replace(problem, cluster=replace(problem.cluster, groups=(other,)))


def with_time(problem, **values):
    return replace(problem, engine=replace(problem.engine, time=replace(problem.engine.time, **values)))


def assuming(problem, **values):
    return replace(problem, assumptions=replace(problem.assumptions, **values))


def talking(problem):
    """Nothing but links take time."""
    peaks = {name: ENDLESS for name in ("bf16_flop_per_s", "fp16_flop_per_s", "fp32_flop_per_s")}
    return with_chip(problem, memory_bytes_per_s=ENDLESS, **peaks)


def layer(problem, *plans: Plan):
    return timed_layers(problem, Plans.of(plans or (Plan(),)))[0]


def test_terms_are_forward_and_backward(ideal):
    problem = with_time(ideal(MIXTURE, devices=8, batch=8), dispatch_s=1e-4)

    one = layer(problem, Plan(dp=8, ep=8), Plan(tp=4, dp=2, ep=2, micro_batches=4))

    names = "matmul attention elementwise routing tensor_parallel context_parallel expert_parallel dispatch"
    total = sum(getattr(one, f"{name}_s") for name in names.split())
    assert total.tolist() == pytest.approx((one.forward_s + one.backward_s).tolist(), rel=1e-12)


def test_experts_exchange_tokens_twice_each_way(ideal):
    problem = with_time(talking(ideal(MIXTURE, devices=8, batch=8)), expert_exposed=1.0)

    # 1024 * 2 rows of 2048 * 2 bytes; 3/4 of them go to the 3 other ranks at 100 GB/s; four times
    once = 3 / 4 * 1024 * 2 * 2048 * 2 / 100e9
    assert layer(problem, Plan(dp=8, ep=4)).expert_parallel_s[0] == pytest.approx(4 * once, rel=1e-12)


def test_experts_on_two_nodes_wait_for_the_slower_wire(ideal):
    problem = with_time(talking(ideal(MIXTURE, devices=16, batch=16)), expert_exposed=1.0)

    # 8 of 16 ranks inside: 7/16 at 100 GB/s, 8/16 at 10 GB/s
    once = 8 / 16 * 1024 * 2 * 2048 * 2 / 10e9
    many = replace(problem, workload=replace(problem.workload, network=network(ATTENTION, SIXTEEN)))
    assert layer(many, Plan(dp=16, ep=16)).expert_parallel_s[0] == pytest.approx(4 * once, rel=1e-12)


def test_the_gathering_dispatcher_moves_what_every_rank_has(ideal):
    problem = with_time(talking(ideal(MIXTURE, devices=8, batch=8)), expert_exposed=1.0)
    plan = Plan(dp=8, ep=4, dispatcher=Dispatcher.ALL_GATHER)

    # 3/4 of 4 ranks' rows
    once = 3 / 4 * 4 * 1024 * 2 * 2048 * 2 / 100e9
    assert layer(problem, plan).expert_parallel_s[0] == pytest.approx(4 * once, rel=1e-12)


def test_a_fused_dispatcher_sends_a_token_once_to_each_rank(ideal):
    problem = with_time(talking(ideal(MIXTURE, devices=8, batch=8)), expert_exposed=1.0)
    plan = Plan(dp=8, ep=4, dispatcher=Dispatcher.FUSED)

    # one copy of 1024 rows of 2048 * 2 bytes; 2 choices reach 3 (1 - (3/4)^2) of the 3 other ranks
    once = 3 * (1 - (3 / 4) ** 2) * 1024 * 2048 * 2 / 100e9
    assert layer(problem, plan).expert_parallel_s[0] == pytest.approx(4 * once, rel=1e-12)


def test_a_fused_dispatcher_waits_for_one_rank_of_each_node(ideal):
    many = ideal(network(ATTENTION, SIXTEEN), devices=16, batch=16)
    problem = assuming(with_time(talking(many), expert_exposed=1.0), expert_latency_s=1e-3)
    plan = Plan(dp=16, ep=16, dispatcher=Dispatcher.FUSED)

    more = layer(problem, plan).expert_parallel_s[0]
    less = layer(assuming(problem, expert_latency_s=0.0), plan).expert_parallel_s[0]

    # 2 nodes * 1 ms, four exchanges
    assert more - less == pytest.approx(4 * 2e-3, rel=1e-9)


def test_a_host_that_drives_the_network_pays_for_each_token(ideal):
    many = ideal(network(ATTENTION, SIXTEEN), devices=16, batch=16)
    problem = with_time(talking(many), expert_exposed=1.0)
    inside, outside = problem.cluster.links
    slow = replace(problem.cluster, links=(inside, replace(outside, message_s=1e-5)))
    plan = Plan(dp=16, ep=16, dispatcher=Dispatcher.FUSED)

    # 1024 tokens, 2 choices: (2 - 1) (1 - (1/2)^2) copies to the other node, 10 us each; four exchanges
    exchanged = layer(replace(problem, cluster=slow), plan).expert_parallel_s[0]
    assert exchanged == pytest.approx(4 * 0.75 * 1024 * 1e-5, rel=1e-12)


def test_each_rank_beyond_the_node_adds_a_fixed_time(ideal):
    many = ideal(network(ATTENTION, SIXTEEN), devices=16, batch=16)
    problem = assuming(with_time(talking(many), expert_exposed=1.0), expert_latency_s=1e-3)

    more = layer(problem, Plan(dp=16, ep=16)).expert_parallel_s[0]
    less = layer(assuming(problem, expert_latency_s=0.0), Plan(dp=16, ep=16)).expert_parallel_s[0]

    # 16 ranks * 1 ms, four exchanges
    assert more - less == pytest.approx(4 * 16e-3, rel=1e-9)


def test_routing_passes_over_routed_tokens(ideal):
    problem = assuming(ideal(MIXTURE), routing_passes=10.0)

    # 10 passes over 1024 * 2 rows of 2048 * 2 bytes at 1 TB/s
    assert layer(problem).routing_s[0] == pytest.approx(10 * 2048 * 2048 * 2 / 1e12, rel=1e-12)


def test_biases_of_experts_pass_over_routed_tokens_once_more(ideal):
    biased = network(ATTENTION, Experts(experts=8, top_k=2, width=1408, has_bias=True, loads=8 * EVEN))
    known = {"routing_passes": 10.0, "expert_bias_bytes": 60.0}

    more = layer(assuming(ideal(biased), **known)).routing_s[0]
    less = layer(assuming(ideal(MIXTURE), **known)).routing_s[0]

    # 60 bytes for each of 1024 * 2 rows of 2048 at 1 TB/s
    assert more - less == pytest.approx(60 * 2048 * 2048 / 1e12, rel=1e-9)


def test_dense_layers_route_nothing(ideal):
    one = layer(ideal(DENSE))

    assert one.routing_s[0] == 0.0
    assert one.expert_parallel_s[0] == 0.0


@pytest.mark.parametrize(
    ("of", "plan", "known", "ratio"),
    [
        (DENSE, Plan(), {}, 1.0),
        (MIXTURE, Plan(), {"moe_dispatch_ratio": 4.0, "expert_dispatch_ratio": 0.25}, 4.0 + 0.25 * 8),
        (MIXTURE, Plan(dp=4, ep=4), {"moe_dispatch_ratio": 4.0, "expert_dispatch_ratio": 0.25}, 4.5),
        (DENSE, Plan(compile=Compile.DEFAULT), {"compiled_dispatch_ratio": 0.5}, 0.5),
        (DENSE, Plan(precision=Precision.FP8_TENSORWISE), {"dispatch_scaled_ratio": 1.3}, 1.3),
        (DENSE, Plan(tp=4), {"dispatch_tensor_ratio": 0.1}, 1.2),
    ],
)
def test_dispatch_by_kind_of_layer(ideal, of, plan, known, ratio):
    ours = {name for name in known if hasattr(catalog.assumptions(), name)}
    problem = with_time(
        talking(ideal(of, devices=plan.devices)),
        dispatch_s=1e-3,
        dispatch_backward_ratio=2.0,
        **{name: value for name, value in known.items() if name not in ours},
    )
    problem = assuming(problem, **{name: known[name] for name in ours})
    quick = replace(problem, cluster=replace(problem.cluster, links=endless(problem)))

    one = layer(with_chip(quick, fp8_flop_per_s=ENDLESS), plan)

    # 1 ms forward and 2 ms backward, times what this kind costs more
    assert one.forward_s[0] == pytest.approx(1e-3 * ratio, rel=1e-9)
    assert one.backward_s[0] == pytest.approx(2e-3 * ratio, rel=1e-9)


def endless(problem):
    return tuple(replace(link, bytes_per_s=ENDLESS) for link in problem.cluster.links)


def test_fp8_casts_add_passes(ideal):
    problem = with_time(ideal(DENSE), elementwise_passes=10.0)

    plain, scaled = layer(problem, Plan(), Plan(precision=Precision.FP8_TENSORWISE)).elementwise_s

    # 8 more passes on 10
    assert scaled / plain == pytest.approx(1.8, rel=1e-12)


def test_compile_saves_passes(ideal):
    problem = with_time(ideal(DENSE), elementwise_passes=10.0, compiled_passes_ratio=0.5)

    plain, compiled = layer(problem, Plan(), Plan(compile=Compile.DEFAULT)).elementwise_s

    assert compiled == pytest.approx(plain / 2, rel=1e-12)


def test_a_layer_of_convolutions_has_their_kernels_and_passes(ideal):
    part = Convolution(inputs=64, outputs=128, kernel=3, output_pixels=3136)
    known = assuming(ideal(network(part, hidden=128)), convolution_passes=20.0)
    problem = with_time(known, convolution_layout=ConvolutionLayout.CHANNELS_LAST)
    one = layer(problem, Plan(micro_batch=4))

    # 20 passes over 4 images * 3136 pixels * 128 channels of 2 bytes at 1 TB/s; three kernels of 2 * ... FLOP
    assert one.elementwise_s[0] == pytest.approx(20 * 4 * 3136 * 128 * 2 / 1e12, rel=1e-12)
    assert one.matmul_s[0] == pytest.approx(3 * 2 * 4 * 3136 * 9 * 64 * 128 / 1e14, rel=1e-12)


def test_ulysses_sends_heads_and_the_ring_sends_keys(ideal):
    problem = with_time(talking(ideal(DENSE, devices=4)), context_exposed=1.0)
    local = {"cp": 4, "zero": 3, "reshard": True, "shard": 4}

    ring, gather, ulysses = layer(
        problem, *(Plan(**local, cp_kind=kind) for kind in (0, 1, 2))
    ).context_parallel_s

    # ring: 3/4 of 1024 * 1024 key-value elements; Ulysses: 3/4 of 256 * (4096 + 1024) elements; 3 times
    assert ring == gather == pytest.approx(3 * 3 / 4 * 1024 * 1024 * 2 / 100e9, rel=1e-12)
    assert ulysses == pytest.approx(3 * 3 / 4 * 256 * 5120 * 2 / 100e9, rel=1e-12)


def test_equal_rows_are_computed_once_and_spread(ideal):
    problem = ideal(DENSE, devices=8, batch=16)
    plans = [Plan(dp=8, micro_batch=2), Plan(dp=4, tp=2, micro_batch=4), Plan(dp=8, micro_batch=2)]

    one = layer(problem, *plans)

    assert one.forward_s[0] == one.forward_s[2] != one.forward_s[1]
    assert np.isfinite(one.forward_s).all()


def test_four_bit_weights_are_made_whole_once_each_way(ideal):
    # 10 bytes a parameter forward and backward at 1 TB/s; experts of one rank of 4
    plan = Plan(dp=4, ep=4)
    problem = assuming(
        with_time(ideal(MIXTURE, devices=4), elementwise_passes=0.0), dequantize_pass_bytes=10.0
    )
    frozen = replace(problem.workload, method=Method.QLORA, lora=Lora())
    weights = block_parameters(MIXTURE.main.blocks[0], MIXTURE.main.hidden)

    seconds = layer(replace(problem, workload=frozen), plan).elementwise_s[0]
    assert seconds == pytest.approx(20 * (weights.column_row + weights.expert / 4) / 1e12, rel=1e-9)
