"""Places of parts in whole tensors for torch.distributed.checkpoint, also of parts that stand in pieces.

Queries, keys and values in one matrix, or gate and up, are split piece by piece over tensor ranks: what a
rank holds is several blocks of the whole. PyTorch takes every part for one block and refuses these; here each
block is written and read by itself, under the shape and the places of the whole tensor.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.tensor import DTensor, Placement, Shard
from torch.distributed.tensor.placement_types import _StridedShard

Block = tuple[torch.Size, torch.Tensor]
"""Where a block begins in the whole tensor, and a view of it."""


class SavePlanner(dcp.DefaultSavePlanner):
    """Writes parts that stand in pieces as their blocks."""

    def create_local_plan(self) -> Any:
        """What this rank writes."""
        plan = super().create_local_plan()
        self.plan = replace(plan, items=[each for item in plan.items for each in self._blocks(item)])
        return self.plan

    def lookup_object(self, index: Any) -> Any:
        """The block of an index."""
        blocks = dict(blocks_of(self.state_dict[index.fqn]))
        return blocks[index.offset] if blocks else super().lookup_object(index)

    def _blocks(self, item: Any) -> list[Any]:
        blocks = blocks_of(self.state_dict[item.index.fqn])
        return [_written(item, *block) for block in blocks] or [item]


class LoadPlanner(dcp.DefaultLoadPlanner):
    """Reads parts that stand in pieces into their blocks."""

    def create_local_plan(self) -> Any:
        """What this rank reads."""
        plan = super().create_local_plan()
        pieces = {name: blocks for name, each in self.state_dict.items() if (blocks := blocks_of(each))}
        items = [item for item in plan.items if item.dest_index.fqn not in pieces]
        for name, blocks in pieces.items():
            chunks = [ChunkStorageMetadata(offsets, block.shape) for offsets, block in blocks]
            items += create_read_items_for_chunk_list(name, self.metadata.state_dict_metadata[name], chunks)
        return replace(plan, items=items)

    def lookup_tensor(self, index: Any) -> Any:
        """The block of an index."""
        blocks = dict(blocks_of(self.state_dict[index.fqn]))
        return blocks[index.offset] if blocks else super().lookup_tensor(index)


def _written(item: Any, offsets: torch.Size, block: torch.Tensor) -> Any:
    data = replace(item.tensor_data, chunk=ChunkStorageMetadata(offsets, block.shape))
    return replace(item, index=MetadataIndex(item.index.fqn, offsets), tensor_data=data)


def blocks_of(value: object) -> list[Block]:
    """The blocks of a whole tensor that this rank holds; none for what does not stand in pieces."""
    if not isinstance(value, DTensor) or not _stands_in_pieces(value):
        return []
    blocks = [(torch.Size(), value.to_local())]
    for dim in range(value.ndim):
        runs = _runs(_held(value, dim), value.shape[dim])
        blocks = [
            (torch.Size((*offsets, start)), block.narrow(dim, first, count))
            for offsets, block in blocks
            for start, first, count in runs
        ]
    return blocks


def _stands_in_pieces(tensor: DTensor) -> bool:
    """Whether a dimension is split piece by piece; FSDP2 also says so of one that it splits once more."""
    plain = {each.dim for each in tensor.placements if type(each) is Shard}
    return any(isinstance(each, _StridedShard) and each.dim not in plain for each in tensor.placements)


def _held(tensor: DTensor, dim: int) -> torch.Tensor:
    """Which rows of a dimension of the whole this rank holds, in its order."""
    rows = torch.arange(tensor.shape[dim])
    for axis, place in enumerate(tensor.placements):
        if getattr(place, "dim", None) == dim:
            rows = _share(rows, place, tensor.device_mesh.size(axis), tensor.device_mesh.get_local_rank(axis))
    return rows


def _share(rows: torch.Tensor, place: Placement, ranks: int, rank: int) -> torch.Tensor:
    """A rank's share of rows, as `Shard` cuts them, or of each of the pieces of a strided one."""
    pieces = place.split_factor if isinstance(place, _StridedShard) else 1
    shares = [_cut(piece, ranks, rank) for piece in rows.chunk(pieces)]
    return torch.cat(shares)


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
