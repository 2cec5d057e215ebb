"""Save tensors that stand in pieces on four ranks, read them whole and under another layout; prints JSON."""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.distributed.checkpoint as dcp
from forked import on_ranks
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

from escala.parallel.pieces import blocks_of, whole
from escala.training.checkpoint.planners import LoadPlanner, SavePlanner

WHOLE = {"fused": torch.arange(60.0).view(5, 12), "experts": torch.arange(144.0).view(4, 12, 3)}
THREE, TWO = _StridedShard(1, split_factor=3), _StridedShard(1, split_factor=2)
SAVED = {"fused": (Shard(0), THREE), "experts": (Shard(0), TWO)}
READ = {"fused": (Replicate(), THREE), "experts": (TWO, Shard(0))}


def work(folder: Path) -> Any:
    mesh = DeviceMesh("cpu", torch.arange(4).view(2, 2), mesh_dim_names=("dp", "tp"))
    saved = {name: laid(mesh, full, SAVED[name]) for name, full in WHOLE.items()}
    planner = SavePlanner(flatten_state_dict=False, dedup_save_to_lowest_rank=True)
    dcp.save(saved, checkpoint_id=folder, planner=planner)
    plain = {name: torch.zeros_like(full) for name, full in WHOLE.items()}
    split = {name: laid(mesh, torch.zeros_like(full), READ[name]) for name, full in WHOLE.items()}
    for wanted in (plain, split):
        dcp.load(wanted, checkpoint_id=folder, planner=LoadPlanner(flatten_state_dict=False))
    return {
        "blocks": [(list(start), list(block.shape)) for start, block in blocks_of(saved["fused"])],
        "plain": all(torch.equal(each, WHOLE[name]) for name, each in plain.items()),
        "split": all(torch.equal(whole(each), WHOLE[name]) for name, each in split.items()),
    }


def laid(mesh: DeviceMesh, full: torch.Tensor, places: Any) -> DTensor:
    return distribute_tensor(full.clone(), mesh, places, src_data_rank=None)


if __name__ == "__main__":
    place = Path(sys.argv[1]) / "pieces"
    print(json.dumps(on_ranks(4, lambda _: work(place))))
