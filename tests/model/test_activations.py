"""Bytes kept per token and layer, against traces of real modules (torch 2.13, transformers 5.24)."""

from dataclasses import replace

import numpy as np
import pytest

from escala.model.activations import autocasts, is_flash, kept
from escala.model.engine import AttentionKernel
from escala.model.network import Attention, Block, Experts, FeedForward, Network, Stack, StackRole
from escala.model.plan import Compile, Plan, Plans, Precision
from escala.model.workload import Lora, Method

TOKENS = 1024
WHOLE = Plan()
H, QD, KV, F, HEADS, KV_HEADS = 2048, 2048, 512, 5632, 16, 4
# GPT-like: all widths from h
GPT_H, GPT_HEADS = 1024, 16


def layer_kept(problem, plan: Plan = WHOLE):
    stack = problem.workload.network.stacks[0]
    return kept(problem, Plans.of(plan), stack, stack.blocks[0])


def per_token(problem, plan: Plan = WHOLE) -> float:
    return float(layer_kept(problem, plan).whole_bytes[0] / TOKENS)


def with_kernel(problem, kernel: AttentionKernel):
    time = replace(problem.engine.time, attention_kernel=kernel)
    return replace(problem, engine=replace(problem.engine, time=time))


@pytest.fixture
def gpt(llama):
    """LayerNorm, plain feed-forward of 4 h, as many key-value heads as heads."""
    return llama(
        hidden=GPT_H,
        heads=GPT_HEADS,
        kv_heads=GPT_HEADS,
        head_dim=64,
        width=4 * GPT_H,
        is_gated=False,
        norm_weights=2,
    )


def test_hf_llama_in_pure_bf16_keeps_88136_bytes_a_token(real, llama):
    # two RMSNorms: fp32 copy 4h, normed 2h, output 2h each; q and out 2qd; k and v 2kv; 4 tensors of 2f;
    # log-sum-exp 4 H; rsqrt 4 B each
    assert 16 * H + 4 * QD + 4 * KV + 8 * F + 4 * HEADS + 8 == 88_136
    assert per_token(real(llama(), "hf-bf16")) == 88_136


@pytest.mark.parametrize(
    ("h", "heads", "kv_heads", "d", "f"),
    [(1024, 16, 16, 64, 2816), (4096, 32, 8, 128, 14336), (896, 14, 2, 64, 4864), (2560, 32, 8, 128, 9728)],
)
def test_hf_llama_on_other_shapes(real, llama, h, heads, kv_heads, d, f):
    network = llama(hidden=h, heads=heads, kv_heads=kv_heads, head_dim=d, width=f)

    bytes_per_token = 16 * h + 4 * heads * d + 4 * kv_heads * d + 8 * f + 4 * heads + 8
    assert per_token(real(network, "hf-bf16")) == bytes_per_token


def test_a_frozen_base_keeps_what_gradients_must_pass_through(real, llama):
    # frozen maps keep no input, frozen norms no product
    problem = real(llama(), "hf-bf16", lora=Lora(targets=()))

    assert per_token(problem) == 8 * H + 4 * QD + 4 * KV + 6 * F + 4 * HEADS + 8


def test_adapters_keep_their_inputs_and_their_inner_width(real, llama):
    # one input for q, k, v, one for gate and up, the gated product for down; 7 maps of rank 16
    base = 8 * H + 4 * QD + 4 * KV + 6 * F + 4 * HEADS + 8
    problem = real(llama(), "hf-bf16", lora=Lora(rank=16))

    assert per_token(problem) == base + 2 * H + 2 * H + 2 * F + 2 * 16 * 7


def test_autocast_keeps_fp32_norms_and_one_cast_for_each_map(real, llama):
    # norms 8h each; casts for q, k, v (6h), gate and up (4h): 26h
    assert per_token(real(llama(), "hf-trainer")) == 26 * H + 4 * QD + 4 * KV + 8 * F + 4 * HEADS + 8


def test_qwen3_keeps_its_query_and_key_norms(real, llama):
    normed = Attention(heads=HEADS, kv_heads=KV_HEADS, head_dim=128, value_head_dim=128, has_qk_norm=True)

    # 103,576 traced: the Llama layer + 6qd + 4H + 6kv + 4 kv heads
    assert 88_136 + 6 * QD + 4 * HEADS + 6 * KV + 4 * KV_HEADS == 103_576
    assert per_token(real(llama(attention=normed), "hf-bf16")) == 103_576


