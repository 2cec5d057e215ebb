"""Memory of one step: by kind from torch's tracker, its peak from the allocator. Knows no clock.

Here alone stands what torch does not promise: `MemTracker`, and the allocations that its profiler recorded.
Tried with torch 2.13.
"""

import warnings
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Final

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.profiler import ProfilerActivity, profile

from escala.measurement.job.job import Runner, Training
from escala.measurement.job.record import HeldMemory

ALLOCATION: Final = "[memory]"


def memory_by_kind(runner: Runner) -> HeldMemory | None:
    """Bytes by kind when one step holds most; None for a job whose model is not known."""
    from torch.distributed._tools.mem_tracker import MemTracker, _MemRefType

    job = runner.job
    if not isinstance(job, Training):
        return None
    tracker = MemTracker()
    tracker.track_external(job.model, job.optimizer)
    with tracker, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Module is None")  # layers that torch made by itself
        runner.step()
    held = tracker.get_tracker_snapshot("peak")[job.device]
    return HeldMemory(
        parameters_bytes=float(held[_MemRefType.PARAM]),
        buffers_bytes=float(held[_MemRefType.BUFFER]),
        gradients_bytes=float(held[_MemRefType.GRAD]),
        optimizer_bytes=float(held[_MemRefType.OPT]),
        activations_bytes=float(held[_MemRefType.ACT]),
        temporary_bytes=float(held[_MemRefType.TEMP]),
        other_bytes=float(held[_MemRefType.OTH]),
        peak_bytes=float(held["Total"]),
    )


def peak_bytes(runner: Runner, device: torch.device) -> float:
    """The most that the allocator held during one step, with what the model and optimizer hold before it.

    A processor's allocator keeps no account: what was allocated in the step is summed, and parameters,
    buffers and optimizer states are added where the job shows them.
    """
    if device.type == "cuda":
        return _counted(runner.step, device)
    return _summed(runner.step) + held_before(runner)


def held_before(runner: Runner) -> float:
    """Bytes of parameters, buffers and optimizer states; 0 where the job does not show them."""
    job = runner.job
    return held_bytes([job.model], job.optimizer) if isinstance(job, Training) else 0.0


def held_bytes(modules: Sequence[nn.Module], optimizer: Any) -> float:
    """Bytes that this rank holds between steps: parameters, buffers and optimizer states, each once."""
    states = [
        each
        for state in getattr(optimizer, "state", {}).values()
        for each in state.values()
        if isinstance(each, torch.Tensor)
    ]
    every = [each for module in modules for each in (*module.parameters(), *module.buffers())] + states
    storages = [_own(each).untyped_storage() for each in every]
    return float(sum({each.data_ptr(): each.nbytes() for each in storages}.values()))


def _own(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _counted(step: Callable[[], None], device: torch.device) -> float:
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    step()
    torch.cuda.synchronize(device)
    return float(torch.cuda.max_memory_allocated(device))


def _summed(step: Callable[[], None]) -> float:
    """The highest running sum of allocations and releases."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        step()
    return most_allocated(seen)


def most_allocated(seen: profile) -> float:
    """The highest running sum of what a profiler saw allocated and freed on a processor."""
    assert seen.profiler is not None
    changes = (each.nbytes() for each in seen.profiler.kineto_results.events() if each.name() == ALLOCATION)
    return float(max(accumulate(changes), default=0))
