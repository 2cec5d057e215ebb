"""Earlier decoders: LayerNorm, biases, learned or no positions. One builder for each family.

Defaults for missing keys are those of the configuration classes of transformers 5.24.
"""

from dataclasses import replace
from typing import Final

from escala.catalog.families.config import Config
from escala.catalog.families.layers import (
    LAYER_NORM_VECTORS,
    decoder,
    full_attention,
    plain_feed_forward,
    repeated,
)
from escala.model.network import Attention, Block, Embedding, FeedForward, Part, Stack

# transformers 5.24, NewGELUActivation: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x³))) in eight operations.
# Arrays read and written: forward 18 in place of 2, backward 28 in place of 3.
GELU_PASSES: Final = 41.0


def gpt2(config: Config) -> tuple[Stack, ...]:
    """GPT-2, GPT-3 and Megatron's GPT: learned positions, tied vocabulary."""
    positions = config.count("max_position_embeddings", 1024)
    embedding = Embedding(vocab=config.count("vocab_size"), positions=positions)
    block = _block(full_attention(config), _of_operations(config, _fourfold(config)))
    layers = repeated(config, block)
    return (decoder(config, layers, embedding=embedding, is_tied=True, norm_weights=LAYER_NORM_VECTORS),)


def gpt_neox(config: Config) -> tuple[Stack, ...]:
    """GPT-NeoX and Pythia: attention and feed-forward side by side, rotary positions, two vocabularies."""
    attention = full_attention(config, has_bias=config.flag("attention_bias", True))
    is_parallel = config.flag("use_parallel_residual", True)
    block = replace(_block(attention, plain_feed_forward(config)), is_parallel=is_parallel)
    return (decoder(config, repeated(config, block), norm_weights=LAYER_NORM_VECTORS),)


def gptj(config: Config) -> tuple[Stack, ...]:
    """GPT-J: parallel parts under one norm, no attention biases, a head with bias."""
    feed_forward = _of_operations(config, _fourfold(config))
    block = _block(full_attention(config, has_bias=False), feed_forward)
    layers = repeated(config, replace(block, norms=1, is_parallel=True))
    return (decoder(config, layers, head_has_bias=True, norm_weights=LAYER_NORM_VECTORS),)


def opt(config: Config) -> tuple[Stack, ...]:
    """OPT: learned positions with two spare rows; the 350M has a narrower vocabulary and no final norm."""
    hidden = config.count("hidden_size")
    width = config.count("word_embed_proj_dim", hidden)
    vectors = LAYER_NORM_VECTORS if config.flag("layer_norm_elementwise_affine", True) else 0
    has_bias = config.flag("enable_bias", True)
    has_final_norm = config.flag("do_layer_norm_before", True) and not config.flag("_remove_final_layer_norm")
    embedding = Embedding(
        vocab=config.count("vocab_size"),
        positions=config.count("max_position_embeddings", 2048) + 2,
        width=width,
        other_parameters=0 if width == hidden else 2 * width * hidden,
    )
    block = _block(full_attention(config, has_bias=has_bias), plain_feed_forward(config, has_bias=has_bias))
    layers = repeated(config, replace(block, norm_weights=vectors))
    final = vectors if has_final_norm else 0
    return (decoder(config, layers, embedding=embedding, is_tied=True, norm_weights=final),)


def bloom(config: Config) -> tuple[Stack, ...]:
    """BLOOM: ALiBi instead of positions, a norm after the vocabulary, always four times the width."""
    hidden = config.count("hidden_size")
    embedding = Embedding(vocab=config.count("vocab_size"), other_parameters=LAYER_NORM_VECTORS * hidden)
    wide = FeedForward(width=4 * hidden, is_gated=False, has_bias=True)
    layers = repeated(config, _block(full_attention(config), wide))
    return (decoder(config, layers, embedding=embedding, is_tied=True, norm_weights=LAYER_NORM_VECTORS),)


def falcon(config: Config) -> tuple[Stack, ...]:
    """Falcon: one key-value head, or grouped ones in the new architecture; parallel parts."""
    has_bias = config.flag("bias")
    attention = replace(full_attention(config, has_bias=has_bias), kv_heads=_falcon_kv_heads(config))
    block = replace(
        _block(attention, _fourfold(config, has_bias=has_bias)),
        norms=_falcon_norms(config),
        is_parallel=config.flag("parallel_attn", True),
    )
    return (decoder(config, repeated(config, block), is_tied=True, norm_weights=LAYER_NORM_VECTORS),)


def _falcon_kv_heads(config: Config) -> int:
    heads = config.count("num_attention_heads")
    if config.flag("new_decoder_architecture"):
        return config.count("num_kv_heads", heads)
    return 1 if config.flag("multi_query", True) else heads


def _falcon_norms(config: Config) -> int:
    if config.flag("new_decoder_architecture"):
        return config.count("num_ln_in_parallel_attn", 2)
    return 1 if config.flag("parallel_attn", True) else 2


def _fourfold(config: Config, has_bias: bool = True) -> FeedForward:
    """Four times as wide as the stream unless a width is given."""
    width = config.count("intermediate_size", 4 * config.count("hidden_size"))
    return FeedForward(width=width, is_gated=False, has_bias=has_bias)


def _of_operations(config: Config, feed_forward: FeedForward) -> FeedForward:
    """With the passes of GPT-2's own GELU, unless the config asks for an activation in one kernel."""
    is_new = config.word("activation_function", "gelu_new") == "gelu_new"
    return replace(feed_forward, activation_passes=GELU_PASSES if is_new else 0.0)


def _block(attention: Attention, feed_forward: Part) -> Block:
    return Block(name="dense", parts=(attention, feed_forward), norm_weights=LAYER_NORM_VECTORS)
