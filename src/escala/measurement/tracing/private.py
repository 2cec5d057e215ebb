"""The private parts of PyTorch that a trace needs, in one place. Tried on torch 2.13.0 alone.

Nothing else in escala imports a name of PyTorch that its documentation does not promise.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch._guards import active_fake_mode
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorDeviceMismatchError,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker, _FSDPRefType
from torch.distributed._tools.mem_tracker import MemTracker, _MemRefType
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from escala.measurement.tracing.jobs import Held

CPU: Final = torch.device("cpu")
ATTENTION: Final = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
ATTENTION_BACKWARD: Final = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
GROUPED: Final = torch.ops.aten._grouped_mm.default
ROWS: Final = torch.ops.aten.mv.default
ROWS_ADDED: Final = torch.ops.aten.addmv.default
ROW: Final = torch.ops.aten.dot.default
"""Attention as the CPU runs it, which keeps what the flash kernel of a GPU keeps, the products of all experts
at once, and products with a single column; PyTorch counts no FLOP of them."""
CAST: Final = torch.ops.aten._to_copy.default
DeviceMismatch: Final = FakeTensorDeviceMismatchError
"""An operation without data on tensors of several devices."""
KINDS: Final = {
    _MemRefType.PARAM: Held.PARAMETERS,
    _MemRefType.BUFFER: Held.PARAMETERS,
    _MemRefType.GRAD: Held.GRADIENTS,
    _MemRefType.OPT: Held.OPTIMIZER,
    _MemRefType.ACT: Held.ACTIVATIONS,
    _MemRefType.OTH: Held.ACTIVATIONS,
    _MemRefType.TEMP: Held.TEMPORARY,
    _FSDPRefType.SHARDED_PARAM: Held.PARAMETERS,
    _FSDPRefType.BUFFER: Held.PARAMETERS,
    _FSDPRefType.UNSHARDED_PARAM: Held.UNSHARDED,
    _FSDPRefType.ALL_GATHER: Held.UNSHARDED,
    _FSDPRefType.SHARDED_GRAD: Held.GRADIENTS,
    _FSDPRefType.UNSHARDED_GRAD: Held.UNSHARDED,
    _FSDPRefType.REDUCE_SCATTER: Held.UNSHARDED,
    _FSDPRefType.OPT: Held.OPTIMIZER,
    _FSDPRefType.ACT: Held.ACTIVATIONS,
    _FSDPRefType.INP: Held.ACTIVATIONS,
    _FSDPRefType.TEMP: Held.TEMPORARY,
}


@contextmanager
def fake_ranks(ranks: int) -> Iterator[None]:
    """Rank 0 of a process group that moves nothing; collectives return at once."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def fake_tensors() -> Iterator[None]:
    """Inside, tensors have a shape and no data.

    Joining meshes, which reads the numbers of ranks, and asking for the shape of a result of all ranks
    together, which makes whole tensors that no rank holds, happen outside.
    """
    joined, shaped = DeviceMesh._concatenate, ShardingPropagator._propagate_tensor_meta_non_cached
    DeviceMesh._concatenate = staticmethod(_outside(joined))
    ShardingPropagator._propagate_tensor_meta_non_cached = _outside(shaped)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            yield
    finally:
        DeviceMesh._concatenate = staticmethod(joined)
        ShardingPropagator._propagate_tensor_meta_non_cached = shaped


@contextmanager
def real_tensors() -> Iterator[None]:
    """Inside, tensors have data again."""
    with unset_fake_temporarily():
        yield


