"""What families of language models share: attention, feed-forward, windows, the row of layers, the head."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from escala.catalog.families.config import Config
from escala.errors import InvalidInput
from escala.model.network import (
    Attention,
    AttentionKind,
    Block,
    Embedding,
    FeedForward,
    Head,
    Stack,
    StackRole,
)

WINDOW_KINDS: Final = {"full_attention": False, "sliding_attention": True}
LAYER_NORM_VECTORS: Final = 2  # weight and bias; RMSNorm has a weight only


def grouped_attention(
    config: Config, *, kv_heads: int | None = None, head_dim: int | None = None, has_bias: bool = False
) -> Attention:
    """Attention from num_attention_heads, num_key_value_heads and head_dim.

    `kv_heads` and `head_dim` are the defaults of the family; `has_bias` sets the biases of queries, keys,
    values and output alike.
    """
    heads = config.count("num_attention_heads")
    groups = config.count("num_key_value_heads", kv_heads or heads)
    if config.is_null("num_key_value_heads"):
        groups = heads
    if heads % groups:
        raise config.refuse("num_key_value_heads", groups, f"a divisor of the {heads} attention heads")
    dim = config.maybe_count("head_dim") or head_dim or even_head_dim(config, heads)
    return Attention(
        heads=heads,
        kv_heads=groups,
        head_dim=dim,
        value_head_dim=dim,
        has_qkv_bias=has_bias,
        has_output_bias=has_bias,
    )


def full_attention(config: Config, *, has_bias: bool = True, is_causal: bool = True) -> Attention:
    """Attention in which every head has its own keys and values."""
    heads = config.count("num_attention_heads")
    dim = even_head_dim(config, heads)
    return Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=dim,
        value_head_dim=dim,
        is_causal=is_causal,
        has_qkv_bias=has_bias,
        has_output_bias=has_bias,
    )


def even_head_dim(config: Config, heads: int) -> int:
    """Hidden / heads, which has to be whole."""
    hidden = config.count("hidden_size")
    if hidden % heads:
        raise InvalidInput(
            f"{config.name}: hidden size {hidden} is no multiple of {heads} heads; correct one of them"
        )
    return hidden // heads


def with_head_norms(attention: Attention) -> Attention:
    """The attention with one norm for queries and one for keys, each as wide as a head."""
    return replace(
        attention, has_qk_norm=True, other_parameters=attention.other_parameters + 2 * attention.head_dim
    )


def gated_feed_forward(config: Config, *, has_bias: bool = False) -> FeedForward:
    """SwiGLU or GeGLU of intermediate_size."""
    return FeedForward(width=config.count("intermediate_size"), is_gated=True, has_bias=has_bias)


def plain_feed_forward(config: Config, *, has_bias: bool = True) -> FeedForward:
    """Two maps of intermediate_size with an activation between."""
    width = config.count("intermediate_size")
    return FeedForward(width=width, is_gated=False, has_bias=has_bias)


def layer_windows(
    config: Config, window: int | None, is_sliding: Callable[[int], bool] = lambda layer: True
) -> list[int | None]:
    """Window of each layer: by layer_types when the config lists them, else by the rule of the family."""
    layers = config.count("num_hidden_layers")
    kinds = config.words("layer_types")
    if kinds and len(kinds) != layers:
        raise config.refuse("layer_types", f"{len(kinds)} kinds", f"one kind for each of {layers} layers")
    for kind in kinds:
        if kind not in WINDOW_KINDS:
            raise config.refuse("layer_types", kind, " or ".join(WINDOW_KINDS) + " in this family")
    slides = [WINDOW_KINDS[kind] for kind in kinds] or [is_sliding(layer) for layer in range(layers)]
    return [window if slide else None for slide in slides]


def windowed(block: Block, window_tokens: int | None) -> Block:
    """The block with its attention limited to a window; the same block when there is none."""
    if window_tokens is None:
        return block
    parts = tuple(
        replace(part, kind=AttentionKind.SLIDING, window_tokens=window_tokens)
        if isinstance(part, Attention)
        else part
        for part in block.parts
    )
    return replace(block, name=f"{block.name}, sliding", parts=parts)


def repeated(config: Config, block: Block) -> list[Block]:
    """The same block in every layer."""
    return [block] * config.count("num_hidden_layers")


def rows(layers: Iterable[Block]) -> tuple[tuple[Block, ...], tuple[int, ...]]:
    """Distinct blocks in order of appearance, and the pattern that indexes them."""
    kinds: dict[Block, int] = {}
    pattern = tuple(kinds.setdefault(block, len(kinds)) for block in layers)
    return tuple(kinds), pattern


def decoder(
    config: Config,
    layers: Iterable[Block],
    *,
    embedding: Embedding | None = None,
    is_tied: bool = False,
    head_has_bias: bool = False,
    norm_weights: int = 1,
) -> Stack:
    """A text decoder: vocabulary, layers, final norm, head. `is_tied` is the default of the family."""
    blocks, pattern = rows(layers)
    return Stack(
        role=StackRole.DECODER,
        hidden=config.count("hidden_size"),
        blocks=blocks,
        pattern=pattern,
        embedding=embedding or Embedding(vocab=config.count("vocab_size")),
        head=language_head(config, is_tied=is_tied, has_bias=head_has_bias),
        final_norm_weights=norm_weights,
    )


def language_head(config: Config, *, is_tied: bool, has_bias: bool = False) -> Head | None:
    """The head that architectures[0] names: none, labels, or (for all other names) the vocabulary."""
    task = architecture(config)
    if task.endswith("ForSequenceClassification"):
        return Head(outputs=label_count(config), is_per_token=False)
    if task.endswith("ForTokenClassification"):
        return Head(outputs=label_count(config), has_bias=True)
    if is_bare(config):
        return None
    tied = config.flag("tie_word_embeddings", is_tied)
    return Head(outputs=config.count("vocab_size"), is_tied=tied, has_bias=has_bias)


def architecture(config: Config) -> str:
    """The class that the config names first, or nothing."""
    return next(iter(config.words("architectures")), "")


def is_bare(config: Config) -> bool:
    """Whether the named class has no head, such as LlamaModel."""
    task = architecture(config)
    return task.endswith("Model") and not task.endswith(("LMHeadModel", "HeadsModel"))


def label_count(config: Config) -> int:
    """Classes of a classifier: num_labels, else entries of id2label, else 2 as in transformers."""
    if config.has("num_labels") or not config.has("id2label"):
        return config.count("num_labels", 2)
    return max(1, len(config.table("id2label").keys))
