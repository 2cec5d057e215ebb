"""Decoders that pool neighbouring keys into one: DeepSeek V4. Defaults are those of transformers 5.24."""

from dataclasses import replace
from typing import Final

from escala.catalog.families.config import Config
from escala.catalog.families.layers import decoder
from escala.catalog.families.moe import BIAS_BALANCED, routed
from escala.model.network import Attention, AttentionKind, Block, Experts, Stack
from escala.model.streams import collapse_parameters

SELECTED: Final = "compressed_sparse_attention"
POOLED: Final = "heavily_compressed_attention"
WINDOW: Final = "sliding_attention"
KINDS: Final = {WINDOW: "window", SELECTED: "selected pooled keys", POOLED: "pooled keys"}
BY_RATIO: Final = {0: WINDOW, 4: SELECTED, 128: POOLED}
POOLS: Final = {SELECTED: 4, POOLED: 128}
FEEDS: Final = {"hash_moe": "hashed experts", "moe": "experts"}


def deepseek_v4(config: Config) -> tuple[Stack, ...]:
    """DeepSeek V4: a window of keys that serve as values, pooled keys behind it, experts, several streams.

    The prediction layers for further tokens (num_nextn_predict_layers) are not built, as in transformers.
    """
    attentions = {kind: _attention(config, kind) for kind in KINDS}
    experts = routed(config, config.count("moe_intermediate_size", 2048), experts=256, top_k=6)
    shared = config.count("n_shared_experts", 1, least=0) * experts.width
    experts = replace(experts, shared_width=shared, is_clamped=True)
    # experts that a table of tokens chooses are not balanced by biases
    feeds = {"hash_moe": experts, "moe": replace(experts, load_deviation=BIAS_BALANCED)}
    layers = zip(_attention_kinds(config), _feed_kinds(config), strict=True)
    blocks = [_block(config, kind, attentions[kind], feed, feeds[feed]) for kind, feed in layers]
    stack = decoder(config, blocks)
    collapse = collapse_parameters(config.count("hc_mult", 4), stack.hidden)
    return (replace(stack, other_parameters=collapse),)


def _block(config: Config, kind: str, attention: Attention, feed: str, experts: Experts) -> Block:
    return Block(
        name=f"{KINDS[kind]}, {FEEDS[feed]}",
        parts=(attention, experts),
        has_wide_norms=True,
        streams=config.count("hc_mult", 4),
        mixing_rounds=config.count("hc_sinkhorn_iters", 20, least=0),
    )


def _attention(config: Config, kind: str) -> Attention:
    """One key for all heads, a sink for each, queries and outputs of a low rank."""
    heads, dim = config.count("num_attention_heads", 64), config.count("head_dim", 512)
    groups = config.count("o_groups", 8)
    if heads % groups:
        raise config.refuse("o_groups", groups, f"a divisor of the {heads} attention heads")
    window = Attention(
        kind=AttentionKind.SLIDING,
        heads=heads,
        kv_heads=1,
        head_dim=dim,
        value_head_dim=dim,
        window_tokens=config.count("sliding_window", 128),
        key_value_maps=1,
        is_shared=True,
        query_rank=config.count("q_lora_rank", 1024),
        output_groups=groups,
        output_rank=config.count("o_lora_rank", 1024),
        has_qk_norm=True,
        other_parameters=dim + heads,
    )
    if kind == WINDOW:
        return window
    pooled = replace(window, kind=AttentionKind.POOLED, pooled_tokens=_pool(config, kind))
    if kind == POOLED:
        return pooled
    return replace(
        pooled,
        kind=AttentionKind.SPARSE,
        top_tokens=config.count("index_topk", 512),
        index_heads=config.count("index_n_heads", 64),
        index_dim=config.count("index_head_dim", 128),
    )


def _pool(config: Config, kind: str) -> int:
    """Tokens that one key stands for: by kind in `compress_rates`, else by the older keys."""
    older = {SELECTED: "compress_rate_csa", POOLED: "compress_rate_hca"}[kind]
    if config.has("compress_rates") and not config.has(older):
        return config.table("compress_rates").count(kind)
    return config.count(older, POOLS[kind])


def _attention_kinds(config: Config) -> tuple[str, ...]:
    """Kind of each layer: listed, by ratios, else two heavily pooled ones and then by turns.

    Files list prediction layers as well, behind the others.
    """
    layers = config.count("num_hidden_layers")
    kinds = config.words("layer_types")
    if not kinds and config.has("compress_ratios"):
        ratios = config.counts("compress_ratios", least=0)
        unknown = next((each for each in ratios if each not in BY_RATIO), None)
        if unknown is not None:
            raise config.refuse("compress_ratios", unknown, "0, 4 or 128 in this family")
        kinds = tuple(BY_RATIO[each] for each in ratios)
    if not kinds:
        kinds = tuple(SELECTED if layer > 1 and layer % 2 else POOLED for layer in range(layers))
    return _listed(config, "layer_types", kinds[:layers], KINDS)


def _feed_kinds(config: Config) -> tuple[str, ...]:
    """Experts of each layer: listed, else chosen by a table of tokens in the first `num_hash_layers`."""
    layers = config.count("num_hidden_layers")
    hashed = min(layers, config.count("num_hash_layers", 3, least=0))
    kinds = config.words("mlp_layer_types") or ("hash_moe",) * hashed + ("moe",) * (layers - hashed)
    return _listed(config, "mlp_layer_types", kinds[:layers], FEEDS)


def _listed(config: Config, key: str, kinds: tuple[str, ...], known: dict[str, str]) -> tuple[str, ...]:
    layers = config.count("num_hidden_layers")
    if len(kinds) != layers:
        raise config.refuse(key, f"{len(kinds)} kinds", f"one for each of {layers} layers")
    for kind in kinds:
        if kind not in known:
            raise config.refuse(key, kind, " or ".join(known) + " in this family")
    return kinds
