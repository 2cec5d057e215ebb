"""Places of parts in whole tensors for torch.distributed.checkpoint, also of parts that stand in pieces.

Queries, keys and values in one matrix, or gate and up, are split piece by piece over tensor ranks: what a
rank holds is several blocks of the whole. PyTorch takes every part for one block and refuses these; here each
block is written and read by itself, under the shape and the places of the whole tensor.
"""

from dataclasses import replace
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from escala.parallel.pieces import strided_blocks


class SavePlanner(dcp.DefaultSavePlanner):
    """Writes parts that stand in pieces as their blocks."""

    def create_local_plan(self) -> Any:
        """What this rank writes."""
        plan = super().create_local_plan()
        self.plan = replace(plan, items=[each for item in plan.items for each in self._blocks(item)])
        return self.plan

    def lookup_object(self, index: Any) -> Any:
        """The block of an index."""
        blocks = dict(strided_blocks(self.state_dict[index.fqn]))
        return blocks[index.offset] if blocks else super().lookup_object(index)

    def _blocks(self, item: Any) -> list[Any]:
        blocks = strided_blocks(self.state_dict[item.index.fqn])
        return [_written(item, *block) for block in blocks] or [item]


class LoadPlanner(dcp.DefaultLoadPlanner):
    """Reads parts that stand in pieces into their blocks."""

    def create_local_plan(self) -> Any:
        """What this rank reads."""
        plan = super().create_local_plan()
        pieces = {name: blocks for name, each in self.state_dict.items() if (blocks := strided_blocks(each))}
        items = [item for item in plan.items if item.dest_index.fqn not in pieces]
        for name, blocks in pieces.items():
            chunks = [ChunkStorageMetadata(offsets, block.shape) for offsets, block in blocks]
            items += create_read_items_for_chunk_list(name, self.metadata.state_dict_metadata[name], chunks)
        return replace(plan, items=items)

    def lookup_tensor(self, index: Any) -> Any:
        """The block of an index."""
        blocks = dict(strided_blocks(self.state_dict[index.fqn]))
        return blocks[index.offset] if blocks else super().lookup_tensor(index)


def _written(item: Any, offsets: torch.Size, block: torch.Tensor) -> Any:
    data = replace(item.tensor_data, chunk=ChunkStorageMetadata(offsets, block.shape))
    return replace(item, index=MetadataIndex(item.index.fqn, offsets), tensor_data=data)
