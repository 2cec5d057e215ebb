"""Convolutional image networks: ResNet and ConvNeXt. One builder for each family.

Defaults for missing keys are those of the configuration classes of transformers 5.24. Norms of a convolution
count their weight and bias; running statistics are buffers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from escala.catalog.families.config import MOST_LAYERS, Config
from escala.catalog.families.layers import LAYER_NORM_VECTORS, is_bare, label_count, rows
from escala.catalog.families.vision import sides
from escala.model.network import Block, Convolution, FeedForward, Head, Stack, StackRole

IMAGE_SIDE: Final = 224
"""Assumption where a config gives no image_size: the crop that ImageNet networks are trained on."""
REDUCTION: Final = 4  # He et al. 2016, table 1: the inner width of a bottleneck is a quarter of the outer


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """Height and width of what flows between layers, in pixels."""

    height: int
    width: int

    @property
    def pixels(self) -> int:
        """Height * width."""
        return self.height * self.width

    def strided(self, stride: int) -> "Area":
        """After a convolution that keeps borders, at every stride-th position."""
        return Area(height=-(-self.height // stride), width=-(-self.width // stride))


def resnet(config: Config) -> tuple[Stack, ...]:
    """ResNet: a strided stem and pool, then stages of basic or bottleneck layers with shortcuts."""
    sizes, depths = _stages(config, (256, 512, 1024, 2048), (3, 4, 6, 3))
    width = config.count("embedding_size", 64)
    stem_area = image_area(config).strided(2)
    stem = normed_convolution(config.count("num_channels", 3), width, 7, stem_area)
    area = stem_area.strided(2)
    layers = [Block(name="stem", parts=(replace(stem, pooled_pixels=area.pixels),), norms=0)]
    for stage, (outputs, depth) in enumerate(zip(sizes, depths, strict=True)):
        stride = 2 if stage > 0 or config.flag("downsample_in_first_stage") else 1
        layers += _resnet_stage(config, width, outputs, depth, stride, area)
        width, area = outputs, area.strided(stride)
    return (classifying(config, layers, width, area),)


def convnext(config: Config) -> tuple[Stack, ...]:
    """ConvNeXt: one stack for each stage, as each has its own width; depthwise layers with layer scale."""
    sizes, depths = _stages(config, (96, 192, 384, 768), (3, 3, 9, 3))
    area = image_area(config).strided(config.count("patch_size", 4))
    inputs = config.count("num_channels", 3)
    stacks = []
    for stage, (outputs, depth) in enumerate(zip(sizes, depths, strict=True)):
        is_last = stage == len(sizes) - 1
        area = area.strided(2) if stage else area
        entry = _entry(config, stage, inputs, outputs, area)
        layers = [entry, *[_convnext_layer(config, outputs, area)] * depth]
        stacks.append(_convnext_stack(config, outputs, layers, area, is_last))
        inputs = outputs
    return tuple(stacks)


def _resnet_stage(
    config: Config, inputs: int, outputs: int, depth: int, stride: int, area: Area
) -> Iterator[Block]:
    is_bottleneck = config.word("layer_type", "bottleneck") == "bottleneck"
    layer = _bottleneck if is_bottleneck else _basic
    early = config.flag("downsample_in_bottleneck")
    after = area.strided(stride)
    entry = layer(inputs, outputs, area, after, early)
    if inputs != outputs or stride != 1:
        entry = (*entry, normed_convolution(inputs, outputs, 1, after))
    yield Block(name=f"{outputs} wide, entry", parts=entry, norms=0)
    rest = Block(name=f"{outputs} wide", parts=layer(outputs, outputs, after, after, early), norms=0)
    yield from [rest] * (depth - 1)


def _bottleneck(
    inputs: int, outputs: int, before: Area, after: Area, strides_early: bool
) -> tuple[Convolution, ...]:
    inner = max(1, outputs // REDUCTION)
    return (
        normed_convolution(inputs, inner, 1, after if strides_early else before),
        normed_convolution(inner, inner, 3, after),
        normed_convolution(inner, outputs, 1, after),
    )


def _basic(
    inputs: int, outputs: int, before: Area, after: Area, strides_early: bool
) -> tuple[Convolution, ...]:
    return normed_convolution(inputs, outputs, 3, after), normed_convolution(outputs, outputs, 3, after)


def _entry(config: Config, stage: int, inputs: int, outputs: int, area: Area) -> Block:
    """Before the layers of a stage: the stem with its norm, or a norm and a strided convolution."""
    is_stem = stage == 0
    convolution = Convolution(
        inputs=inputs,
        outputs=outputs,
        kernel=config.count("patch_size", 4) if is_stem else 2,
        output_pixels=area.pixels,
        has_bias=True,
        norm_parameters=LAYER_NORM_VECTORS * (outputs if is_stem else inputs),
    )
    return Block(name="stem" if is_stem else "downsampling", parts=(convolution,), norms=0)


def _convnext_layer(config: Config, width: int, area: Area) -> Block:
    depthwise = Convolution(
        inputs=width, outputs=width, kernel=7, groups=width, output_pixels=area.pixels, has_bias=True
    )
    channels = FeedForward(width=4 * width, is_gated=False, has_bias=True)
    scale = width if config.number("layer_scale_init_value", 1e-6) > 0 else 0
    return Block(
        name=f"{width} wide",
        parts=(depthwise, channels),
        norms=1,
        norm_weights=LAYER_NORM_VECTORS,
        other_parameters=scale,
    )


def _convnext_stack(config: Config, width: int, layers: list[Block], area: Area, is_last: bool) -> Stack:
    blocks, pattern = rows(layers)
    return Stack(
        role=StackRole.CONVOLUTION,
        hidden=width,
        blocks=blocks,
        pattern=pattern,
        tokens=area.pixels,
        head=classifier(config) if is_last else None,
        final_norm_weights=LAYER_NORM_VECTORS if is_last else 0,
    )


def normed_convolution(inputs: int, outputs: int, kernel: int, area: Area) -> Convolution:
    """A convolution without bias, followed by batch norm."""
    return Convolution(
        inputs=inputs, outputs=outputs, kernel=kernel, output_pixels=area.pixels, norm_parameters=2 * outputs
    )


def classifying(config: Config, layers: list[Block], hidden: int, area: Area) -> Stack:
    """The stack of all layers, with its classifier, whose norms are those of its convolutions."""
    blocks, pattern = rows(layers)
    return Stack(
        role=StackRole.CONVOLUTION,
        hidden=hidden,
        blocks=blocks,
        pattern=pattern,
        tokens=area.pixels,
        head=classifier(config),
        final_norm_weights=0,
    )


def classifier(config: Config) -> Head | None:
    """A classifier over the pooled output; none for the bare class."""
    return None if is_bare(config) else Head(outputs=label_count(config), has_bias=True, is_per_token=False)


def image_area(config: Config) -> Area:
    """The area of image_size, which is that of ImageNet where the config is silent."""
    height, width = sides(config, "image_size", IMAGE_SIDE)
    return Area(height=height, width=width)


def _stages(
    config: Config, sizes: tuple[int, ...], depths: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    widths, counts = config.counts("hidden_sizes", sizes), config.counts("depths", depths)
    if len(widths) != len(counts) or not widths:
        raise config.refuse("depths", list(counts), f"one number for each of {len(widths)} hidden_sizes")
    if sum(counts) > MOST_LAYERS:
        raise config.refuse("depths", list(counts), f"at most {MOST_LAYERS:,} layers together")
    return widths, counts
