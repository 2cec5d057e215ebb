"""From the columns about the network to a Network: printed shapes first, published shapes by name else.

Fields that the table leaves out and the network needs (vocabulary, heads, layers) are filled by stated rules
and flagged.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from escala.calibration.convolutions import efficientnet, resnext101
from escala.calibration.failure import Unreadable
from escala.calibration.rows import Row
from escala.catalog.families import network_from_config
from escala.catalog.networks import network
from escala.errors import InvalidInput
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

# Catalogue names of what tables call otherwise; columns do not hold all of their shapes (latent attention).
KNOWN: Final[Mapping[str, str]] = {
    r"^deepseek-?3|^deepseek-?v3": "deepseek-v3",
    r"^qwen3.?235b": "qwen3-235b-a22b",
    r"^qwen3.?30b": "qwen3-30b-a3b",
    r"^gpt.?oss.?120b": "gpt-oss-120b",
    r"^gpt.?oss.?20b": "gpt-oss-20b",
    r"^mixtral.?8x7b": "mixtral-8x7b",
    r"^mixtral.?8x22b": "mixtral-8x22b",
    r"^falcon-?7b": "falcon-7b",
    r"^gemma-2-2b": "gemma-2-2b",
    r"^gemma-2-9b": "gemma-2-9b",
    r"^gpt-2 xl|^gpt2-xl": "gpt2-xl",
    r"^resnet-?50": "resnet-50",
    r"^resnet-?101": "resnet-101",
    r"^resnet-?152": "resnet-152",
}
_KIMI: Final = {
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 64,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 384,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 163840,
}
# Shapes of public model configurations (NeMo; config.json) that tables name without printing them:
# layers, hidden, heads, key-value heads, feed-forward width, its kind, vocabulary.
SHAPES: Final[Mapping[str, tuple[int, int, int, int, int, str, int]]] = {
    r"^gpt3-5b": (24, 4096, 32, 32, 16384, "gelu", 51200),
    r"^gpt3-20b": (44, 6144, 48, 48, 24576, "gelu", 51200),
    r"^nemotron-8b": (32, 4096, 32, 32, 16384, "squared_relu", 256000),
    r"^nemotron-22b": (40, 6144, 48, 48, 24576, "squared_relu", 256000),
    r"^nemotron.?4? ?-?340b": (96, 18432, 96, 8, 73728, "squared_relu", 256000),
    r"^yi-6b": (32, 4096, 32, 4, 11008, "swiglu", 64000),
    r"^yi-34b": (60, 7168, 56, 8, 20480, "swiglu", 64000),
    r"zephyr-7b": (32, 4096, 32, 8, 14336, "swiglu", 32000),
    r"^baichuan2-7b": (32, 4096, 32, 32, 11008, "swiglu", 125696),
    r"^baichuan2-13b": (40, 5120, 40, 40, 13696, "swiglu", 125696),
    r"^stablelm-base-alpha-3b": (16, 4096, 32, 32, 16384, "gelu", 50688),
}
# Vocabulary where a table prints none, by what the model is called; else that of GPT-2, padded.
_VOCABULARY: Final[Mapping[str, int]] = {r"llama": 32000, r"maxtext": 32000, r"opt": 50272, r"bert": 30522}
USUAL_VOCABULARY: Final = 51200
_MOST_LAYERS: Final = 10_000  # more are a fault of the table
USUAL_HEAD_DIM: Final = 128
GATED: Final = ("swiglu", "geglu")
MASKED_SHARE: Final = 0.156  # positions that BERT predicts: 20 of 128, 80 of 512
# Shared experts and every how many layers experts stand, where the columns cannot say it.
_MAVERICK: Final = re.compile(r"llama4.maverick")
_GROK: Final = re.compile(r"^grok")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A network and the fields that had to be assumed for it."""

    network: Network
    imputed: tuple[str, ...] = ()


def shape(row: Row) -> Shape:
    """The network that a row trained."""
    name = row.model.lower()
    if row.arch == "other":
        raise Unreadable("network of another kind (diffusion, encoder-decoder, hybrid)")
    if row.arch == "cnn":
        return Shape(network=_convolutional(name))
    known = next((value for pattern, value in KNOWN.items() if re.search(pattern, name)), None)
    if known is not None:
        return Shape(network=_with_layers(network(known), row.layers))
    if name.startswith("kimi k2"):
        return Shape(network=network_from_config(_KIMI, "Kimi K2", "config.json of moonshotai/Kimi-K2"))
    named = None if row.hidden else _named(row.model)
    return (
        _printed(_filled(row, name), name)
        if named is None
        else Shape(network=_with_layers(named, row.layers))
    )


@cache
def _named(model: str) -> Network | None:
    """The network of the catalog that a table names as the catalog does, when no shape is printed."""
    try:
        return network(model)
    except InvalidInput:
        return None


def _convolutional(name: str) -> Network:
    known = next((value for pattern, value in KNOWN.items() if re.search(pattern, name)), "")
    if "resnext101" in name:
        return resnext101(is_squeezed=name.startswith("se-"))
    found = network(known) if known.startswith("resnet") else efficientnet(name.rpartition("-")[2])
    if found is None:
        raise Unreadable("convolutional network without a shape")
    return found


def _with_layers(found: Network, layers: int | None) -> Network:
    """The network cut to the printed number of layers, where a table ran fewer."""
    main = found.main
    if layers is None or layers >= main.layers:
        return found
    return replace(found, stacks=(replace(main, pattern=main.pattern[-layers:]),))