def test_neox_and_bert_keep_32_h(real, gpt):
    assert per_token(real(gpt, "hf-bf16")) == 32 * GPT_H + 4 * GPT_HEADS + 8


def test_eager_attention_keeps_scores_and_expands_key_values(real, llama):
    # flash part 4qd + 4kv + 4H becomes 8qd + 6 H s
    problem = with_kernel(real(llama(), "hf-bf16"), AttentionKernel.UNFUSED)

    assert per_token(problem) == 16 * H + 8 * QD + 6 * HEADS * TOKENS + 8 * F + 8


def test_megatron_core_with_flash_keeps_32_h(real, gpt):
    assert per_token(real(gpt, "megatron-core")) == 32 * GPT_H + 4 * GPT_HEADS + 8


def test_megatron_2021_keeps_34_h_and_5_bytes_a_score(real, gpt):
    # sbh (34 + 5 a s / h) of Korthikanti 2022, equation 1, and 4 B of statistics for each norm
    problem = real(gpt, "megatron-2021", gpu="a100-sxm-80gb")

    assert per_token(problem) == 34 * GPT_H + 5 * GPT_HEADS * TOKENS + 8


def test_megatron_without_fused_softmax_keeps_6_bytes_a_score(real, gpt):
    problem = with_kernel(real(gpt, "megatron-deepspeed", gpu="a100-sxm-80gb"), AttentionKernel.UNFUSED)

    assert per_token(problem) == 34 * GPT_H + 6 * GPT_HEADS * TOKENS + 8


def test_tp_splits_24_h_and_leaves_the_norms_whole(real, gpt):
    # traced at TP 2: 8h + 24h / 2; with masks (Korthikanti, equation 2): 10h + 24h / t + 5 a s / t
    flash = real(gpt, "megatron-core")
    fused = real(gpt, "megatron-2021", gpu="a100-sxm-80gb")

    assert per_token(flash, Plan(tp=2)) == 8 * GPT_H + 12 * GPT_H + 4 * GPT_HEADS / 2 + 8
    assert per_token(fused, Plan(tp=4)) == 10 * GPT_H + 6 * GPT_H + 5 * GPT_HEADS * TOKENS / 4 + 8


def test_sp_splits_everything(real, gpt):
    # Korthikanti 2022, equation 4: sbh / t (34 + 5 a s / h)
    problem = real(gpt, "megatron-2021", gpu="a100-sxm-80gb")

    assert per_token(problem, Plan(tp=4, sp=True)) == (34 * GPT_H + 5 * GPT_HEADS * TOKENS + 8) / 4


def test_cp_divides_the_tokens_of_a_rank(real, llama):
    problem = real(llama(), "pytorch", devices=4)

    assert per_token(problem, Plan(cp=4, zero=3, reshard=True, shard=4)) == 88_136 / 4


def test_micro_batch_multiplies(real, llama):
    assert per_token(real(llama(), "hf-bf16"), Plan(micro_batch=3)) == 3 * 88_136


def test_full_recompute_keeps_the_layer_input(real, llama):
    # bf16 residual: 2h; autocast has an fp32 residual: 4h
    assert layer_kept(real(llama(), "hf-bf16")).checkpoint_bytes[0] == 2 * H * TOKENS
    assert layer_kept(real(llama(), "hf-trainer")).checkpoint_bytes[0] == 4 * H * TOKENS


def test_sp_splits_the_checkpoint(real, llama):
    plan = Plan(tp=4, sp=True)

    assert (
        layer_kept(real(llama(), "megatron-core", devices=4), plan).checkpoint_bytes[0] == 2 * H * TOKENS / 4
    )


def test_torchtitan_selective_keeps_every_second_product(real, llama):
    # layer input, attention out and every second product: 8h + 2kv + 2f where qd = h
    plan = Plan(dp=8, zero=3, reshard=True, shard=8)

    found = layer_kept(real(llama(), "pytorch", devices=8), plan)

    assert found.selective_bytes[0] / TOKENS == 8 * H + 2 * KV + 2 * F


def test_megatron_selective_drops_the_scores_alone(real, gpt):
    # Korthikanti 2022, equation 6: 34 sbh / t with SP
    found = layer_kept(real(gpt, "megatron-2021", gpu="a100-sxm-80gb"), Plan(tp=4, sp=True))

    assert found.selective_bytes[0] / TOKENS == (34 * GPT_H + 8) / 4


