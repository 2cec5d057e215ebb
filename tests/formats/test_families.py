"""What families make of their keys, beyond counts: windows, patterns, towers, context, stored width."""

from typing import Any

import pytest

from escala.catalog import networks
from escala.catalog.families import network_from_config
from escala.model.network import Attention, AttentionKind, Experts, Network, Stack, StackRole


def read(name: str, **changes: Any) -> Network:
    return network_from_config({**networks.config(name), **changes}, name, "test")


def windows(stack: Stack) -> list[int | None]:
    attentions = [stack.blocks[kind].parts[0] for kind in stack.pattern]
    return [each.window_tokens for each in attentions if isinstance(each, Attention)]


def test_gemma3_slides_in_five_of_six_layers():
    assert windows(networks.network("gemma-3-1b").main)[:7] == [512] * 5 + [None, 512]


def test_gemma2_slides_in_every_other_layer():
    assert windows(networks.network("gemma-2-9b").main)[:4] == [4096, None, 4096, None]


def test_gpt_oss_reads_its_layer_types():
    network = read("gpt-oss-20b", layer_types=["full_attention"] * 23 + ["sliding_attention"])

    assert windows(network.main) == [None] * 23 + [128]


def test_mistral_window_is_null_or_of_all_layers():
    assert set(windows(networks.network("mistral-7b").main)) == {None}
    assert set(windows(networks.network("mistral-7b-v0.1").main)) == {4096}


def test_qwen2_slides_only_if_asked_and_from_max_window_layers():
    assert set(windows(networks.network("qwen2.5-7b").main)) == {None}
    asked = read("qwen2.5-7b", use_sliding_window=True, sliding_window=4096, max_window_layers=20)

    assert windows(asked.main) == [None] * 20 + [4096] * 8


def test_deepseek_is_dense_first():
    stack = networks.network("deepseek-v3").main

    assert [stack.blocks[kind].name for kind in stack.pattern[:4]] == ["dense", "dense", "dense", "experts"]
    assert stack.layers == 61


def test_latent_attention_keeps_its_ranks():
    attention = networks.network("deepseek-v3").main.blocks[0].parts[0]

    assert isinstance(attention, Attention)
    assert (attention.query_rank, attention.kv_rank) == (1536, 512)
    assert (attention.head_dim, attention.rope_head_dim, attention.value_head_dim) == (192, 64, 128)


def test_qwen3_moe_layers_can_be_dense():
    stack = read("qwen3-30b-a3b", decoder_sparse_step=2, mlp_only_layers=[3]).main

    assert [stack.blocks[kind].name for kind in stack.pattern[:6]] == [
        *("dense", "experts", "dense", "dense", "dense", "experts")
    ]


def test_gemma3_has_tower_projector_and_decoder():
    network = networks.network("gemma-3-4b")

    assert [stack.role for stack in network.stacks] == [
        StackRole.VISION,
        StackRole.PROJECTOR,
        StackRole.DECODER,
    ]
    # (896 / 14)^2 patches, pooled to 256
    assert [stack.tokens for stack in network.stacks] == [4096, 256, None]
    assert not network.is_image


def test_t5_decoder_has_cross_attention():
    encoder, decoder = networks.network("t5-small").stacks

    assert [part.kind for part in decoder.blocks[0].parts[:2] if isinstance(part, Attention)] == [
        AttentionKind.FULL,
        AttentionKind.CROSS,
    ]
    assert encoder.head is None


def test_image_networks_have_fixed_tokens():
    # 14 * 14 patches and the class token; 7 * 7 pixels after the last stage
    assert networks.network("vit-b/16").main.tokens == 197
    assert networks.network("resnet-50").main.tokens == 49
    assert [stack.tokens for stack in networks.network("convnext-tiny").stacks] == [3136, 784, 196, 49]
    assert networks.network("resnet-50").is_image


def test_image_size_may_be_a_pair():
    # 256 / 16 * 128 / 16 patches and the class token
    assert read("vit-b/16", image_size=[256, 128]).main.tokens == 129


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("llama-3.1-8b", 131_072),
        ("gpt2", 1024),
        ("roberta-base", 512),
        ("bloom-176b", 2048),
        ("t5-small", None),
    ],
)
def test_context_is_read(name: str, tokens: int | None):
    assert networks.network(name).max_tokens == tokens


@pytest.mark.parametrize(
    ("changes", "bits"),
    [
        ({}, 16.0),
        ({"torch_dtype": None, "dtype": "float32"}, 32.0),
        ({"torch_dtype": None}, 32.0),
        ({"quantization_config": {"quant_method": "fp8"}}, 8.0),
        ({"quantization_config": {"quant_method": "mxfp4"}}, 4.25),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, 4.0),
        ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}, 4.0),
        ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}, 8.0),
    ],
)
def test_width_of_stored_weights(changes: dict[str, Any], bits: float):
    assert read("llama-3.1-8b", **changes).stored_bits == bits


def test_old_and_new_spellings_mean_the_same():
    old = networks.config("qwen3-30b-a3b")
    new = {
        key: value for key, value in old.items() if key not in ("num_experts", "torch_dtype", "rope_theta")
    }
    new |= {"num_local_experts": 128, "dtype": "bfloat16", "rope_parameters": {"rope_theta": 1e6}}

    assert network_from_config(new, "same", "test") == network_from_config(old, "same", "test")


def test_missing_key_value_heads_of_llama_are_the_heads():
    attention = read("llama-3.1-8b", num_key_value_heads=None).main.blocks[0].parts[0]

    assert isinstance(attention, Attention)
    assert attention.kv_heads == 32


def test_experts_of_gpt_oss_have_biases():
    experts = networks.network("gpt-oss-20b").main.blocks[0].parts[1]

    assert isinstance(experts, Experts)
    assert (experts.experts, experts.top_k, experts.has_bias) == (32, 4, True)


def test_remote_code_of_a_known_family_is_not_run():
    network = read("llama-3.1-8b", auto_map={"AutoConfig": "evil.Config"})

    assert network.layers == 32
    assert network.source == "test; its auto_map was not run"