def _filled(row: Row, name: str) -> Row:
    public = next((value for pattern, value in SHAPES.items() if re.search(pattern, name)), None)
    if row.hidden is not None or public is None:
        return row
    layers, hidden, heads, kv_heads, width, kind, vocab = public
    return replace(
        row,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=hidden // heads,
        ffn_width=width,
        ffn_kind=kind,
        vocab=vocab,
    )


def _printed(row: Row, name: str) -> Shape:
    if not row.hidden or row.hidden < 0:
        raise Unreadable("shape of the network not printed")
    if row.arch == "moe" and not (row.experts and row.top_k and row.expert_width):
        raise Unreadable("experts not printed")
    layers, heads, vocab = (
        row.layers or _layers(row),
        row.heads or _heads(row),
        row.vocab or _vocabulary(name),
    )
    given = (row.layers, row.heads, row.vocab)
    fields = zip(("layers", "heads", "vocabulary"), given, strict=True)
    imputed = tuple(f for f, value in fields if not value or f"{f} {value} inferred" in row.notes)
    stack = _decoder(replace(row, layers=layers, heads=heads, vocab=vocab), name)
    return Shape(
        network=Network(name=row.model or "network", family="published", stacks=(stack,)), imputed=imputed
    )


def _layers(row: Row) -> int:
    """Layers from parameters: (N - V h) / 12 h^2, for plain GPT."""
    hidden, vocab = row.hidden or 1, row.vocab or USUAL_VOCABULARY
    try:
        parameters = float(row.parameters_billion) * 1e9
    except ValueError:
        raise Unreadable("shape of the network not printed") from None
    layers = round((parameters - vocab * hidden) / (12 * hidden**2))
    if not 1 <= layers <= _MOST_LAYERS:
        raise Unreadable("shape of the network not printed")
    return layers


def _heads(row: Row) -> int:
    """Heads of the usual width that tensor ranks can share; scripts and widths of BigScience say others.

    Its V100 scripts fix 32, its widest runs explain 96 of width 150.
    """
    hidden = row.hidden or 1
    if "BigScience gpt2" in row.source and hidden % 32 == 0:
        return 32
    if "BigScience" in row.source and hidden == 14400:
        return 96
    wanted, split = hidden / (row.head_dim or USUAL_HEAD_DIM), row.tp or 1
    whole = [heads for heads in range(split, hidden + 1, split) if hidden % heads == 0]
    return min(whole, key=lambda heads: abs(heads - wanted), default=max(round(wanted), 1))


def _vocabulary(name: str) -> int:
    return next((size for word, size in _VOCABULARY.items() if re.search(word, name)), USUAL_VOCABULARY)


def _decoder(row: Row, name: str) -> Stack:
    hidden, vocab, layers = row.hidden or 0, row.vocab or 0, row.layers or 0
    gated = row.ffn_kind in GATED or (not row.ffn_kind and bool(_GROK.search(name)))
    is_encoder = name.startswith("bert")
    has_bias = not gated and row.ffn_kind != "squared_relu"
    blocks, pattern = _blocks(row, name, gated, has_bias)
    tied = not gated and row.ffn_kind != "squared_relu" and "LitGPT" not in row.framework  # it unties
    return Stack(
        role=StackRole.ENCODER if is_encoder else StackRole.DECODER,
        hidden=hidden,
        blocks=blocks,
        pattern=pattern(layers),
        embedding=Embedding(vocab=vocab, positions=(row.sequence_tokens or 2048) if has_bias else 0),
        head=Head(outputs=round(vocab * MASKED_SHARE) if is_encoder else vocab, is_tied=tied or is_encoder),
        final_norm_weights=2 if has_bias else 1,
    )


def _blocks(row: Row, name: str, gated: bool, has_bias: bool) -> tuple[tuple[Block, ...], Any]:
    attention = _attention(row, name, has_bias)
    norms = 2 if has_bias else 1
    dense = FeedForward(width=row.ffn_width or 4 * (row.hidden or 0), is_gated=gated, has_bias=has_bias)
    plain = Block(name="layer", parts=(attention, dense), norm_weights=norms)
    if row.arch != "moe":
        return (plain,), lambda layers: (0,) * layers
    is_maverick = bool(_MAVERICK.search(name))
    experts = Experts(
        experts=row.experts or 1,
        top_k=row.top_k or 1,
        width=row.expert_width or 1,
        is_gated=gated or not row.ffn_kind,
        shared_width=(row.expert_width or 0) if is_maverick else 0,
    )
    sparse = Block(name="experts", parts=(attention, experts), norm_weights=norms)
    if is_maverick:  # dense layers, twice as wide, alternate with experts
        wide = replace(plain, parts=(attention, replace(dense, width=2 * experts.width, is_gated=True)))
        return (wide, sparse), lambda layers: tuple(i % 2 for i in range(layers))
    return (sparse,), lambda layers: (0,) * layers


def _attention(row: Row, name: str, has_bias: bool) -> Attention:
    heads = row.heads or 1
    head_dim = row.head_dim or max((row.hidden or 0) // heads, 1)
    kv_heads = row.kv_heads if row.kv_heads and heads % row.kv_heads == 0 else heads
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_head_dim=head_dim,
        is_causal=not name.startswith("bert"),
        has_qkv_bias=has_bias or name.startswith("qwen-"),
        has_output_bias=has_bias,
        has_qk_norm=name.startswith("qwen3"),
    )
