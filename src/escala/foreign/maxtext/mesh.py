"""The mesh that MaxText's axes make, inside slices (ici) and between them (dcn). Knows no rule."""

from math import prod

from escala.foreign.facts import count_of
from escala.foreign.maxtext.names import AXES, DATA_AXES, FREE, LEVELS
from escala.foreign.places import Node


def axis(tree: Node, level: str, name: str) -> int | None:
    """Length of an axis of the mesh; -1 for what is left over; None where a shell fills it in."""
    node = tree.table.get(f"{level}_{name}_parallelism")
    return count_of(node) if node is not None else (-1 if FREE[level] == name else 1)


def axes(tree: Node, names: tuple[str, ...]) -> int | None:
    """Product of axes on both levels; None where one of them is left over or unknown."""
    lengths = [axis(tree, level, name) for level in LEVELS for name in names]
    known = [each for each in lengths if each is not None and each > 0]
    return prod(known) if len(known) == len(lengths) else None


def devices_of(tree: Node, levels: tuple[str, ...] = LEVELS) -> int | None:
    """Devices of the mesh, or of some of its levels; None where an axis is left over or unknown."""
    lengths = [axis(tree, level, name) for level in levels for name in AXES]
    known = [each for each in lengths if each is not None and each > 0]
    return prod(known) if len(known) == len(lengths) else None


def samples_of(tree: Node) -> float | None:
    """Samples that a data parallel rank computes at once: those of a device * devices of the rank."""
    node = tree.table.get("per_device_batch_size")
    each = node.scalar if node is not None else None
    others = tuple(name for name in AXES if name not in DATA_AXES)
    model, stages = axes(tree, others), axes(tree, ("pipeline",))
    if isinstance(each, bool) or not isinstance(each, int | float) or model is None or not stages:
        return None
    parts = count_of(tree.table.get("num_pipeline_microbatches")) or stages
    return each * model / (stages if parts < 1 else parts)
