"""Experts with tensor parallelism, and the optimizer's own peak: duplicates, recompute, TED's pair."""

from dataclasses import replace

import numpy as np
import pytest

from escala.catalog import assumptions, cluster_for, engine
from escala.model.estimate import estimate, timed_layers, work_of
from escala.model.memory import Verdict, out_of_memory_probability
from escala.model.network import (
    Attention,
    Block,
    Embedding,
    Experts,
    FeedForward,
    Head,
    Network,
    Stack,
    StackRole,
)
from escala.model.plan import Plan, Plans, Precision, Recompute
from escala.model.problem import Problem
from escala.model.traffic import layer_wires
from escala.model.workload import Workload

GIB = 2.0**30
TED = Plan(dp=32, zero=2, shard=32, ep=16, recompute=Recompute.FULL, precision=Precision.FP16)


def gpt_with_experts(layers: int, hidden: int, experts: int, top_k: int = 1) -> Network:
    """Every second layer has experts as wide as the feed-forward, biases everywhere, a tied head."""
    heads, width = hidden // 128, 4 * hidden
    attention = Attention(
        heads=heads, kv_heads=heads, head_dim=128, value_head_dim=128, has_qkv_bias=True, has_output_bias=True
    )
    inner = (
        FeedForward(width=width, is_gated=False, has_bias=True),
        Experts(experts=experts, top_k=top_k, width=width, is_gated=False, has_bias=True),
    )
    blocks = tuple(Block(name=each.name, parts=(attention, each), norm_weights=2) for each in inner)
    stack = Stack(
        role=StackRole.DECODER,
        hidden=hidden,
        blocks=blocks,
        pattern=tuple(layer % 2 for layer in range(layers)),
        embedding=Embedding(vocab=50304, positions=2048),
        head=Head(outputs=50304, is_tied=True),
        final_norm_weights=2,
    )
    return Network(name="gpt with experts", family="test", stacks=(stack,))


def problem_of(software: str, devices: int = 32, layers: int = 32, hidden: int = 4096) -> Problem:
    return Problem(
        workload=Workload(
            network=gpt_with_experts(layers, hidden, 16), sequence_tokens=2048, global_batch=devices
        ),
        cluster=cluster_for("a100-sxm-40gb", devices),
        engine=engine(software),
        assumptions=assumptions(),
    )


def with_messages(problem: Problem, **changes: bool) -> Problem:
    """The problem with other habits of sending."""
    own = replace(problem.messages, **changes)
    return replace(problem, engine=replace(problem.engine, messages=(("any", own),)))


def test_the_optimizer_step_of_ted_by_hand():
    # experts on a rank: 16 layers * (8 h^2 + 5 h), an expert each, shared by 2 ranks; of the rest 1 / 32
    result = estimate(problem_of("deepspeed-moe"), Plans.of(TED))

    expert = 16 * (8 * 4096**2 + 5 * 4096) / 2
    dense = 4_295_622_656 + 10_166_272 + 206_045_184
    # 4 bytes of fp32 gradients and the flat 16-bit copy that they are made of
    assert result.memory.kinds.step_bytes[0] == pytest.approx(6 * (expert + dense / 32), rel=1e-12)


def test_ted_fits_with_a_tiled_step_and_peaks_at_31_3_gb():
    """6.7B base, 16 experts, 32 x A100-40GB: 31.3 GB. Source: DeepSpeed pull request 2079."""
    result = estimate(problem_of("deepspeed-ted"), Plans.of(TED))

    assert result.memory.verdict[0] == Verdict.FITS
    assert result.memory.allocated_bytes[0] / GIB == pytest.approx(31.3, rel=0.03)


def test_ted_does_not_fit_with_the_whole_step():
    """The same run ended out of memory before. Source: DeepSpeed pull request 2079."""
    problem = problem_of("deepspeed-moe")
    memory = estimate(problem, Plans.of(TED)).memory

    assert memory.phases.step_bytes[0] == memory.allocated_bytes[0]  # the step is the peak
    assert memory.device_bytes[0] > problem.accelerator.memory_bytes
    assert memory.verdict[0] == Verdict.RISKY  # the verdict leaves a share for smaller buffers
    assert out_of_memory_probability(problem, memory.needed_bytes)[0] > 0.4


