"""Shapes of convolutional networks that tables name and the catalog lacks: ResNeXt, EfficientNet.

Squeeze-and-excitation is a mark on the output that it rescales: its products are below one in a thousand.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from escala.catalog.networks import network
from escala.model.network import Block, Convolution, Head, Network, Part, Stack, StackRole

CLASSES: Final = 1000
# EfficientNet-B0 (Tan and Le 2019, table 1): expansion, kernel, stride, outputs, layers.
_STAGES: Final = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
# Width and depth factors and image side of each size (Tan and Le 2019 and its code).
_SIZES: Final[Mapping[str, tuple[float, float, int]]] = {"b0": (1.0, 1.0, 224), "b4": (1.4, 1.8, 380)}
RESNEXT_GROUPS: Final = 32


def resnext101(*, is_squeezed: bool = False) -> Network:
    """ResNeXt-101 32x4d: ResNet-101 with inner maps twice as wide, the 3 x 3 ones in 32 groups (Xie 2017).

    Squeezed: the output of every block is rescaled (Hu 2018).
    """
    found = network("resnet-101")
    stack = found.main
    blocks = tuple(replace(block, parts=_grouped(block.parts, is_squeezed)) for block in stack.blocks)
    return replace(found, name="resnext-101-32x4d", stacks=(replace(stack, blocks=blocks),))


def _grouped(parts: tuple[Part, ...], is_squeezed: bool) -> tuple[Part, ...]:
    convolutions = [part for part in parts if isinstance(part, Convolution)]
    if len(convolutions) < 3:
        return parts
    down, middle, up, *shortcut = convolutions
    inner = 2 * middle.outputs
    return (
        replace(down, outputs=inner, norm_parameters=2 * inner),
        replace(middle, inputs=inner, outputs=inner, groups=RESNEXT_GROUPS, norm_parameters=2 * inner),
        replace(up, inputs=inner, is_squeezed=is_squeezed),
        *shortcut,
    )


def efficientnet(size: str) -> Network | None:
    """EfficientNet of a size ("b0", "b4"); None for others."""
    if size not in _SIZES:
        return None
    width, depth, side = _SIZES[size]
    inputs, side = _rounded(32 * width), -(-side // 2)
    layers = [_block("stem", _convolution(3, inputs, 3, side))]
    for expansion, kernel, stride, outputs, count in _STAGES:
        for layer in range(-(-int(count * depth * 10) // 10)):
            step = stride if layer == 0 else 1
            wide = _rounded(outputs * width)
            layers.append(_inverted(inputs, wide, expansion, kernel, side, step))
            inputs, side = wide, -(-side // step)
    layers.append(_block("last", _convolution(inputs, _rounded(1280 * width), 1, side)))
    return _network(f"efficientnet-{size}", layers, _rounded(1280 * width), side)


def _network(name: str, layers: list[Block], hidden: int, side: int) -> Network:
    kinds: dict[Block, int] = {}
    pattern = tuple(kinds.setdefault(block, len(kinds)) for block in layers)
    stack = Stack(
        role=StackRole.CONVOLUTION,
        hidden=hidden,
        blocks=tuple(kinds),
        pattern=pattern,
        tokens=side * side,
        head=Head(outputs=CLASSES, has_bias=True, is_per_token=False),
        final_norm_weights=0,
    )
    return Network(name=name, family="efficientnet", stacks=(stack,), source="Tan and Le 2019, table 1")


def _inverted(inputs: int, outputs: int, expansion: int, kernel: int, side: int, stride: int) -> Block:
    """Expand 1 x 1, depthwise and squeezed, project 1 x 1."""
    inner, after = inputs * expansion, -(-side // stride)
    expand = (_convolution(inputs, inner, 1, side),) if expansion > 1 else ()
    depthwise = replace(_convolution(inner, inner, kernel, after), groups=inner, is_squeezed=True)
    return _block(f"{outputs} wide", *expand, depthwise, _convolution(inner, outputs, 1, after))


def _block(name: str, *parts: Convolution) -> Block:
    return Block(name=name, parts=parts, norms=0)


def _convolution(inputs: int, outputs: int, kernel: int, side: int) -> Convolution:
    pixels = side * side
    return Convolution(
        inputs=inputs, outputs=outputs, kernel=kernel, output_pixels=pixels, norm_parameters=2 * outputs
    )


def _rounded(width: float, multiple: int = 8) -> int:
    """The nearest multiple of 8 that is not more than a tenth below."""
    near = max(multiple, int(width + multiple / 2) // multiple * multiple)
    return near + multiple if near < 0.9 * width else near
