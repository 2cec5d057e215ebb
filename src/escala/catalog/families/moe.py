"""Decoders with mixture-of-experts layers. One builder for each family.

Defaults for missing keys are those of the configuration classes of transformers 5.24.
"""

from dataclasses import replace
from typing import Final

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
from escala.model.network import Attention, AttentionKind, Block, Experts, FeedForward, Stack

V32_KEYS = {
    "num_attention_heads": 128,
    "num_hidden_layers": 61,
    "intermediate_size": 18_432,
    "moe_intermediate_size": 2048,
}
GLM_KEYS = {
    "num_attention_heads": 64,
    "num_hidden_layers": 78,
    "intermediate_size": 12_288,
    "moe_intermediate_size": 2048,
    "q_lora_rank": 2048,
    "qk_nope_head_dim": 192,
    "v_head_dim": 256,
}

# Loads of experts that biases of the router balance: busiest of 64 at 0.04 above the mean, 2.34 deviations.
# Source: Wang et al. 2024 (arXiv 2408.15664), table 2; DeepSeek-V3 balances so
BIAS_BALANCED: Final = 0.017


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
    """DeepSeek V3: as V2; its router biases are buffers, and balance its experts.

    The prediction layers for further tokens (num_nextn_predict_layers) are not built, as in transformers.
    """
    experts = routed(config, config.count("moe_intermediate_size"), experts=256, top_k=8)
    experts = replace(experts, load_deviation=BIAS_BALANCED)
    return (_deepseek(config, experts, shared=1, dense=3),)


def glm4_moe(config: Config) -> tuple[Stack, ...]:
    """GLM-4.5: biases on queries, keys and values on request, dense layers first, then experts.

    The prediction layers for further tokens (num_nextn_predict_layers) are not built, as in transformers.
    """
    attention = grouped_attention(config, kv_heads=8)
    attention = replace(attention, has_qkv_bias=config.flag("attention_bias"))
    attention = with_head_norms(attention) if config.flag("use_qk_norm") else attention
    experts = routed(config, config.count("moe_intermediate_size", 1408), experts=128, top_k=8)
    experts = replace(experts, has_wide_router=True)
    return (_dense_first(config, attention, experts, shared=1, dense=1),)


def minimax_m2(config: Config) -> tuple[Stack, ...]:
    """MiniMax-M2: experts in every layer; query and key norms over all heads together."""
    attention = grouped_attention(config, kv_heads=8, head_dim=128)
    norm_width = (attention.heads + attention.kv_heads) * attention.head_dim
    attention = replace(attention, has_qk_norm=True, other_parameters=norm_width)
    experts = routed(config, config.count("intermediate_size", 1536), experts=256, top_k=8)
    block = Block(name="experts", parts=(attention, experts))
    return (decoder(config, [block] * config.count("num_hidden_layers")),)


def _deepseek(config: Config, experts: Experts, *, shared: int, dense: int) -> Stack:
    return _dense_first(config, latent_attention(config), experts, shared=shared, dense=dense)


def _dense_first(config: Config, attention: Attention, experts: Experts, *, shared: int, dense: int) -> Stack:
    """Dense layers up to first_k_dense_replace, then layers of routed and shared experts."""
    shared_width = config.count("n_shared_experts", shared, least=0) * experts.width
    first = Block(name="dense", parts=(attention, gated_feed_forward(config)))
    rest = Block(name="experts", parts=(attention, replace(experts, shared_width=shared_width)))
    layers = config.count("num_hidden_layers")
    kept_dense = min(layers, config.count("first_k_dense_replace", dense, least=0))
    return decoder(config, [first] * kept_dense + [rest] * (layers - kept_dense))


def deepseek_v32(config: Config) -> tuple[Stack, ...]:
    """DeepSeek V3.2: as V3, every layer attends to the keys that its own indexer selects."""
    given = replace(config, keys={**V32_KEYS, **config.keys})
    indexed = selecting(given, latent_attention(given), heads=64)
    layers = given.count("num_hidden_layers")
    return (decoder(given, _selected(given, [indexed] * layers)),)


