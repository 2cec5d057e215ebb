"""Gemma 4: a decoder of several kinds of layers, with towers for images and sound where the config has them.

Defaults for missing keys are those of the configuration classes of transformers 5.24.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from escala.catalog.families.config import Config
from escala.catalog.families.layers import (
    decoder,
    grouped_attention,
    layer_windows,
    rows,
    windowed,
    with_head_norms,
)
from escala.catalog.families.moe import routed
from escala.catalog.families.towers import gemma4_tower
from escala.catalog.families.vision import projector_stack
from escala.model.network import (
    Attention,
    AttentionKind,
    Block,
    Convolution,
    Embedding,
    FeedForward,
    Linear,
    Part,
    Stack,
    StackRole,
)

FRAMES: Final = 3000  # 30 s of sound in steps of 10 ms: transformers 5.24, Gemma4Processor.audio_seq_length
MELS: Final = 128  # transformers 5.24, Gemma4AudioFeatureExtractor.feature_size
AUDIO_NORMS: Final = 9  # two around each of three parts, three of the convolution and of the layer


def gemma4(config: Config) -> tuple[Stack, ...]:
    """Gemma 4: towers for images and sound, each with one map into the text, and the decoder.

    The tower for sound is held but does not work: a sample has no sound here.
    """
    text = config.table("text_config", inherit=("tie_word_embeddings",))
    hidden = text.count("hidden_size")
    stacks: list[Stack] = []
    if config.has("vision_config"):
        stacks += gemma4_tower(config.table("vision_config"), hidden)
    if config.has("audio_config"):
        stacks += _audio(config.table("audio_config"), hidden)
    return (*stacks, *gemma4_text(text))


def gemma4_text(config: Config) -> tuple[Stack, ...]:
    """The decoder: five sliding layers to a full one, whose heads are wider and may use keys as values.

    The last `num_kv_shared_layers` read keys and values of earlier ones. Layers may have experts beside the
    feed-forward, and an input of their own from a second table, which a stack of its own projects.
    """
    window = config.count("sliding_window", 512)
    windows = layer_windows(config, window, lambda layer: (layer + 1) % 6 != 0)
    windows[-1] = None
    later = config.count("num_kv_shared_layers", 0, least=0)
    if later >= len(windows):
        raise config.refuse("num_kv_shared_layers", later, f"fewer than the {len(windows)} layers there are")
    shared = len(windows) - later
    blocks = [_block(config, each, layer >= shared) for layer, each in enumerate(windows)]
    own = config.count("hidden_size_per_layer_input", 256, least=0) * len(blocks)
    table = config.count("vocab_size_per_layer_input", 262_144) * own
    embedding = Embedding(vocab=config.count("vocab_size"), further_table_parameters=table)
    stack = decoder(config, blocks, embedding=embedding, is_tied=True)
    return (*_layer_inputs(config, own), stack)


def _layer_inputs(config: Config, width: int) -> Iterator[Stack]:
    """The map from the first hidden state to the inputs of all layers, and its norm."""
    if width:
        hidden, norm = config.count("hidden_size"), config.count("hidden_size_per_layer_input", 256)
        yield Stack(
            role=StackRole.PROJECTOR,
            hidden=hidden,
            blocks=(
                Block(
                    name="layer inputs",
                    parts=(Linear(inputs=hidden, outputs=width, has_bias=False, other_parameters=norm),),
                    norms=0,
                ),
            ),
            pattern=(0,),
            final_norm_weights=0,
        )


def _block(config: Config, window_tokens: int | None, shares_keys: bool) -> Block:
    parts: tuple[Part, ...] = (_attention(config, window_tokens is None, shares_keys),)
    doubled = 2 if shares_keys and config.flag("use_double_wide_mlp") else 1
    parts += (FeedForward(width=doubled * config.count("intermediate_size")),)
    norms, name = 4, "dense"
    if config.flag("enable_moe_block"):
        parts, norms, name = (*parts, _experts(config)), norms + 3, "experts"
    own = config.count("hidden_size_per_layer_input", 256, least=0)
    if own:
        hidden = config.count("hidden_size")
        parts += (Linear(inputs=hidden, outputs=own, has_bias=False, name="layer input"),)
        parts += (Linear(inputs=own, outputs=hidden, has_bias=False, name="layer input"),)
        norms += 1
    name = f"{name}, shared keys" if shares_keys else name
    return windowed(Block(name=name, parts=parts, norms=norms, has_wide_norms=True), window_tokens)


def _attention(config: Config, is_full: bool, shares_keys: bool) -> Attention:
    has_bias = config.flag("attention_bias")
    attention = grouped_attention(_heads(config, is_full), kv_heads=4, head_dim=256, has_bias=has_bias)
    is_causal = config.word("use_bidirectional_attention") != "all"
    attention = replace(with_head_norms(attention), is_causal=is_causal, has_value_norm=not shares_keys)
    if shares_keys:
        return replace(attention, key_value_maps=0, other_parameters=attention.head_dim)
    if is_full and config.flag("attention_k_eq_v"):
        return replace(attention, key_value_maps=1)
    return attention


def _heads(config: Config, is_full: bool) -> Config:
    """The config with the heads of a full layer: wider, and fewer for keys where keys are values."""
    defaults = {"num_attention_heads": 8}
    if not is_full:
        return replace(config, keys={**defaults, **config.keys})
    wide: dict[str, object] = {"head_dim": config.count("global_head_dim", 512)}
    if config.flag("attention_k_eq_v") and config.has("num_global_key_value_heads"):
        wide["num_key_value_heads"] = config.count("num_global_key_value_heads")
    return replace(config, keys={**defaults, **config.keys, **wide})


def _experts(config: Config) -> Part:
    """Routed experts; the router scales its input and the output of each expert."""
    chosen = replace(config, keys={**config.keys, "num_experts_per_tok": config.count("top_k_experts")})
    experts = routed(chosen, config.count("moe_intermediate_size"), experts=config.count("num_experts"))
    return replace(experts, other_parameters=config.count("hidden_size") + experts.experts)


def _audio(config: Config, hidden: int) -> Iterator[Stack]:
    """Two strided convolutions, conformer layers, and two maps into the text, over 30 s of sound."""
    width, tokens = config.count("hidden_size", 1024), FRAMES // 4
    yield _audio_stack(_subsampling(config, width), (0,), StackRole.CONVOLUTION, width, tokens)
    blocks, pattern = rows([_conformer(config, width, tokens)] * config.count("num_hidden_layers", 12))
    yield _audio_stack(blocks[0], pattern, StackRole.AUDIO, width, tokens)
    output = config.count("output_proj_dims", 1536)
    maps = (Linear(inputs=width, outputs=output), Linear(inputs=output, outputs=hidden, has_bias=False))
    yield replace(projector_stack(tokens, hidden, maps), streams_per_sample=0)


def _audio_stack(block: Block, pattern: tuple[int, ...], role: StackRole, hidden: int, tokens: int) -> Stack:
    return Stack(
        role=role,
        hidden=hidden,
        blocks=(block,),
        pattern=pattern,
        tokens=tokens,
        streams_per_sample=0,
        final_norm_weights=0,
    )


def _subsampling(config: Config, width: int) -> Block:
    first, second = config.counts("subsampling_conv_channels", (128, 32))[:2]
    parts = (
        Convolution(
            inputs=1, outputs=first, kernel=3, output_pixels=FRAMES * MELS // 4, norm_parameters=first
        ),
        Convolution(
            inputs=first, outputs=second, kernel=3, output_pixels=FRAMES * MELS // 16, norm_parameters=second
        ),
        Linear(inputs=first // 4 * second, outputs=width, has_bias=False),
    )
    return Block(name="subsampling", parts=parts, norms=0)


def _conformer(config: Config, width: int, tokens: int) -> Block:
    """Two feed-forward parts around attention over the last tokens and a depthwise convolution."""
    heads = config.count("num_attention_heads", 8)
    attention = Attention(
        kind=AttentionKind.SLIDING,
        heads=heads,
        kv_heads=heads,
        head_dim=width // heads,
        value_head_dim=width // heads,
        window_tokens=config.count("attention_context_left", 13),
        other_parameters=width * width + width // heads,  # map of relative positions, scale of each dim
    )
    outer = FeedForward(width=4 * width, is_gated=False)
    kernel = config.count("conv_kernel_size", 5)
    depthwise = Convolution(
        inputs=width, outputs=width, kernel=kernel, groups=width, output_pixels=tokens, dims=1
    )
    gate = Linear(inputs=width, outputs=2 * width, has_bias=False)
    back = Linear(inputs=width, outputs=width, has_bias=False)
    parts = (outer, attention, gate, depthwise, back, outer)
    return Block(name="conformer", parts=parts, norms=AUDIO_NORMS)
