"""Speech: Whisper, an encoder over 30 s of sound and a decoder of text.

Defaults for missing keys are those of the configuration class of transformers 5.24.
"""

from dataclasses import replace

from escala.catalog.families.config import Config
from escala.catalog.families.layers import LAYER_NORM_VECTORS, full_attention, language_head
from escala.model.network import (
    AttentionKind,
    Block,
    Convolution,
    Embedding,
    FeedForward,
    Stack,
    StackRole,
)


def whisper(config: Config) -> tuple[Stack, ...]:
    """Whisper: two convolutions over the spectrum, an encoder, and a decoder that reads it in every layer.

    The table of sines of the encoder counts as parameters, as in transformers; it is not trained.
    """
    source = config.count("max_source_positions", 1500)
    return (_stem(config, source), _encoder(config, source), _decoder(config, source))


def _stem(config: Config, source: int) -> Stack:
    """Kernels of three frames: one at every frame, one at every second."""
    hidden = config.count("hidden_size")
    first = Convolution(
        inputs=config.count("num_mel_bins", 80),
        outputs=hidden,
        kernel=3,
        output_pixels=2 * source,
        has_bias=True,
        dims=1,
    )
    second = replace(first, inputs=hidden, output_pixels=source)
    return Stack(
        role=StackRole.CONVOLUTION,
        hidden=hidden,
        blocks=(Block(name="stem", parts=(first, second), norms=0),),
        pattern=(0,),
        tokens=source,
        final_norm_weights=0,
    )


def _encoder(config: Config, source: int) -> Stack:
    own = _side(config, "encoder")
    attention = replace(full_attention(own, is_causal=False), has_key_bias=False)
    block = Block(name="encoder", parts=(attention, _feed_forward(own)), norm_weights=LAYER_NORM_VECTORS)
    return Stack(
        role=StackRole.ENCODER,
        hidden=config.count("hidden_size"),
        blocks=(block,),
        pattern=(0,) * config.count("encoder_layers", 4),
        tokens=source,
        embedding=Embedding(positions=source),
        final_norm_weights=LAYER_NORM_VECTORS,
    )


def _decoder(config: Config, source: int) -> Stack:
    own = _side(config, "decoder")
    attention = replace(full_attention(own), has_key_bias=False)
    crossing = replace(
        attention,
        kind=AttentionKind.CROSS,
        is_causal=False,
        source_tokens=source,
        name="cross-attention",
    )
    parts = (attention, crossing, _feed_forward(own))
    block = Block(name="decoder", parts=parts, norms=3, norm_weights=LAYER_NORM_VECTORS)
    positions = config.count("max_target_positions", 448)
    return Stack(
        role=StackRole.DECODER,
        hidden=config.count("hidden_size"),
        blocks=(block,),
        pattern=(0,) * config.count("decoder_layers", 4),
        embedding=Embedding(vocab=config.count("vocab_size"), positions=positions),
        head=language_head(config, is_tied=True),
        final_norm_weights=LAYER_NORM_VECTORS,
    )


def _side(config: Config, side: str) -> Config:
    """The config with the heads and the width of one side under their usual names."""
    heads, width = config.count(f"{side}_attention_heads", 6), config.count(f"{side}_ffn_dim", 1536)
    return replace(config, keys={**config.keys, "num_attention_heads": heads, "intermediate_size": width})


def _feed_forward(config: Config) -> FeedForward:
    return FeedForward(width=config.count("intermediate_size"), is_gated=False, has_bias=True)
