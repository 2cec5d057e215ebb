"""States shared among data-parallel ranks: replicated by DDP, sharded by FSDP2, both in HSDP."""

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from escala.model.plan import Plan
from escala.parallel.loss import AUTOCAST
from escala.parallel.mesh import Mesh
from escala.parallel.parts import Parts


def share(chunk: nn.Module, parts: Parts, mesh: Mesh) -> nn.Module:
    """The chunk as it is called by data-parallel ranks; itself on one rank, and where FSDP2 shards it."""
    if mesh.plan.zero >= 2:
        shard(chunk, parts, mesh)
        return chunk
    if mesh.size(*mesh.together) == 1:
        return chunk
    group = mesh.group(*mesh.together)
    return DistributedDataParallel(chunk, process_group=group, gradient_as_bucket_view=True)


def shard(chunk: nn.Module, parts: Parts, mesh: Mesh) -> None:
    """Shard every block by itself, then what is left."""
    given = {
        "mesh": mesh.sharding,
        "reshard_after_forward": mesh.plan.reshard and mesh.plan.pp == 1,
        "mp_policy": _policy(mesh.plan),
    }
    modules = dict(chunk.named_modules())
    for name in parts.blocks:
        if name in modules:
            fully_shard(modules[name], **given)
    fully_shard(chunk, **given)
    assert isinstance(chunk, FSDPModule)
    _check(chunk, mesh.sharding)


def _policy(plan: Plan) -> MixedPrecisionPolicy:
    """Weights are gathered in 16 bit, gradients reduced in fp32."""
    kind = AUTOCAST.get(plan.precision)
    return MixedPrecisionPolicy(param_dtype=kind, reduce_dtype=None if kind is None else torch.float32)


def _check(chunk: nn.Module, mesh: DeviceMesh) -> None:
    """Every parameter is a DTensor of which this rank holds its share."""
    for name, parameter in chunk.named_parameters():
        assert isinstance(parameter, DTensor), f"{name} is not sharded"
