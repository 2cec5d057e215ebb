"""Current dense decoders: RMSNorm, rotary positions, gated feed-forward. One builder for each family.

Defaults for missing keys are those of the configuration classes of transformers 5.24.
"""

from dataclasses import replace

from escala.catalog.families.config import Config
from escala.catalog.families.layers import (
    decoder,
    gated_feed_forward,
    grouped_attention,
    layer_windows,
    repeated,
    windowed,
    with_head_norms,
)
from escala.model.network import Attention, Block, Stack


def llama(config: Config) -> tuple[Stack, ...]:
    """Llama 1 to 3, SmolLM2, Granite: grouped heads and SwiGLU, biases only on request."""
    attention = grouped_attention(config, has_bias=config.flag("attention_bias"))
    feed_forward = gated_feed_forward(config, has_bias=config.flag("mlp_bias"))
    return (decoder(config, repeated(config, Block(name="dense", parts=(attention, feed_forward)))),)


def mistral(config: Config) -> tuple[Stack, ...]:
    """Mistral: Llama with a sliding window in every layer unless it is null."""
    window = None if config.is_null("sliding_window") else config.count("sliding_window", 4096)
    block = _block(config, grouped_attention(config, kv_heads=8))
    return (decoder(config, [windowed(block, each) for each in layer_windows(config, window)]),)


def qwen2(config: Config) -> tuple[Stack, ...]:
    """Qwen2 and 2.5: biases on queries, keys and values; windows from layer max_window_layers on, if used."""
    attention = replace(grouped_attention(config, kv_heads=32), has_qkv_bias=True)
    return (decoder(config, qwen_windows(config, [_block(config, attention)] * _layers(config))),)


def qwen3(config: Config) -> tuple[Stack, ...]:
    """Qwen3: head norms on queries and keys, no biases, a head width of its own."""
    has_bias = config.flag("attention_bias")
    attention = grouped_attention(config, kv_heads=32, head_dim=128, has_bias=has_bias)
    block = _block(config, with_head_norms(attention))
    return (decoder(config, qwen_windows(config, [block] * _layers(config))),)


def qwen_windows(config: Config, layers: list[Block], first_sliding: int = 28) -> list[Block]:
    """The layers with the windows of the Qwen families, which need use_sliding_window."""
    used = config.flag("use_sliding_window")
    window = config.maybe_count("sliding_window", least=0) if used else None
    first = config.count("max_window_layers", first_sliding, least=0)
    windows = layer_windows(config, window or None, lambda layer: layer >= first)
    return [windowed(block, each) for block, each in zip(layers, windows, strict=True)]


def gemma(config: Config) -> tuple[Stack, ...]:
    """Gemma: wide heads, GeGLU, tied vocabulary."""
    has_bias = config.flag("attention_bias")
    attention = grouped_attention(config, kv_heads=16, head_dim=256, has_bias=has_bias)
    return (decoder(config, repeated(config, _block(config, attention)), is_tied=True),)


def gemma2(config: Config) -> tuple[Stack, ...]:
    """Gemma 2: norms before and after both parts; windows in every other layer, from the first."""
    has_bias = config.flag("attention_bias")
    attention = grouped_attention(config, kv_heads=4, head_dim=256, has_bias=has_bias)
    block = _block(config, attention, norms=4)
    windows = layer_windows(config, config.count("sliding_window", 4096), lambda layer: layer % 2 == 0)
    return (decoder(config, [windowed(block, each) for each in windows], is_tied=True),)


def gemma3_text(config: Config) -> tuple[Stack, ...]:
    """Gemma 3: as Gemma 2 with head norms and five sliding layers to one full."""
    text = replace(config, keys={"num_attention_heads": 8, "vocab_size": 262_208, **config.keys})
    has_bias = text.flag("attention_bias")
    attention = grouped_attention(text, kv_heads=4, head_dim=256, has_bias=has_bias)
    block = _block(text, with_head_norms(attention), norms=4)
    period = text.count("sliding_window_pattern", text.count("_sliding_window_pattern", 6))
    windows = layer_windows(text, text.count("sliding_window", 4096), lambda layer: (layer + 1) % period != 0)
    return (decoder(text, [windowed(block, each) for each in windows], is_tied=True),)


def phi3(config: Config) -> tuple[Stack, ...]:
    """Phi-3 and Phi-4: Llama with fused matrices, which count the same."""
    block = _block(config, grouped_attention(config))
    window = config.maybe_count("sliding_window")
    return (decoder(config, [windowed(block, each) for each in layer_windows(config, window)]),)


def glm4(config: Config) -> tuple[Stack, ...]:
    """GLM-4: biases on queries, keys and values, and norms before and after both parts."""
    attention = grouped_attention(config, kv_heads=2, head_dim=128)
    attention = replace(attention, has_qkv_bias=config.flag("attention_bias", True))
    return (decoder(config, repeated(config, _block(config, attention, norms=4))),)


def olmo2(config: Config) -> tuple[Stack, ...]:
    """OLMo 2: norms after the parts only; query and key norms over all heads together."""
    attention = grouped_attention(config, has_bias=config.flag("attention_bias"))
    norm_width = (attention.heads + attention.kv_heads) * attention.head_dim
    attention = replace(attention, has_qk_norm=True, other_parameters=norm_width)
    return (decoder(config, repeated(config, _block(config, attention))),)


def _block(config: Config, attention: Attention, norms: int = 2) -> Block:
    return Block(name="dense", parts=(attention, gated_feed_forward(config)), norms=norms)


def _layers(config: Config) -> int:
    return config.count("num_hidden_layers")