def test_megatron_selective_with_flash_saves_nothing(real, gpt):
    # Megatron-LM issue 1225
    found = layer_kept(real(gpt, "megatron-core"))

    assert found.selective_bytes[0] == found.whole_bytes[0]


def test_compiled_layers_keep_one_norm_input_and_three_inner_tensors(real, llama):
    plan = Plan(dp=8, zero=3, reshard=True, shard=8, compile=Compile.DEFAULT)

    # norms 2h and inputs 2h, twice; 3 tensors of 2f
    assert per_token(real(llama(), "pytorch", devices=8), plan) == (
        8 * H + 4 * QD + 4 * KV + 6 * F + 4 * HEADS + 8
    )


def test_experts_keep_routed_copies_and_router_scores(real):
    attention = Attention(heads=HEADS, kv_heads=KV_HEADS, head_dim=128, value_head_dim=128)
    block = Block(name="moe", parts=(attention, Experts(experts=8, top_k=2, width=768)))
    stack = Stack(role=StackRole.DECODER, hidden=H, blocks=(block,), pattern=(0,))
    problem = real(Network(name="moe", family="test", stacks=(stack,)), "hf-bf16")

    # k (4h + 8 f + 28) + router 4 E + 16, beside norms, inputs and attention
    moe = 2 * (4 * H + 8 * 768 + 28) + 4 * 8 + 16
    assert per_token(problem) == 16 * H + 4 * QD + 4 * KV + 4 * HEADS + 8 + moe


def test_fp32_doubles_what_bf16_keeps(real, llama):
    problem = real(llama(), "hf-bf16")

    assert per_token(problem, Plan(precision=Precision.FP32)) == 2 * 88_136


@pytest.mark.parametrize(
    ("engine", "plan", "casts"),
    [
        ("hf-trainer", Plan(), True),
        ("hf-trainer", Plan(precision=Precision.FP32), False),
        ("pytorch", Plan(), True),
        ("pytorch", Plan(dp=8, zero=3, shard=8), False),
        ("hf-bf16", Plan(), False),
        ("megatron-core", Plan(), False),
    ],
)
def test_who_casts_op_by_op(real, llama, engine, plan, casts):
    assert autocasts(real(llama(), engine), Plans.of(plan)).tolist() == [casts]


def test_flash_is_what_engine_and_chip_have(real, llama):
    assert is_flash(real(llama(), "megatron-core", gpu="h100-sxm"))
    assert not is_flash(real(llama(), "megatron-core", gpu="v100-sxm2-32gb"))
    assert not is_flash(real(llama(), "megatron-2021", gpu="h100-sxm"))


def test_sliding_scores_stop_at_the_window(real, llama):
    sliding = Attention(
        heads=HEADS, kv_heads=KV_HEADS, head_dim=128, value_head_dim=128, kind="sliding", window_tokens=128
    )
    problem = with_kernel(real(llama(attention=sliding), "hf-bf16"), AttentionKernel.UNFUSED)

    assert per_token(problem) == 16 * H + 8 * QD + 6 * HEADS * 128 + 8 * F + 8


def test_working_set_adds_the_gradients_that_flow_through_the_layer(real, llama):
    # everything kept, twice the hidden width in 2 bytes, four tensors of the inner width in 2 bytes
    found = layer_kept(real(llama(), "hf-bf16"))

    assert found.working_bytes[0] == (88_136 + 4 * H + 8 * F) * TOKENS


def test_many_plans_are_many_rows(real, llama):
    plans = Plans.of([Plan(micro_batch=n) for n in (1, 2, 4)])
    problem = real(llama(), "hf-bf16")
    stack = problem.workload.network.stacks[0]

    whole = kept(problem, plans, stack, stack.blocks[0]).whole_bytes

    assert (whole / np.array([1, 2, 4])).tolist() == pytest.approx([whole[0]] * 3, rel=1e-12)


def test_latent_attention_keeps_its_low_ranks(real, llama):
    latent = Attention(
        heads=16, kv_heads=16, head_dim=192, value_head_dim=128, query_rank=768, kv_rank=512, rope_head_dim=64
    )
    plain = replace(latent, query_rank=0, kv_rank=0, rope_head_dim=0)

    difference = per_token(real(llama(attention=latent), "hf-bf16")) - per_token(
        real(llama(attention=plain), "hf-bf16")
    )

    # 2 (query rank + 2 kv rank + rope)
    assert difference == 2 * (768 + 2 * 512 + 64)


