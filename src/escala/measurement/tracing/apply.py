"""A plan applied to a module: tensor and sequence parallelism, recompute, sharding, replicas; in this order.

The order and the choices are those of torchtitan: layers are units of FSDP2, embedding, norm and head one
more; gradients are reduced in fp32.
"""

from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from escala.measurement.tracing import private
from escala.measurement.tracing.jobs import Axis, Job
from escala.measurement.tracing.modules import Stage
from escala.parallel.layouts import Stream
from escala.parallel.tensor import split_by_words

MESH: Final = (str(Axis.REPLICAS), str(Axis.SHARDING), str(Axis.TENSOR))
DTYPES: Final = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a mesh for tensor ranks and for data-parallel ones, cut before tensors are fake."""

    tensor: DeviceMesh
    data: DeviceMesh


def mesh_of(job: Job) -> DeviceMesh:
    """Replicas, then shards, then tensor ranks, the last ones next to each other."""
    return init_device_mesh("cpu", (job.replicas, job.shard, job.tensor), mesh_dim_names=MESH)


def axes_of(mesh: DeviceMesh) -> dict[str, str]:
    """The axis of each group of ranks, by the name of the group; those of one rank alone say nothing."""
    found = sorted(MESH, key=lambda name: mesh[name].size())
    return {mesh[name].get_group().group_name: name for name in found}


def submeshes(mesh: DeviceMesh, job: Job) -> Parts:
    """Both parts; HSDP has replicas and shards, DDP replicas alone."""
    if not job.is_sharded:
        names: tuple[str, ...] = (str(Axis.REPLICAS),)
    else:
        names = (str(Axis.REPLICAS), str(Axis.SHARDING)) if job.replicas > 1 else (str(Axis.SHARDING),)
    return Parts(tensor=mesh[str(Axis.TENSOR)], data=mesh[names])


def split(stage: Stage, job: Job, mesh: DeviceMesh) -> None:
    """Split the matrices of a stage over tensor ranks as training does."""
    split_by_words(stage, stage.words, Stream(mesh=mesh, splits_tokens=job.splits_sequence))


def recompute(layers: nn.ModuleList, job: Job) -> None:
    """Recompute the first layers or all; selectively, keep attention and every second product."""
    count = len(layers) if job.recomputed_layers < 0 else min(job.recomputed_layers, len(layers))
    for place in range(len(layers) if job.is_selective else count):
        choice = {"context_fn": _kept_operations} if job.is_selective else {}
        layers[place] = private.checkpointed(layers[place], **choice)


def _kept_operations() -> Any:
    products = [0, 0]

    def policy(context: Any, operation: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        if operation is private.ATTENTION:
            return CheckpointPolicy.MUST_SAVE
        if operation == torch.ops.aten.mm.default:
            products[context.is_recompute] += 1
            if products[context.is_recompute] % 2:
                return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def shard(module: nn.Module, layers: nn.ModuleList, job: Job, mesh: DeviceMesh) -> None:
    """FSDP2: a unit a layer and one for the rest; 16-bit weights and activations, fp32 reductions."""
    wide = DTYPES[job.precision]
    policy = MixedPrecisionPolicy(
        param_dtype=wide if wide != torch.float32 else None, reduce_dtype=torch.float32
    )
    for layer in layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=job.reshard)
    fully_shard(module, mesh=mesh, mp_policy=policy)


class Holder(nn.Module):  # type: ignore[misc] # torch has no types where it is not installed
    """The chunks of one rank, for a tracker that wants one root; each is called alone."""

    def __init__(self, modules: list[Any]) -> None:
        super().__init__()
        self.chunks = nn.ModuleList(modules)

    def forward(self) -> None:
        """Never called; FSDP2 asks for one."""
        raise NotImplementedError


def root_of(modules: list[Any], job: Job, mesh: DeviceMesh) -> nn.Module:
    """The one module, or a holder of all chunks that the tracker takes for the root; it is never called."""
    if len(modules) == 1:
        only: nn.Module = modules[0]
        return only
    holder = Holder(modules)
    return fully_shard(holder, mesh=mesh) if job.is_sharded else holder


def wait_for_last(module: FSDPModule, *, is_last: bool) -> None:
    """Add gradients whole and keep the weights gathered until the last micro-batch, as pipeline stages do."""
    module.set_is_last_backward(is_last)
    module.set_reshard_after_backward(is_last)
    module.set_requires_gradient_sync(is_last)


def reduce_gradients(module: nn.Module, job: Job) -> None:
    """All-reduce the gradients of replicas where they lie.

    The reducer of DDP is C++ and reads its tensors, so it cannot run without data. Its buckets are taken to
    be the gradients (gradient_as_bucket_view), each parameter is reduced alone: as many bytes, more often.
    """
    if job.replicas > 1:
        for parameter in module.parameters():
            dist.all_reduce(parameter.grad)
