"""How many tokens images make, in their tower and in the text. Knows sizes and grids; reads no image."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from escala.errors import InvalidInput
from escala.model.network import Grid, Network, Stack, StackRole


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One image as a tower sees it: streams (tiles), and patches of each."""

    streams: int
    patches: int


def cut(grid: Grid, height: int, width: int) -> Cut:
    """Sides scaled into bounds and rounded to whole tokens; patches = height * width / patch^2."""
    if grid.tile_pixels is not None:
        tiles = _tiles(grid.tile_pixels, grid.most_tiles, height, width)
        streams = tiles + 1 if tiles > 1 else 1
        return Cut(streams=streams, patches=(grid.tile_pixels // grid.patch_pixels) ** 2)
    sides = _scaled(grid, height, width)
    return Cut(streams=1, patches=math.prod(sides) // grid.patch_pixels**2)


def with_images(
    network: Network, *, images: int, height: int | None = None, width: int | None = None
) -> Network:
    """The network for samples of so many images, of this size where its towers take any.

    A tower and the projectors behind it run once for each image, or for each tile of it.
    """
    if not any(stack.role is StackRole.VISION for stack in network.stacks) or network.is_image:
        raise InvalidInput(f"{network.name} reads no images beside a text; leave --images and --image out")
    if height is not None and not any(stack.grid for stack in network.stacks):
        raise InvalidInput(f"{network.name} scales every image to one size; give --images alone")
    return replace(network, stacks=tuple(_sized(network, images, height, width)))


def image_tokens(network: Network) -> int:
    """Tokens of the text that the images of one sample take."""
    return sum(
        (stack.tokens or 0) * stack.streams_per_sample
        for stack, before in zip(network.stacks[1:], network.stacks, strict=False)
        if stack.role is StackRole.PROJECTOR and before.role is StackRole.VISION
    )


def _sized(network: Network, images: int, height: int | None, width: int | None) -> Iterator[Stack]:
    tower: Stack | None = None
    for stack in network.stacks:
        if stack.role is StackRole.VISION:
            tower = stack
        elif stack.role is not StackRole.PROJECTOR:
            tower = None
        if tower is None:
            yield stack
        elif tower.grid is None or height is None or width is None:
            yield replace(stack, streams_per_sample=images)
        else:
            yield _cut_stack(stack, tower.grid, cut(tower.grid, height, width), images)


def _cut_stack(stack: Stack, grid: Grid, made: Cut, images: int) -> Stack:
    is_tower = stack.role is StackRole.VISION
    tokens = made.patches + grid.spare_tokens if is_tower else max(1, made.patches // grid.side_patches**2)
    return replace(stack, streams_per_sample=images * made.streams, tokens=tokens)


def _scaled(grid: Grid, height: int, width: int) -> tuple[int, int]:
    """Sides as multiples of a token. Source: transformers 5.24, Qwen2-VL's smart_resize, Pixtral."""
    unit = grid.patch_pixels * grid.side_patches
    shrink = max(1.0, max(height, width) / (grid.most_side_pixels or math.inf))
    sides = math.floor(height / shrink), math.floor(width / shrink)
    rounded = math.ceil if grid.rounds_up else round
    area = math.prod(rounded(side / unit) * unit for side in sides)
    if grid.most_pixels is not None and area > grid.most_pixels:
        ratio = math.sqrt(grid.most_pixels / math.prod(sides))
        return _units(sides, ratio / unit, unit, math.floor)
    if grid.least_pixels is not None and area < grid.least_pixels:
        ratio = math.sqrt(grid.least_pixels / math.prod(sides))
        return _units(sides, ratio / unit, unit, math.ceil)
    return _units(sides, 1 / unit, unit, rounded)


def _units(
    sides: tuple[int, int], scale: float, unit: int, rounded: Callable[[float], int]
) -> tuple[int, int]:
    height, width = (max(1, rounded(side * scale)) * unit for side in sides)
    return height, width


def _tiles(side: int, most: int, height: int, width: int) -> int:
    """Tiles of the canvas that enlarges an image least, else shrinks it least; of equal ones the smallest.

    Source: transformers 5.24, get_best_fit of Llama 4.
    """
    shapes = [(rows, columns) for rows in range(1, most + 1) for columns in range(1, most // rows + 1)]
    scale = {shape: min(shape[0] * side / height, shape[1] * side / width) for shape in shapes}
    larger = [each for each in scale.values() if each >= 1]
    best = min(larger) if larger else max(scale.values())
    return min(rows * columns for (rows, columns), each in scale.items() if each == best)