def test_width_of_a_plain_feed_forward_counts_twice(real, llama):
    # pre- and post-activation, 2 bytes each: 4 bytes for each unit of width
    narrow = real(llama(is_gated=False, width=4096), "hf-bf16")
    wide = real(llama(is_gated=False, width=8192), "hf-bf16")

    assert per_token(wide) - per_token(narrow) == 4 * 4096


def test_a_feed_forward_alone_is_a_layer_too(real):
    block = Block(name="mlp", parts=(FeedForward(width=F),), norms=1)
    stack = Stack(role=StackRole.DECODER, hidden=H, blocks=(block,), pattern=(0,))
    problem = real(Network(name="mlp", family="test", stacks=(stack,)), "hf-bf16")

    # one norm 6h + 4 B, its output 2h, four tensors 8f
    assert per_token(problem) == 8 * H + 4 + 8 * F


def test_dropout_makes_every_adapter_keep_a_copy_and_its_mask(real, llama):
    # 3 bytes: q, k, v once; o; gate and up each; down
    base = 8 * H + 4 * QD + 4 * KV + 6 * F + 4 * HEADS + 8
    problem = real(llama(), "hf-bf16", lora=Lora(rank=16, has_dropout=True))

    assert per_token(problem) == base + 3 * (H + QD + 2 * H + F) + 2 * 16 * 7


def test_old_4_bit_maps_keep_their_inputs_and_those_of_the_step_before(real, llama):
    # LitGPT repeats k and v for all heads; this step: inputs of q, k, v and of gate, up (4h), of down (2f);
    # the step before: those and the attention output
    network = llama()
    lora = real(network, "litgpt", lora=Lora(targets=()))
    quantised = replace(lora, workload=replace(lora.workload, method=Method.QLORA))

    assert per_token(lora) == 8 * H + 4 * QD + 4 * QD + 6 * F + 4 * HEADS + 8
    added = (4 * H + 2 * F) + (4 * H + 2 * QD + 2 * F)
    assert per_token(quantised) == per_token(lora) + added


def test_a_fused_softmax_keeps_5_bytes_a_score(real, gpt):
    # 16-bit output, its dropout and mask (Korthikanti 2022, equation 1)
    problem = with_kernel(real(gpt, "megatron-deepspeed", gpu="a100-sxm-80gb"), AttentionKernel.FUSED_SOFTMAX)

    assert per_token(problem) == 34 * GPT_H + 5 * GPT_HEADS * TOKENS + 8


def test_transformer_engine_keeps_inputs_in_the_format_they_are_multiplied_in(real, llama):
    # fp8: inputs of q, k, v and of gate, up and the product for down take 1 byte instead of 2; the attention
    # output is kept in both
    problem = real(llama(), "megatron-core")
    wide, scaled = (per_token(problem, Plan(precision=p)) for p in (Precision.BF16, Precision.FP8_TENSORWISE))

    assert wide - scaled == H + H + F - QD


def test_a_gate_inside_the_expert_leaves_its_output_out(real, llama):
    # transformers keeps 4 h a routed token (copy and output), Megatron-Core 2 h; 2 experts a token
    experts = Experts(experts=8, top_k=2, width=768, is_gated=True)
    attention = Attention(heads=HEADS, kv_heads=KV_HEADS, head_dim=128, value_head_dim=128)
    block = Block(name="layer", parts=(attention, experts), norm_weights=1)
    stack = Stack(role=StackRole.DECODER, hidden=H, blocks=(block,), pattern=(0,))
    problem = real(Network(name="moe", family="test", stacks=(stack,)), "megatron-core")

    routed = 2 * (2 * H + 6 * 768 + 28)
    dense = 8 * H + 4 * QD + 4 * KV + 4 * HEADS + 8
    assert per_token(problem) == dense + routed + 4 * 8 + 16


def test_a_saved_view_pins_the_fused_output_where_every_head_has_its_keys(real, gpt):
    # LitGPT: q | k | v is one tensor, of which the saved value is a view: 6 h more
    assert per_token(real(gpt, "litgpt")) == (32 + 6) * GPT_H + 4 * GPT_HEADS + 8
