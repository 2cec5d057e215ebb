"""Probes of what else a training step does on a processor: passes, convolutions, the optimizer.

On a GPU these are not timed: there the engine records say what software adds.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional

from escala.measurement.bench.device import Device
from escala.measurement.bench.probe import Probe, Sample, clocked, no_wait, timing
from escala.measurement.bench.samples import Subject

# rows, width, blocks of a chain of norm, activation and addition; what it keeps for backward, 200 MB, leaves
# the caches as that of a network does
CHAIN: Final = (2048, 1024, 8)
# Arrays that a block reads and writes, forward and backward: norm 2 + 3, activation 2 + 3, addition 3 + 3
CHAIN_PASSES: Final = 16
# samples, channels, side, kernel
CONVOLUTIONS: Final = ((4, 96, 48, 3), (4, 192, 24, 3))
# tensors and parameters of each: their states are far above the caches
UPDATED: Final = (12, 2**20)
FLOAT_BYTES: Final = 4


def operation_probes(device: Device) -> Iterator[Probe]:
    """Passes, convolutions and AdamW in fp32; nothing on a GPU."""
    if device.kind != "cpu":
        return
    yield _chain()
    yield from (_convolution(*shape) for shape in CONVOLUTIONS)
    yield _update(device)


def _chain() -> Probe:
    rows, width, blocks = CHAIN
    moved = float(CHAIN_PASSES * blocks * rows * width * FLOAT_BYTES)
    subject = Subject(
        part="passes", name="norm, activation, addition", dtype="fp32", shape=CHAIN, payload_bytes=moved
    )

    def make(probe: Probe) -> Sample:
        start = torch.randn(rows, width, requires_grad=True)
        gradient, scale, shift = torch.randn(rows, width), torch.ones(width), torch.zeros(width)

        def work() -> None:
            flow = start
            for _ in range(blocks):
                flow = flow + functional.gelu(functional.layer_norm(flow, (width,), scale, shift))
            torch.autograd.grad(flow, start, gradient)

        return lambda: (clocked(work, no_wait),)

    return Probe(subjects=(subject,), make=make)


def _convolution(samples: int, channels: int, side: int, kernel: int) -> Probe:
    flop = 2.0 * samples * side**2 * channels**2 * kernel**2
    shape, name = (samples, channels, side, kernel), f"{channels} channels, {side} x {side}"
    subjects = tuple(
        Subject(part=part, name=f"{part}, {name}", dtype="fp32", shape=shape, flop=work)
        for part, work in (("convolution", flop), ("convolution backward", 2.0 * flop))
    )

    def make(probe: Probe) -> Sample:
        image = torch.randn(samples, channels, side, side, requires_grad=True)
        weight = torch.randn(channels, channels, kernel, kernel, requires_grad=True)
        gradient = torch.randn(samples, channels, side, side)

        def sample() -> tuple[float, ...]:
            found: list[Any] = []
            forward = _keeping(found, lambda: functional.conv2d(image, weight, padding=kernel // 2))
            forward_s = clocked(forward, no_wait)
            backward_s = clocked(lambda: torch.autograd.grad(found[0], (image, weight), gradient), no_wait)
            return forward_s, backward_s

        return sample

    return Probe(subjects=subjects, make=make)


def _update(device: Device) -> Probe:
    tensors, parameters = UPDATED
    subject = Subject(part="optimizer", name="AdamW step", dtype="fp32", shape=UPDATED)

    def make(probe: Probe) -> Sample:
        weights = [nn.Parameter(torch.randn(parameters)) for _ in range(tensors)]
        for weight in weights:
            weight.grad = torch.randn(parameters)
        optimizer = torch.optim.AdamW(weights, lr=1e-4)
        return timing(optimizer.step, device.wait)(probe)

    return Probe(subjects=(subject,), make=make)


def _keeping(found: list[Any], work: Callable[[], Any]) -> Callable[[], None]:
    return lambda: found.append(work())
