"""Decoders behind towers: Qwen3-VL, Qwen3.5, Mistral 3, Llama 4. One builder for each family.

Defaults for missing keys are those of the configuration classes of transformers 5.24.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from escala.catalog.families.config import Config
from escala.catalog.families.dense import mistral, qwen3
from escala.catalog.families.layers import decoder, grouped_attention
from escala.catalog.families.moe import qwen3_moe, routed
from escala.catalog.families.recurrent import qwen3_5_moe_text, qwen3_5_text
from escala.catalog.families.towers import llama4_tower, pixtral_tower, qwen3_vl_tower
from escala.model.network import Attention, AttentionKind, Block, FeedForward, Part, Stack

DEEPSTACK: Final = (8, 16, 24)
QWEN3_VL_MOE: Final = {
    "num_key_value_heads": 16,
    "num_experts": 60,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 1408,
}
MISTRAL3_TEXT: Final = {"head_dim": 128, "num_key_value_heads": 8, "sliding_window": None}


def qwen3_vl(config: Config) -> tuple[Stack, ...]:
    """Qwen3-VL: a tower, its mergers, and a Qwen3 decoder."""
    text = config.table("text_config", inherit=("tie_word_embeddings",))
    towers = qwen3_vl_tower(config.table("vision_config"), text.count("hidden_size"), DEEPSTACK)
    return (*towers, *qwen3(text))


def qwen3_vl_moe(config: Config) -> tuple[Stack, ...]:
    """Qwen3-VL with experts: the tower and mergers of Qwen3-VL and a Qwen3 MoE decoder."""
    text = config.table("text_config", inherit=("tie_word_embeddings",))
    dim = text.maybe_count("head_dim") or text.count("hidden_size") // text.count("num_attention_heads")
    text = replace(text, keys={**QWEN3_VL_MOE, **text.keys, "head_dim": dim})
    towers = qwen3_vl_tower(config.table("vision_config"), text.count("hidden_size"), DEEPSTACK)
    return (*towers, *qwen3_moe(text))


def qwen3_5(config: Config) -> tuple[Stack, ...]:
    """Qwen3.5: the tower of Qwen3-VL with one merger, and the decoder of linear and full attention."""
    text = config.table("text_config", inherit=("tie_word_embeddings",))
    towers = qwen3_vl_tower(config.table("vision_config"), text.count("hidden_size"))
    return (*towers, *qwen3_5_text(text))


def qwen3_5_moe(config: Config) -> tuple[Stack, ...]:
    """Qwen3.5 with experts."""
    text = config.table("text_config", inherit=("tie_word_embeddings",))
    towers = qwen3_vl_tower(config.table("vision_config"), text.count("hidden_size"))
    return (*towers, *qwen3_5_moe_text(text))


def mistral3(config: Config) -> tuple[Stack, ...]:
    """Mistral 3: Pixtral's tower, a merger of patches, and a Mistral decoder without windows."""
    text = config.table("text_config", inherit=("tie_word_embeddings",))
    text = replace(text, keys={**MISTRAL3_TEXT, "tie_word_embeddings": True, **text.keys})
    return (*pixtral_tower(config, text.count("hidden_size")), *mistral(text))


def llama4(config: Config) -> tuple[Stack, ...]:
    """Llama 4: a tower of tiles, its projector, and the decoder."""
    text = config.table("text_config", inherit=("tie_word_embeddings",))
    return (*llama4_tower(config.table("vision_config"), text.count("hidden_size")), *llama4_text(text))


def llama4_text(config: Config) -> tuple[Stack, ...]:
    """Llama 4's decoder: chunks of attention with rotary positions, full layers without, experts in between.

    One expert and a shared one of the same width for each token. transformers 5.24 runs all tokens through
    all experts with a weight of zero for the others, which is not counted.
    """
    attention = grouped_attention(config, kv_heads=8, head_dim=128, has_bias=config.flag("attention_bias"))
    width = config.count("intermediate_size", 8192)
    experts = replace(routed(config, width, experts=16, top_k=1), shared_width=width)
    dense = FeedForward(width=config.count("intermediate_size_mlp", 16_384))
    layers = range(config.count("num_hidden_layers"))
    sparse, rotary = _expert_layers(config, layers), _rotary_layers(config, layers)
    chunks = _chunk_tokens(config, rotary)
    return (
        decoder(
            config,
            [
                _layer(_own(config, attention, i in rotary, chunks[i]), experts if i in sparse else dense)
                for i in layers
            ],
        ),
    )


def _layer(attention: Attention, part: Part) -> Block:
    kind = "dense" if isinstance(part, FeedForward) else "experts"
    is_chunked = attention.kind is AttentionKind.CHUNKED
    return Block(name=f"{kind}, chunked" if is_chunked else kind, parts=(attention, part))


def _own(config: Config, attention: Attention, is_rotary: bool, chunk_tokens: int | None) -> Attention:
    """Rotary layers normalise queries and keys without weights; a chunk of tokens attends to itself."""
    attention = replace(attention, has_qk_norm=is_rotary and config.flag("use_qk_norm", True))
    if chunk_tokens is None:
        return attention
    return replace(attention, kind=AttentionKind.CHUNKED, window_tokens=chunk_tokens)


def _expert_layers(config: Config, layers: range) -> set[int]:
    step = config.count("interleave_moe_layer_step", 1)
    return set(config.counts("moe_layers", tuple(layers[step - 1 :: step]), least=0))


def _rotary_layers(config: Config, layers: range) -> set[int]:
    """Layers with rotary positions: where no_rope_layers holds 1, else all but every fourth."""
    step = config.count("no_rope_layer_interval", 4)
    marks = config.counts("no_rope_layers", (), least=0) or tuple(int((i + 1) % step != 0) for i in layers)
    if len(marks) < len(layers):
        raise config.refuse("no_rope_layers", f"{len(marks)} marks", f"one for each of {len(layers)} layers")
    return {i for i in layers if marks[i]}


def _chunk_tokens(config: Config, rotary: Iterable[int]) -> list[int | None]:
    """The chunk of each layer: by layer_types, else of layers with rotary positions."""
    layers, kinds = range(config.count("num_hidden_layers")), config.words("layer_types")
    size = None if config.is_null("attention_chunk_size") else config.count("attention_chunk_size", 8192)
    if kinds and len(kinds) != len(layers):
        raise config.refuse(
            "layer_types", f"{len(kinds)} kinds", f"one kind for each of {len(layers)} layers"
        )
    chunked = {i for i, kind in enumerate(kinds) if kind == "chunked_attention"} if kinds else set(rotary)
    return [size if i in chunked else None for i in layers]
