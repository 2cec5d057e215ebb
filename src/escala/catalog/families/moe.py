"""Decoders with mixture-of-experts layers. One builder for each family.

Defaults for missing keys are those of the configuration classes of transformers 5.24.
"""

from dataclasses import replace

from escala.catalog.families.config import Config
from escala.catalog.families.dense import qwen_windows
from escala.catalog.families.layers import (
    decoder,
    gated_feed_forward,
    grouped_attention,
    layer_windows,
    windowed,
    with_head_norms,
)
from escala.model.network import Attention, Block, Experts, Stack


def mixtral(config: Config) -> tuple[Stack, ...]:
    """Mixtral: every layer has experts as wide as intermediate_size."""
    experts = routed(config, config.count("intermediate_size"), experts=8, top_k=2)
    block = Block(name="experts", parts=(grouped_attention(config, kv_heads=8), experts))
    windows = layer_windows(config, config.maybe_count("sliding_window"))
    return (decoder(config, [windowed(block, each) for each in windows]),)


def qwen2_moe(config: Config) -> tuple[Stack, ...]:
    """Qwen1.5 and Qwen2 MoE: biases on queries, keys and values; one gated shared expert."""
    attention = grouped_attention(config, kv_heads=16)
    attention = replace(attention, has_qkv_bias=config.flag("qkv_bias", True))
    experts = replace(
        routed(config, config.count("moe_intermediate_size", 1408), experts=60, top_k=4),
        shared_width=config.count("shared_expert_intermediate_size", 5632),
        other_parameters=config.count("hidden_size"),
    )
    return (decoder(config, qwen_windows(config, _qwen_layers(config, attention, experts))),)


def qwen3_moe(config: Config) -> tuple[Stack, ...]:
    """Qwen3 MoE: head norms, no shared expert; dense layers where the config lists them."""
    attention = grouped_attention(config, kv_heads=4, has_bias=config.flag("attention_bias"))
    experts = routed(config, config.count("moe_intermediate_size", 768), experts=128, top_k=8)
    layers = _qwen_layers(config, with_head_norms(attention), experts)
    window = config.maybe_count("sliding_window") if config.flag("use_sliding_window") else None
    return (decoder(config, [windowed(block, window) for block in layers]),)


def gpt_oss(config: Config) -> tuple[Stack, ...]:
    """gpt-oss: biases everywhere, one sink for each head, windows in every other layer, from the first."""
    attention = grouped_attention(
        config, kv_heads=8, head_dim=64, has_bias=config.flag("attention_bias", True)
    )
    attention = replace(attention, other_parameters=attention.heads)
    experts = routed(config, config.count("intermediate_size"), experts=128, top_k=4)
    experts = replace(experts, has_bias=True, other_parameters=experts.experts)
    block = Block(name="experts", parts=(attention, experts))
    windows = layer_windows(config, config.count("sliding_window", 128), lambda layer: layer % 2 == 0)
    return (decoder(config, [windowed(block, each) for each in windows]),)


def deepseek_v2(config: Config) -> tuple[Stack, ...]:
    """DeepSeek V2: latent attention; dense layers first, then routed and shared experts."""
    experts = routed(config, config.count("moe_intermediate_size"), experts=64)
    return (_deepseek(config, experts, shared=2, dense=0),)


def deepseek_v3(config: Config) -> tuple[Stack, ...]:
    """DeepSeek V3: as V2; its router biases are buffers.

    The prediction layers for further tokens (num_nextn_predict_layers) are not built, as in transformers.
    """
    experts = routed(config, config.count("moe_intermediate_size"), experts=256, top_k=8)
    return (_deepseek(config, experts, shared=1, dense=3),)


def _deepseek(config: Config, experts: Experts, *, shared: int, dense: int) -> Stack:
    attention = latent_attention(config)
    shared_width = config.count("n_shared_experts", shared, least=0) * experts.width
    first = Block(name="dense", parts=(attention, gated_feed_forward(config)))
    rest = Block(name="experts", parts=(attention, replace(experts, shared_width=shared_width)))
    layers = config.count("num_hidden_layers")
    kept_dense = min(layers, config.count("first_k_dense_replace", dense, least=0))
    return decoder(config, [first] * kept_dense + [rest] * (layers - kept_dense))


def latent_attention(config: Config) -> Attention:
    """Multi-head latent attention; a null q_lora_rank means one full query matrix."""
    heads = config.count("num_attention_heads")
    rope_dim = config.count("qk_rope_head_dim", 64)
    query_rank = 0 if config.is_null("q_lora_rank") else config.count("q_lora_rank", 1536, least=0)
    kv_rank = config.count("kv_lora_rank", 512)
    has_bias = config.flag("attention_bias")
    return Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=config.count("qk_nope_head_dim", 128) + rope_dim,
        value_head_dim=config.count("v_head_dim", 128),
        query_rank=query_rank,
        kv_rank=kv_rank,
        rope_head_dim=rope_dim,
        has_output_bias=has_bias,
        other_parameters=has_bias * (query_rank + kv_rank + rope_dim),
    )


def routed(config: Config, width: int, *, experts: int, top_k: int | None = None) -> Experts:
    """Routed experts of this width; the arguments are family defaults. At most all can be chosen."""
    count = config.count("num_local_experts", experts)
    chosen = config.count("num_experts_per_tok", top_k)
    if chosen > count:
        raise config.refuse("num_experts_per_tok", chosen, f"at most the {count} experts there are")
    return Experts(experts=count, top_k=chosen, width=width)


def _qwen_layers(config: Config, attention: Attention, experts: Experts) -> list[Block]:
    dense = Block(name="dense", parts=(attention, gated_feed_forward(config)))
    sparse = Block(name="experts", parts=(attention, experts))
    step = config.count("decoder_sparse_step", 1)
    kept_dense = set(config.counts("mlp_only_layers", (), least=0))
    layers = range(config.count("num_hidden_layers"))
    return [sparse if (i + 1) % step == 0 and i not in kept_dense else dense for i in layers]