def expert_layer(problem: Problem, plan: Plan):
    return timed_layers(problem, Plans.of(plan))[1]


def test_duplicates_travel_tp_times_unless_they_are_dropped():
    problem = problem_of("deepspeed-ted")
    plan = Plan(dp=8, tp=4, ep=8, etp=4, zero=2, shard=8, precision=Precision.FP16)
    kept = with_messages(problem, drops_duplicates=False)

    sent, more = (work_of(each, Plans.of(plan)).sent.expert_bytes[0] for each in (problem, kept))
    assert more == pytest.approx(4 * sent, rel=1e-12)
    assert expert_layer(kept, plan).expert_parallel_s[0] > expert_layer(problem, plan).expert_parallel_s[0]


def test_dropped_duplicates_are_gathered_behind_the_exchange():
    problem = problem_of("deepspeed-ted")
    plan = Plan(dp=8, tp=4, ep=8, etp=4, zero=2, shard=8, precision=Precision.FP16)
    silent = with_messages(problem, drops_duplicates=False)
    link = layer_wires(problem, Plans.of(plan)).tensor

    # SP leaves nothing to drop: what it does not pay is the gather of the arrived tokens, twice each way
    split = replace(plan, sp=True)
    exchanged = expert_layer(problem, split).expert_parallel_s[0]
    routed = 2048.0 * estimate_load(problem, plan)
    gathered = 4 * link.gather_s(np.array([routed * 4096 * 2]))[0]
    assert expert_layer(problem, plan).expert_parallel_s[0] == pytest.approx(exchanged + gathered, rel=1e-9)
    assert expert_layer(silent, split).expert_parallel_s[0] == exchanged


def estimate_load(problem: Problem, plan: Plan) -> float:
    """What the busiest rank gets over the mean."""
    from escala.model.loads import load_ratio
    from escala.model.matmuls import Shape

    plans = Plans.of(plan)
    experts = problem.workload.network.main.blocks[1].parts[1]
    assert isinstance(experts, Experts)
    return float(load_ratio(problem, plans, experts, Shape.of(plans, 2048))[0])


def test_checkpoints_that_keep_what_arrived_recompute_without_messages():
    problem = problem_of("deepspeed-ted")
    plan = Plan(dp=8, tp=4, ep=8, etp=4, zero=2, shard=8, recompute=Recompute.FULL, precision=Precision.FP16)
    keeps = with_messages(problem, repeats_messages=False)
    before, after = (estimate(each, Plans.of(plan)) for each in (problem, keeps))

    assert after.time.recompute_s[0] < before.time.recompute_s[0]
    assert after.memory.kinds.activations_bytes[0] > before.memory.kinds.activations_bytes[0]
    assert work_of(keeps, Plans.of(plan)).sent.expert_bytes[0] == pytest.approx(
        work_of(problem, Plans.of(plan)).sent.expert_bytes[0] * 4 / 6, rel=1e-12
    )


def test_engines_without_experts_in_tiles_refuse_what_they_lack():
    assert {"tp", "etp", "pp", "zero-3"} <= set(engine("deepspeed-moe").lacks)
    assert not {"tp", "etp"} & set(engine("ted").lacks)


@pytest.mark.parametrize(("device", "domain"), [("h100-sxm", 8), ("gb200", 64)])
def test_only_a_group_that_leaves_the_fast_domain_pays_a_fixed_time(device: str, domain: int):
    """Of 128 devices a rack of 72 takes 64; a node of H100 has 8."""
    network, where = gpt_with_experts(2, 4096, 128), cluster_for(device, 128)
    given = problem_of("megatron-core")
    problem = replace(given, cluster=where, workload=replace(given.workload, network=network))
    slower = replace(problem, assumptions=replace(problem.assumptions, expert_latency_s=1.0))

    for ep in (domain, 2 * domain):
        plan = Plan(dp=128, ep=ep, zero=1, shard=128)
        before, after = (expert_layer(each, plan).expert_parallel_s[0] for each in (problem, slower))
        assert (before == after) == (ep == domain)
