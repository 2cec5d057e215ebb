"""EfficientNet: depthwise convolutions between narrow streams, each rescaled by squeeze-and-excitation.

Defaults for missing keys are those of the configuration class of transformers 5.24, which are those of B7.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from escala.catalog.families.config import MOST_LAYERS, Config
from escala.catalog.families.convolution import Area, classifying, image_area, normed_convolution
from escala.model.network import Block, Convolution, Stack

STEM: Final = 32  # Tan and Le 2019, table 1: channels of the stem and of the last convolution
TOP: Final = 1280


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """One row of the table of the paper, scaled in width and depth."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    ratio: int
    depth: int


def efficientnet(config: Config) -> tuple[Stack, ...]:
    """EfficientNet: a strided stem, seven stages of inverted bottlenecks, one wide convolution at the end.

    Source: Tan and Le 2019, table 1 and equation 3 (compound scaling).
    """
    area = _half(image_area(config))
    stem = normed_convolution(config.count("num_channels", 3), _channels(config, STEM), 3, area)
    stem = replace(stem, kept_outputs=3)  # SiLU keeps its input
    layers, even = [Block(name="stem", parts=(stem,), norms=0)], set(_list(config, "depthwise_padding", ()))
    for stage in _stages(config):
        for number in range(stage.depth):
            is_entry = number == 0
            inputs = stage.inputs if is_entry else stage.outputs
            stride = stage.stride if is_entry else 1
            before, index = area, len(layers) - 1
            if stride > 1:
                area = area.strided(stride) if index in even else _half(area)
            layers.append(_layer(config, stage, inputs, before, area, is_entry))
    hidden = config.count("hidden_dim", 2560)
    top = normed_convolution(stage.outputs, _channels(config, TOP), 1, area)
    layers.append(
        Block(name="top", parts=(replace(top, norm_parameters=2 * hidden, kept_outputs=3),), norms=0)
    )
    return (classifying(config, layers, hidden, area),)


def _layer(config: Config, stage: _Stage, inputs: int, before: Area, after: Area, is_entry: bool) -> Block:
    """Wider, one kernel for each channel, rescaled by the mean of each channel, narrower again."""
    wide = inputs * stage.ratio
    depthwise = normed_convolution(wide, wide, stage.kernel, after)
    narrow = max(1, int(inputs * config.positive("squeeze_expansion_ratio", 0.25)))
    mean = Area(height=1, width=1)
    parts = (
        *(
            (replace(normed_convolution(inputs, wide, 1, before), kept_outputs=3),)
            if stage.ratio != 1
            else ()
        ),
        replace(depthwise, groups=wide, is_squeezed=True, kept_outputs=4),
        _biased(wide, narrow, mean),
        _biased(narrow, wide, mean),
        normed_convolution(wide, stage.outputs, 1, after),
    )
    name = f"{stage.outputs} wide, entry" if is_entry else f"{stage.outputs} wide"
    return Block(name=name, parts=parts, norms=0)


def _biased(inputs: int, outputs: int, area: Area) -> Convolution:
    return replace(normed_convolution(inputs, outputs, 1, area), norm_parameters=0, has_bias=True)


def _stages(config: Config) -> Iterator[_Stage]:
    columns = (
        _list(config, "in_channels", (32, 16, 24, 40, 80, 112, 192)),
        _list(config, "out_channels", (16, 24, 40, 80, 112, 192, 320)),
        _list(config, "kernel_sizes", (3, 3, 5, 3, 5, 5, 3)),
        _list(config, "strides", (1, 2, 2, 2, 1, 2, 1)),
        _list(config, "expand_ratios", (1, 6, 6, 6, 6, 6, 6)),
        _list(config, "num_block_repeats", (1, 2, 2, 3, 3, 4, 1)),
    )
    if len({len(column) for column in columns}) != 1 or not columns[0]:
        raise config.refuse(
            "out_channels", list(columns[1]), "as many numbers as in_channels and the other lists"
        )
    deeper = config.positive("depth_coefficient", 3.1)
    depths = [math.ceil(deeper * repeats) for repeats in columns[5]]
    if not 1 <= min(depths) <= sum(depths) <= MOST_LAYERS:
        raise config.refuse("depth_coefficient", deeper, f"1 to {MOST_LAYERS:,} layers together")
    for inputs, outputs, kernel, stride, ratio, depth in zip(*columns[:5], depths, strict=True):
        yield _Stage(
            inputs=_channels(config, inputs),
            outputs=_channels(config, outputs),
            kernel=kernel,
            stride=stride,
            ratio=ratio,
            depth=depth,
        )


def _channels(config: Config, channels: int) -> int:
    """Channels times the width, to the nearest multiple of the divisor that is at least nine tenths."""
    divisor, wanted = config.count("depth_divisor", 8), channels * config.positive("width_coefficient", 2.0)
    rounded = max(divisor, int(wanted + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * wanted else rounded


def _half(area: Area) -> Area:
    """After a convolution at every second position whose border is kept at the end alone."""
    return Area(height=max(1, area.height // 2), width=max(1, area.width // 2))


def _list(config: Config, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
    return config.counts(key, default, least=0 if key == "depthwise_padding" else 1)
