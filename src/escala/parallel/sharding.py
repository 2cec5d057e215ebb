"""States shared among data-parallel ranks: replicated by DDP, sharded by FSDP2, both in HSDP.

Parameters that are split over tensor or expert ranks are DTensors, which DDP cannot take: they are replicated
by torch's variant of FSDP2 that shards nothing.
"""

from collections.abc import Iterator
from math import prod
from typing import Final

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from escala.model.plan import Offload, Plan
from escala.parallel.compression import Compression, compress
from escala.parallel.formats import AUTOCAST
from escala.parallel.mesh import Mesh
from escala.parallel.parts import Parts, blocks_of

COPIES: Final = "copies"
"""Axis of the expert mesh along which ranks hold the same experts."""


def share(chunk: nn.Module, parts: Parts, mesh: Mesh, compression: Compression) -> nn.Module:
    """The chunk as data-parallel ranks call it: inside DDP, or itself where it is alone or under FSDP2."""
    is_split = any(isinstance(each, DTensor) for each in chunk.parameters())
    if mesh.plan.zero < 2 and not is_split:
        is_alone = mesh.size(*mesh.together) == 1 or mesh.plan.pp > 1  # a pipeline averages gradients itself
        return chunk if is_alone else _replicated(chunk, mesh, compression)
    _wrap(chunk, parts, mesh)
    _check(chunk, mesh)
    _same_statistics(chunk, mesh)
    return chunk


def _replicated(chunk: nn.Module, mesh: Mesh, compression: Compression) -> nn.Module:
    group = mesh.group(*mesh.together)
    called = DistributedDataParallel(chunk, process_group=group, gradient_as_bucket_view=True)
    compress(called, compression, group)
    return called


def _wrap(chunk: nn.Module, parts: Parts, mesh: Mesh) -> None:
    """FSDP2 for the experts of every block, every block, and what is left: gathered and reduced together."""
    ranks = mesh.sharding if mesh.plan.zero >= 2 else mesh.axis(*mesh.together)
    for block in blocks_of(chunk, parts):
        for experts in _experts(block, mesh):
            assert mesh.experts is not None
            copies = mesh.experts[COPIES]
            _apply(experts, copies, mesh.plan, reshards=mesh.plan.reshard)
            # What the tokens of all ranks gave to an expert is averaged like every other gradient.
            experts.set_gradient_divide_factor(float(mesh.size(*mesh.together)))
            # Gloo cannot multiply while it adds; where nothing is scattered, torch would divide twice.
            experts.set_force_sum_reduction_for_comms(mesh.plan.zero >= 2 and copies.size() > 1)
        _apply(block, ranks, mesh.plan, reshards=mesh.plan.reshard)
    # Backward begins with what forward ends with: what is left would be gathered again at once.
    _apply(chunk, ranks, mesh.plan, reshards=False)


def _apply(module: nn.Module, ranks: DeviceMesh, plan: Plan, *, reshards: bool) -> None:
    kind = AUTOCAST.get(plan.precision)
    precision = MixedPrecisionPolicy(param_dtype=kind, reduce_dtype=None if kind is None else torch.float32)
    if plan.zero < 2:
        from torch.distributed._composable.replicate_with_fsdp import replicate

        replicate(module, mesh=ranks, mp_policy=precision)
        return
    fully_shard(
        module,
        mesh=ranks,
        # A pipeline runs many micro-batches forward before the first backward: weights stay gathered.
        reshard_after_forward=reshards and plan.pp == 1,
        mp_policy=precision,
        offload_policy=_offload(plan, ranks.device_type),
    )


def _offload(plan: Plan, device: str) -> OffloadPolicy:
    """Sharded weights, gradients and optimizer states in host memory, or nothing."""
    if plan.offload_params is Offload.NONE:
        return OffloadPolicy()
    return CPUOffloadPolicy(pin_memory=device == "cuda")


def _experts(block: nn.Module, mesh: Mesh) -> Iterator[FSDPModule]:
    """Modules inside a block whose own parameters are dealt over expert ranks."""
    if mesh.experts is None:
        return
    for module in block.modules():
        own = [each for each in module.parameters(recurse=False) if isinstance(each, DTensor)]
        if any(_is_dealt(each) for each in own):
            yield module


def _check(chunk: nn.Module, mesh: Mesh) -> None:
    """Every parameter is a DTensor, and this rank holds its part of it, rounded up, and no more."""
    assert isinstance(chunk, FSDPModule)
    for name, each in chunk.named_parameters():
        assert isinstance(each, DTensor), f"{name} was not wrapped"
        shards = _shards(each)
        least = (
            mesh.sharding.size(mesh.sharding.ndim - 1) if mesh.plan.zero >= 2 and not _is_dealt(each) else 1
        )
        assert prod(shards) % least == 0, f"{name} is split {shards} times, not over {least} ranks"
        local = each.to_local().shape
        most = [-(-size // ranks) for size, ranks in zip(each.shape, shards, strict=True)]
        assert all(has <= may for has, may in zip(local, most, strict=True)), f"{name}: {local} of {most}"


def _shards(parameter: DTensor) -> list[int]:
    """Over how many ranks each dimension is split."""
    result = [1] * parameter.ndim
    for axis, way in enumerate(parameter.placements):
        if not (way.is_replicate() or way.is_partial()):
            result[way.dim] *= parameter.device_mesh.size(axis)
    return result


def _is_dealt(parameter: DTensor) -> bool:
    """Whether a parameter is split over the expert mesh."""
    return bool({"ep", "etp"} & set(parameter.device_mesh.mesh_dim_names or ()))


def _same_statistics(chunk: nn.Module, mesh: Mesh) -> None:
    """Statistics of batch norms are those of the first rank, as DDP has it; weights are another matter."""
    buffers = [
        each for module in chunk.modules() if isinstance(module, _BatchNorm) for each in module.buffers()
    ]
    if not buffers or mesh.size(*mesh.together) == 1:
        return
    group = mesh.group(*mesh.together)

    def send(*given: object) -> None:
        dist._broadcast_coalesced(group, buffers, 2**28, 0)

    chunk.register_forward_pre_hook(send)
