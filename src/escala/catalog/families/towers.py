"""Towers that turn images into tokens of a text, each with the projector behind it. Reads no text decoder.

Defaults for missing keys are those of the configuration classes of transformers 5.24. A tower whose images
may have any size carries its `Grid`; it is built for `IMAGE_SIDE`, and `model.images` gives it another size.
"""

from dataclasses import replace
from typing import Final

from escala.catalog.families.config import Config
from escala.catalog.families.layers import (
    LAYER_NORM_VECTORS,
    full_attention,
    gated_feed_forward,
    grouped_attention,
    plain_feed_forward,
    with_head_norms,
)
from escala.catalog.families.vision import projector_stack, sides
from escala.model.images import cut
from escala.model.network import Attention, Block, Embedding, Grid, Linear, Stack, StackRole

IMAGE_SIDE: Final = 448
"""Assumption: pixels a side of one image where a network takes any size, as for Qwen2.5-VL."""
GEMMA_SOFT_TOKENS: Final = 280  # transformers 5.24, Gemma4ImageProcessor.max_soft_tokens


def qwen3_vl_tower(vision: Config, hidden: int, deepstack: tuple[int, ...] = ()) -> tuple[Stack, Stack]:
    """Qwen3-VL and Qwen3.5: a tower of full attention, a merger of 2 x 2 patches into a text `hidden` wide.

    Layers named in deepstack_visual_indexes (`deepstack` where the config does not say) have a merger each,
    whose outputs are added to the first layers of the decoder.
    """
    patch, width, merge = vision.count("patch_size", 16), vision.count("hidden_size", 1152), _merge(vision)
    inputs = vision.count("in_channels", 3) * vision.count("temporal_patch_size", 2) * patch**2
    embedding = Embedding(
        patch_inputs=inputs,
        positions=vision.count("num_position_embeddings", 2304),
        other_parameters=width,
    )
    # transformers 5.24, Qwen3VLProcessor: 256² to 4,096² pixels
    grid = Grid(patch_pixels=patch, side_patches=merge, least_pixels=256**2, most_pixels=4096**2)
    block = _plain_block(vision)
    fused = tuple(
        replace(part, has_fused_maps=True) if isinstance(part, Attention) else part for part in block.parts
    )
    block = replace(block, parts=fused)
    tower = _tower(vision, block, vision.count("depth", 27), embedding, grid, norm_weights=0)
    outputs = vision.count("out_hidden_size", hidden)
    deep = len(vision.counts("deepstack_visual_indexes", deepstack, least=0))
    norms = LAYER_NORM_VECTORS * width * (1 + deep * merge**2)
    inner = width * merge**2
    maps = (Linear(inputs=inner, outputs=inner), Linear(inputs=inner, outputs=outputs)) * (1 + deep)
    return tower, _projector(tower, outputs, maps, norms)


def pixtral_tower(config: Config, hidden: int) -> tuple[Stack, Stack]:
    """Pixtral in Mistral 3: gated layers with RMSNorm, then a merger of patches and two maps."""
    vision = config.table("vision_config")
    width, merge = vision.count("hidden_size", 1024), _merge(config)
    patch = vision.count("patch_size", 16)
    attention = full_attention(vision, has_bias=False, is_causal=False)
    block = Block(name="encoder", parts=(attention, gated_feed_forward(vision)))
    embedding = Embedding(patch_inputs=vision.count("num_channels", 3) * patch**2, other_parameters=width)
    side = vision.count("image_size", 1024)
    grid = Grid(patch_pixels=patch, side_patches=merge, rounds_up=True, most_side_pixels=side)
    tower = _tower(vision, block, vision.count("num_hidden_layers", 24), embedding, grid, norm_weights=0)
    has_bias = config.flag("multimodal_projector_bias")
    chosen = config.keys.get("vision_feature_layer")
    chosen_layers = len(chosen) if isinstance(chosen, list | tuple) else 1
    maps = (
        Linear(inputs=width * merge**2, outputs=width, has_bias=False),
        Linear(inputs=width * chosen_layers, outputs=hidden, has_bias=has_bias),
        Linear(inputs=hidden, outputs=hidden, has_bias=has_bias),
    )
    return tower, _projector(tower, hidden, maps, width)