def glm_moe_dsa(config: Config) -> tuple[Stack, ...]:
    """GLM-5: as DeepSeek V3.2; layers may take the selection of the indexer before them."""
    given = replace(config, keys={**GLM_KEYS, **config.keys})
    full = selecting(given, latent_attention(given), heads=32)
    shared = replace(full, index_heads=0, index_dim=0)
    kinds = _indexer_kinds(given)
    return (decoder(given, _selected(given, [full if kind == "full" else shared for kind in kinds])),)


def bailing_moe_v2(config: Config) -> tuple[Stack, ...]:
    """Ling 2.0: head norms, one shared expert, a dense layer first; its router biases are buffers.

    Source: modeling_bailing_moe_v2.py, huggingface.co/inclusionAI/Ling-mini-2.0.
    """
    attention = grouped_attention(config, kv_heads=4, has_bias=config.flag("use_bias"))
    attention = replace(attention, has_qkv_bias=config.flag("use_qkv_bias"))
    if config.flag("use_qk_norm", True):
        attention = with_head_norms(attention)
    first = Block(name="dense", parts=(attention, gated_feed_forward(config)))
    rest = Block(name="experts", parts=(attention, bailing_experts(config)))
    layers = config.count("num_hidden_layers")
    dense = min(layers, config.count("first_k_dense_replace", 1, least=0))
    return (decoder(config, [first] * dense + [rest] * (layers - dense)),)


def bailing_experts(config: Config) -> Experts:
    """Experts of Ling 2: shared ones may have a width of their own."""
    experts = routed(config, config.count("moe_intermediate_size", 512), experts=256, top_k=8)
    own = config.count("moe_shared_expert_intermediate_size", experts.width)
    return replace(experts, shared_width=config.count("n_shared_experts", 1, least=0) * own)


def selecting(config: Config, attention: Attention, *, heads: int) -> Attention:
    """The attention with an indexer that selects its keys."""
    return replace(
        attention,
        kind=AttentionKind.SPARSE,
        top_tokens=config.count("index_topk", 2048),
        index_heads=config.count("index_n_heads", heads),
        index_dim=config.count("index_head_dim", 128),
    )


def _selected(config: Config, attentions: list[Attention]) -> list[Block]:
    """Layers of these attentions: dense ones first, then routed and shared experts."""
    experts = routed(config, config.count("moe_intermediate_size"), experts=256, top_k=8)
    shared = config.count("n_shared_experts", 1, least=0) * experts.width
    experts, dense = replace(experts, shared_width=shared), gated_feed_forward(config)
    kinds = config.words("mlp_layer_types")
    if not kinds:
        first = min(len(attentions), config.count("first_k_dense_replace", 3, least=0))
        kinds = ("dense",) * first + ("sparse",) * (len(attentions) - first)
    if len(kinds) != len(attentions):
        raise config.refuse("mlp_layer_types", f"{len(kinds)} kinds", f"one for each of {len(attentions)}")
    blocks = []
    for attention, kind in zip(attentions, kinds, strict=True):
        own = "selected keys" if attention.index_heads else "keys selected before"
        feed: FeedForward | Experts = dense if kind == "dense" else experts
        word = "dense" if kind == "dense" else "experts"
        blocks.append(Block(name=f"{own}, {word}", parts=(attention, feed)))
    return blocks


def _indexer_kinds(config: Config) -> list[str]:
    """Which layers run an indexer: listed, by a pattern of F and S, or every n-th after an offset."""
    layers = config.count("num_hidden_layers")
    kinds = list(config.words("indexer_types"))
    letters = config.word("index_topk_pattern")
    if letters and not kinds:
        kinds = [{"F": "full", "S": "shared"}.get(letter, letter) for letter in letters]
    if not kinds:
        every, offset = config.count("index_topk_freq", 1), config.count("index_skip_topk_offset", 2)
        kinds = ["shared" if max(i - offset + 1, 0) % every else "full" for i in range(layers)]
    if len(kinds) != layers or set(kinds) - {"full", "shared"} or kinds[0] == "shared":
        raise config.refuse("indexer_types", kinds[:3], f"full or shared for each of {layers} layers")
    return kinds


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