def _outside(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        with unset_fake_temporarily():
            return function(*arguments, **named)

    return call


def fake_mode() -> object:
    """The mode of the fake tensors that are made now; shapes of whole tensors are asked in another one."""
    return active_fake_mode()


def materialize(module: nn.Module) -> None:
    """Give a module new tensors of the CPU: those of the meta device have none, and copies of tensors without
    data share no storage with their views. Shared parameters stay shared, buffers with data stay.
    """
    made: dict[int, torch.Tensor] = {}
    for each in module.modules():
        for name, tensor in list(_tensors_of(each)):
            # by setattr: recurrent layers list their weights a second time
            setattr(each, name, made.setdefault(id(tensor), _empty_like(tensor)))


def _tensors_of(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, and without data the buffers and tensors that are plain attributes."""
    yield from ((name, each) for name, each in module._parameters.items() if each is not None)
    for name, each in (*module._buffers.items(), *vars(module).items()):
        if isinstance(each, torch.Tensor) and (each.is_meta or isinstance(each, FakeTensor)):
            yield name, each


def _empty_like(tensor: torch.Tensor) -> torch.Tensor:
    empty = torch.empty_like(tensor, device=CPU)
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty


class WeightTracker(MemTracker):  # type: ignore[misc] # torch has no types where it is not installed
    """The tracker for modules without FSDP2; a copy of a weight, as autocast makes it, counts as a weight."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run and count one operation."""
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if func is CAST and isinstance(result, torch.Tensor):
            info, _ = self._WINFO.get(args[0].untyped_storage(), (None, None))
            if info is not None and info.reftype is _MemRefType.PARAM:
                self._update_and_maybe_create_winfos(result, _MemRefType.PARAM)
        return result


@contextmanager
def tracked(
    root: nn.Module, optimizer: torch.optim.Optimizer, inputs: list[torch.Tensor], seen: Callable[[Any], None]
) -> Iterator[MemTracker]:
    """The memory tracker of PyTorch over a module; after each operation `seen` gets bytes by its kinds."""
    tracker: MemTracker
    if isinstance(root, FSDPModule):
        tracker = FSDPMemTracker(root, optimizer)
        tracker.track_inputs(tuple(inputs))
    else:
        tracker = WeightTracker()
        tracker.track_external(root, optimizer, *inputs)

    def update(_state: Any) -> None:
        seen(tracker._curr_mem_snap.get(CPU, {}))

    tracker._update_peak_stats = update  # its own looks through all modules
    with tracker:
        yield tracker


def checkpointed(layer: nn.Module, **choice: Any) -> nn.Module:
    """A layer that is recomputed in backward; nothing random happens in it, so no generator is kept."""
    return checkpoint_wrapper(layer, preserve_rng_state=False, **choice)


def keep_as_gradients(tracker: MemTracker, module: nn.Module) -> None:
    """Count gradients that FSDP2 adds up whole, before it reduces them, among the gradients."""
    for each in module.modules() if isinstance(module, FSDPModule) else ():
        group = each._get_fsdp_state()._fsdp_param_group if isinstance(each, FSDPModule) else None
        for parameter in group.fsdp_params if group is not None else ():
            if parameter.unsharded_accumulated_grad is not None:
                tracker._update_and_maybe_create_winfos(
                    parameter.unsharded_accumulated_grad, _FSDPRefType.SHARDED_GRAD
                )


def forget_modules(tracker: MemTracker, module: nn.Module) -> None:
    """Before each forward of a module: the tracker takes its second call for a second iteration."""
    for each in module.modules():
        tracker.memory_tracking.pop(each, None)


def by_kind(snapshot: dict[Any, int]) -> dict[str, float]:
    """Bytes by our kinds from a snapshot of the tracker."""
    held = dict.fromkeys(map(str, Held), 0.0)
    for kind, size_bytes in snapshot.items():
        if kind in KINDS:
            held[str(KINDS[kind])] += size_bytes
    return held


def total_bytes(snapshot: dict[Any, int]) -> int:
    """All kinds of a snapshot together."""
    return snapshot.get("Total", 0)


def is_own(types: tuple[type, ...]) -> bool:
    """Whether an operation works on this rank's own tensors; those of all ranks come again as such."""
    return not any(issubclass(each, DTensor) for each in types)


def flop_of(function: Any, arguments: tuple[Any, ...], named: dict[str, Any], result: Any) -> int:
    """FLOP of one operation by the formulas of PyTorch; 0 for what it does not count."""
    if function is ATTENTION:
        return int(sdpa_flop_count(*(each.shape for each in arguments[:3])))
    if function is ATTENTION_BACKWARD:
        return int(sdpa_backward_flop_count(*(each.shape for each in arguments[:4])))
    if function is GROUPED:
        return _grouped_flop(arguments[0].shape, arguments[1].shape)
    if function in (ROWS, ROWS_ADDED):
        return int(2 * arguments[function is ROWS_ADDED].numel())
    if function is ROW:
        return int(2 * arguments[0].numel())
    formula = flop_registry.get(function.overloadpacket)
    return int(formula(*arguments, **named, out_val=result)) if formula else 0


def _grouped_flop(left: torch.Size, right: torch.Size) -> int:
    """Rows of all experts, each times the matrix of its own: 2 * rows * inner * outer."""
    return int(2 * left.numel() * right[-1])


def group_name(argument: Any) -> str:
    """The name of the process group that an operation was given, by object or by name."""
    if isinstance(argument, str):
        return argument
    return str(dist.ProcessGroup.unbox(argument).group_name)
