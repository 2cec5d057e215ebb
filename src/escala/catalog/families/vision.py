"""Image transformers and the towers of multimodal models. One builder for each family.

Defaults for missing keys are those of the configuration classes of transformers 5.24.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from escala.catalog.families.config import Config
from escala.catalog.families.dense import gemma3_text, qwen2
from escala.catalog.families.encoder import dense_parameters
from escala.catalog.families.layers import (
    LAYER_NORM_VECTORS,
    full_attention,
    is_bare,
    label_count,
    plain_feed_forward,
    repeated,
    rows,
    windowed,
)
from escala.model.network import (
    Block,
    Embedding,
    FeedForward,
    Head,
    Linear,
    Part,
    Stack,
    StackRole,
)

QWEN_IMAGE_SIDE: Final = 448
"""Assumption: pixels a side of one image for Qwen2.5-VL, which takes any size."""


def vit(config: Config) -> tuple[Stack, ...]:
    """ViT: patches and one class token; a classifier over that token, or a pooler."""
    hidden = config.count("hidden_size")
    tokens = _patches(config, image=224, patch=16) + 1
    embedding = Embedding(
        patch_inputs=_patch_inputs(config, patch=16), positions=tokens, other_parameters=2 * hidden
    )
    attention = full_attention(config, is_causal=False)
    attention = replace(attention, has_qkv_bias=config.flag("qkv_bias", True))
    block = _block(attention, plain_feed_forward(config))
    return (_tower(config, repeated(config, block), embedding, tokens, head=image_head(config)),)


def gemma3(config: Config) -> tuple[Stack, ...]:
    """Gemma 3 with images: a SigLIP tower, its projector, and the text decoder."""
    text = config.table("text_config", inherit=("tie_word_embeddings",))
    vision = config.table("vision_config")
    outputs, inputs = text.count("hidden_size"), vision.count("hidden_size")
    projection = Linear(inputs=inputs, outputs=outputs, has_bias=False, other_parameters=inputs)
    projector = projector_stack(config.count("mm_tokens_per_image", 256), outputs, (projection,))
    return (siglip(vision), projector, *gemma3_text(text))


def siglip(config: Config) -> Stack:
    """SigLIP image tower: patches without class token, and an attention pooler unless it is switched off."""
    tokens = _patches(config, image=224, patch=16)
    patches = _patch_inputs(config, patch=16)
    embedding = Embedding(
        patch_inputs=patches, positions=tokens, other_parameters=config.count("hidden_size")
    )
    block = _block(full_attention(config, is_causal=False), plain_feed_forward(config))
    has_pooler = config.flag("vision_use_head", True)
    head = (
        Head(outputs=0, is_per_token=False, other_parameters=_siglip_pooler(config)) if has_pooler else None
    )
    return _tower(config, repeated(config, block), embedding, tokens, head=head)


def qwen2_5_vl(config: Config) -> tuple[Stack, ...]:
    """Qwen2.5-VL: a tower with windows, a merger of patches, and a Qwen2 decoder.

    Older files hold the keys of the decoder at the top level.
    """
    nested = config.has("text_config")
    text = config.table("text_config", inherit=("tie_word_embeddings",)) if nested else config
    vision = config.table("vision_config")
    merged = vision.count("spatial_merge_size", 2) ** 2
    inputs = vision.count("hidden_size") * merged
    outputs = vision.count("out_hidden_size", text.count("hidden_size"))
    maps = (
        Linear(inputs=inputs, outputs=inputs, other_parameters=vision.count("hidden_size")),
        Linear(inputs=inputs, outputs=outputs),
    )
    tokens = max(1, _qwen_patches(vision) // merged)
    return (_qwen_tower(vision), projector_stack(tokens, outputs, maps), *qwen2(text))


def image_head(config: Config) -> Head | None:
    """A classifier over one vector of each image; a pooler for the bare class."""
    if is_bare(config):
        return Head(outputs=0, is_per_token=False, other_parameters=dense_parameters(config))
    return Head(outputs=label_count(config), has_bias=True, is_per_token=False)


def projector_stack(tokens: int, hidden: int, maps: tuple[Linear, ...]) -> Stack:
    """One layer of linear maps between a tower and a decoder."""
    block = Block(name="projector", parts=maps, norms=0)
    return Stack(
        role=StackRole.PROJECTOR,
        hidden=hidden,
        blocks=(block,),
        pattern=(0,),
        tokens=tokens,
        final_norm_weights=0,
    )


def sides(config: Config, key: str, default: int) -> tuple[int, int]:
    """Height and width: one number for both, or a list of two."""
    if not isinstance(config.keys.get(key), list | tuple):
        side = config.count(key, default)
        return side, side
    given = config.counts(key)
    if len(given) != 2:
        raise config.refuse(key, list(given), "one whole number or a list of two")
    return given[0], given[1]


def _patches(config: Config, *, image: int, patch: int) -> int:
    image_height, image_width = sides(config, "image_size", image)
    patch_height, patch_width = sides(config, "patch_size", patch)
    patches = (image_height // patch_height) * (image_width // patch_width)
    if patches < 1:
        raise config.refuse("patch_size", patch_height, f"at most the image, {image_height} x {image_width}")
    return patches


def _patch_inputs(config: Config, *, patch: int) -> int:
    height, width = sides(config, "patch_size", patch)
    return config.count("num_channels", 3) * height * width


def _block(attention: Part, feed_forward: Part) -> Block:
    return Block(name="encoder", parts=(attention, feed_forward), norm_weights=LAYER_NORM_VECTORS)


def _tower(
    config: Config, layers: Iterable[Block], embedding: Embedding, tokens: int, head: Head | None
) -> Stack:
    blocks, pattern = rows(layers)
    return Stack(
        role=StackRole.VISION,
        hidden=config.count("hidden_size"),
        blocks=blocks,
        pattern=pattern,
        tokens=tokens,
        embedding=embedding,
        head=head,
        final_norm_weights=LAYER_NORM_VECTORS,
    )


def _siglip_pooler(config: Config) -> int:
    """A probe, one full attention, a norm and one feed-forward."""
    hidden, width = config.count("hidden_size"), config.count("intermediate_size")
    attention = 4 * (hidden * hidden + hidden)
    return hidden + attention + 2 * hidden + 2 * hidden * width + width + hidden


def _qwen_patches(vision: Config) -> int:
    return (QWEN_IMAGE_SIDE // _qwen_patch(vision)) ** 2 or 1


def _qwen_patch(vision: Config) -> int:
    return vision.count("patch_size", vision.count("spatial_patch_size", 14))


def _qwen_tower(vision: Config) -> Stack:
    """Blocks with windows but for those in fullatt_block_indexes; patches span two frames."""
    patch = _qwen_patch(vision)
    channels = vision.count("in_channels", vision.count("in_chans", 3))
    inputs = channels * vision.count("temporal_patch_size", 2) * patch * patch
    feed_forward = FeedForward(width=vision.count("intermediate_size", 3420), has_bias=True)
    block = Block(name="encoder", parts=(full_attention(vision, is_causal=False), feed_forward))
    side = max(1, vision.count("window_size", 112) // patch)
    full = set(vision.counts("fullatt_block_indexes", (7, 15, 23, 31), least=0))
    layers = range(vision.count("depth", 32))
    kinds = [block if layer in full else windowed(block, side * side) for layer in layers]
    tower = _tower(vision, kinds, Embedding(patch_inputs=inputs), _qwen_patches(vision), head=None)
    return replace(tower, final_norm_weights=0)
