"""Which blocks of a whole tensor a rank holds, also where it is split piece by piece.

Queries, keys and values in one matrix, or gate and up, are split piece by piece over tensor ranks: what a
rank holds is several blocks. PyTorch takes every part for one block, and cannot gather some layouts.
"""

from itertools import pairwise

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.placement_types import _StridedShard

Block = tuple[torch.Size, torch.Tensor]
"""Where a block begins in the whole tensor, and a view of it."""


def whole(tensor: DTensor) -> torch.Tensor:
    """The whole tensor on every rank that holds a part of it; all of them call."""
    found = torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    for offsets, block in blocks_of(tensor.detach()):
        place = tuple(slice(start, start + size) for start, size in zip(offsets, block.shape, strict=True))
        found[place] = block
    for axis, place in enumerate(tensor.placements):
        if not place.is_replicate():
            dist.all_reduce(found, group=tensor.device_mesh.get_group(axis))
    return found


def strided_blocks(value: object) -> list[Block]:
    """The blocks of a tensor of which PyTorch does not know for sure where its part lies; none for others."""
    is_strided = isinstance(value, DTensor) and any(isinstance(e, _StridedShard) for e in value.placements)
    return blocks_of(value) if is_strided else []


def blocks_of(value: DTensor) -> list[Block]:
    """The contiguous blocks of a whole tensor that this rank holds."""
    blocks = [(torch.Size(), value.to_local())]
    for dim in range(value.ndim):
        rows = _held(value, dim)
        assert len(rows) == value.to_local().shape[dim], (value.placements, dim, len(rows))
        runs = _runs(rows, value.shape[dim])
        blocks = [
            (torch.Size((*offsets, start)), block.narrow(dim, first, count))
            for offsets, block in blocks
            for start, first, count in runs
        ]
    return blocks


def _held(tensor: DTensor, dim: int) -> torch.Tensor:
    """Which rows of a dimension of the whole this rank holds, in its order.

    Where a dimension is split plainly and strided, FSDP2 has cut the parts that others had made before it.
    """
    placed = [
        (axis, each) for axis, each in enumerate(tensor.placements) if getattr(each, "dim", None) == dim
    ]
    plain = [axis for axis, each in placed if type(each) is Shard]
    strided = [(axis, each.split_factor) for axis, each in placed if isinstance(each, _StridedShard)]
    order = [(axis, 1) for axis in plain] + [(axis, 1 if plain else pieces) for axis, pieces in strided]
    rows, mesh = torch.arange(tensor.shape[dim]), tensor.device_mesh
    for axis, pieces in order:
        ranks, place = mesh.size(axis), mesh.get_local_rank(axis)
        rows = torch.cat([_cut(piece, ranks, place) for piece in rows.chunk(pieces)])
    return rows


def _cut(rows: torch.Tensor, ranks: int, rank: int) -> torch.Tensor:
    most = -(-len(rows) // ranks)
    return rows[rank * most : (rank + 1) * most]


def _runs(rows: torch.Tensor, total: int) -> list[tuple[int, int, int]]:
    """Rows that follow each other: (first of the whole, first here, how many); none begin at the end."""
    if not len(rows):
        return [(total, 0, 0)]
    breaks = (rows.diff() != 1).nonzero().flatten() + 1
    bounds = [0, *breaks.tolist(), len(rows)]
    return [(int(rows[first]), first, end - first) for first, end in pairwise(bounds)]
