"""Probe of what an operation on a tensor that is split over ranks costs beside its work, on a processor.

On a GPU it is not timed: there launches run beside the device's work, and engine records say what they add.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn

from escala.measurement.bench.device import Device
from escala.measurement.bench.probe import Probe, Sample, timing
from escala.measurement.bench.ranks import Ranks
from escala.measurement.bench.samples import Subject

SIDE: Final = 16
LAUNCHES: Final = 38
"""Of two linear maps, split by columns and by rows, forward and backward: operations on distributed
tensors, and conversions from and to plain ones. Counted in torch 2.13."""


def distributed_probes(device: Device, ranks: Ranks) -> Iterator[Probe]:
    """Two small linear maps split over this rank alone, so that nothing is sent; nothing without others."""
    if device.kind == "cpu" and ranks.size > 1:
        subject = Subject(
            part="distributed launch", name="two split linear maps", dtype="fp32", shape=(LAUNCHES, SIDE)
        )

        def make(probe: Probe) -> Sample:
            return timing(split_maps(ranks.rank), device.wait)(probe)

        yield Probe(subjects=(subject,), make=make)


def split_maps(rank: int) -> Callable[[], None]:
    """Forward and backward of two linear maps, of which this rank holds all."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    alone: Any = dist.new_group([rank], use_local_synchronization=True)
    maps = nn.Sequential(*(nn.Linear(SIDE, SIDE, bias=False) for _ in range(2)))
    styles = {"0": ColwiseParallel(), "1": RowwiseParallel()}
    parallelize_module(maps, DeviceMesh.from_group(alone, "cpu"), styles)
    rows, gradient = torch.randn(1, SIDE, SIDE, requires_grad=True), torch.ones(1, SIDE, SIDE)
    inputs = (rows, *maps.parameters())

    def work() -> None:
        torch.autograd.grad(maps(rows), inputs, gradient)

    return work
