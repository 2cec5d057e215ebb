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
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from escala.errors import InvalidInput
from escala.measurement.tracing import private
from escala.measurement.tracing.jobs import Axis, Job
from escala.measurement.tracing.modules import Stage

MESH: Final = (str(Axis.REPLICAS), str(Axis.SHARDING), str(Axis.TENSOR))
ATTENTION_PART: Final = "self_attn"
REPLICATED: Final = "replicated_with_grad_allreduce"
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
    """Split the matrices of a stage over tensor ranks as the model's own plan says; ends by vocabulary."""
    is_tied = stage.is_tied
    parallelize_module(stage, mesh, _ends(stage, job))
    if is_tied and stage.lm_head is not None and stage.embed_tokens is not None:
        stage.lm_head.weight = stage.embed_tokens.weight
    for layer in stage.layers:
        parallelize_module(layer, mesh, _inside(layer, stage.tensor_plan, job))


def _ends(stage: Stage, job: Job) -> dict[str, ParallelStyle]:
    stream = _stream(job)
    ends: dict[str, ParallelStyle] = {}
    if stage.embed_tokens is not None:
        ends["embed_tokens"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=stream)
    if stage.lm_head is not None:
        ends["lm_head"] = ColwiseParallel(
            input_layouts=stream, output_layouts=Shard(-1), use_local_output=False
        )
        if job.splits_sequence:
            ends["norm"] = SequenceParallel()
    return ends


def _stream(job: Job) -> Shard | Replicate:
    """How the hidden stream lies on tensor ranks: tokens split, or whole."""
    return Shard(1) if job.splits_sequence else Replicate()


def _inside(layer: nn.Module, plan: dict[str, str], job: Job) -> dict[str, ParallelStyle]:
    """Styles inside one layer; with sequence parallelism its norms see some of the tokens, its parts all."""
    styles: dict[str, ParallelStyle] = {}
    for pattern, word in plan.items():
        inner = pattern.removeprefix("layers.*.")
        if inner != pattern and word != REPLICATED:
            styles[inner] = _style(word, pattern, job)
    if job.splits_sequence:
        for name, _ in layer.named_children():
            styles[name] = SequenceParallel() if "norm" in name else _whole_input(name)
    return styles


def _style(word: str, pattern: str, job: Job) -> ParallelStyle:
    if word == "colwise":
        return ColwiseParallel()
    if word == "rowwise":
        return RowwiseParallel(output_layouts=_stream(job))
    raise InvalidInput(
        f"the tensor plan of this network says '{word}' for {pattern}, which is not traced here"
    )


def _whole_input(name: str) -> ParallelStyle:
    """All tokens for a part of a layer; attention gets its input by name."""
    if name == ATTENTION_PART:
        return PrepareModuleInput(
            input_kwarg_layouts={"hidden_states": Shard(1)},
            desired_input_kwarg_layouts={"hidden_states": Replicate()},
        )
    return PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))


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