def llama4_tower(vision: Config, hidden: int) -> tuple[Stack, Stack]:
    """Llama 4: tiles of one size with a class token, then pixels shuffled together and three maps.

    A larger image is up to 16 tiles and one of the whole; the tower is built for one tile.
    """
    height, side = sides(vision, "image_size", 448)[0], vision.count("patch_size", 14)
    width, tokens = vision.count("hidden_size", 768), (height // side) ** 2 + 1
    ratio = vision.number("pixel_shuffle_ratio", 0.5)
    if not 1 / 64 <= ratio <= 1:
        raise vision.refuse("pixel_shuffle_ratio", ratio, "a number from 1/64 to 1")
    merge = round(1 / ratio)
    embedding = Embedding(
        patch_inputs=vision.count("num_channels", 3) * side**2,
        positions=tokens,
        other_parameters=width + LAYER_NORM_VECTORS * width,
    )
    # transformers 5.24, Llama4ImageProcessor.max_patches
    grid = Grid(patch_pixels=side, side_patches=merge, tile_pixels=height, most_tiles=16, spare_tokens=1)
    tower = _tower(
        vision, _plain_block(vision), vision.count("num_hidden_layers", 34), embedding, grid, norm_weights=2
    )
    inner, outer = vision.count("projector_input_dim", 4096), vision.count("projector_output_dim", 4096)
    maps = (
        Linear(inputs=vision.count("intermediate_size", 5632), outputs=inner, has_bias=False),
        Linear(inputs=outer, outputs=outer, has_bias=False),
        Linear(inputs=vision.count("vision_output_dim", 7680), outputs=hidden, has_bias=False),
    )
    return tower, _projector(tower, hidden, maps)


def gemma4_tower(vision: Config, hidden: int) -> tuple[Stack, Stack]:
    """Gemma 4: patches padded to one number, pooled 3 x 3 into at most 280 tokens, and one map."""
    patch, pooled = vision.count("patch_size", 16), vision.count("pooling_kernel_size", 3) ** 2
    attention = grouped_attention(vision, kv_heads=12, head_dim=64)
    attention = with_head_norms(replace(attention, is_causal=False, has_value_norm=True))
    parts = (attention, gated_feed_forward(vision))
    block = Block(name="encoder", parts=parts, norms=4, has_wide_norms=True)
    embedding = Embedding(
        patch_inputs=3 * patch**2, positions=2 * vision.count("position_embedding_size", 10_240)
    )
    tower = _tower(vision, block, vision.count("num_hidden_layers", 16), embedding, None, norm_weights=0)
    tower = replace(tower, tokens=GEMMA_SOFT_TOKENS * pooled)
    projection = Linear(inputs=vision.count("hidden_size", 768), outputs=hidden, has_bias=False)
    return tower, projector_stack(GEMMA_SOFT_TOKENS, hidden, (projection,))


def _merge(config: Config) -> int:
    return config.count("spatial_merge_size", 2)


def _plain_block(vision: Config) -> Block:
    parts = (full_attention(vision, is_causal=False), plain_feed_forward(vision))
    return Block(name="encoder", parts=parts, norm_weights=LAYER_NORM_VECTORS)


def _tower(
    vision: Config,
    block: Block,
    layers: int,
    embedding: Embedding,
    grid: Grid | None,
    norm_weights: int,
) -> Stack:
    """A row of equal layers over the patches of one image, with as many vectors of a norm behind it."""
    made = 0 if grid is None else cut(grid, IMAGE_SIDE, IMAGE_SIDE).patches + grid.spare_tokens
    return Stack(
        role=StackRole.VISION,
        hidden=vision.count("hidden_size"),
        blocks=(block,),
        pattern=(0,) * layers,
        tokens=made,
        grid=grid,
        embedding=embedding,
        final_norm_weights=norm_weights,
    )


def _projector(tower: Stack, hidden: int, maps: tuple[Linear, ...], norm_parameters: int = 0) -> Stack:
    """The maps behind a tower, over the tokens that its patches are merged into."""
    grid = tower.grid
    assert grid is not None
    assert tower.tokens is not None
    tokens = max(1, (tower.tokens - grid.spare_tokens) // grid.side_patches**2)
    first = replace(maps[0], other_parameters=norm_parameters)
    return projector_stack(tokens, hidden, (first, *maps[1:]))
