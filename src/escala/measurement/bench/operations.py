"""Probes of what else a training step does on a processor: passes, convolutions, pooling, the optimizer.

On a GPU these are not timed: there the engine records say what software adds.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional

from escala.measurement.bench.device import Device
from escala.measurement.bench.probe import Probe, Sample, clocked, no_wait, timing
from escala.measurement.bench.samples import Subject
from escala.measurement.bench.shapes import FLOAT_BYTES, stream_floats

# rows, width, blocks of a chain of norm, activations and addition; what it keeps for backward, 400 MB, leaves
# the caches as that of a network does
CHAIN: Final = (2048, 1024, 8)
# As many as of a layer whose feed-forward is four times as wide as its stream
ACTIVATIONS: Final = 4
# Arrays that a block reads and writes, forward and backward: norm 2 + 3, activations 2 + 3, addition 3 + 3
CHAIN_PASSES: Final = 5 + 5 * ACTIVATIONS + 6
# samples, channels, side, kernel: much and little work for the bytes
CONVOLUTIONS: Final = ((4, 96, 48, 3), (4, 192, 24, 3), (4, 128, 40, 1), (4, 256, 28, 1))
# samples, channels, height and width of what a max-pool over 3 x 3 makes of twice the height and width
POOLED: Final = (4, 64, 40, 40)
# tensors and parameters of each
UPDATED: Final = (12, 2**20)


def operation_probes(device: Device) -> Iterator[Probe]:
    """Passes, convolutions, a max-pool and AdamW in fp32; nothing on a GPU."""
    if device.kind != "cpu":
        return
    yield _chain()
    floats = stream_floats(device.kind, device.memory_bytes)
    far = Far(floats)
    yield from (_convolution(far, *shape) for shape in CONVOLUTIONS)
    yield _pool()
    yield _update(device, floats)


class Far:
    """Memory of which every call reads and writes the next part: it left the caches since it was used before.

    In a step of training the optimizer and other layers have used the caches in between.
    """

    def __init__(self, floats: int) -> None:
        self.floats, self._taken, self._kept = floats, 0, 0
        self._numbers: Any = None
        self._made: deque[Any] = deque()

    def take(self, *shape: int) -> Any:
        """An array of the next numbers."""
        if self._numbers is None:
            self._numbers = torch.randn(self.floats)
        count = math.prod(shape)
        first = self._taken if self._taken + count <= self.floats else 0
        self._taken = first + count
        return self._numbers[first : self._taken].view(shape)

    def keep(self, *made: Any) -> None:
        """Hold what a call made until as much was made after it, so that the next call writes elsewhere."""
        self._made.extend(made)
        self._kept += sum(each.numel() for each in made)
        while self._kept > self.floats:
            self._kept -= self._made.popleft().numel()


def _chain() -> Probe:
    rows, width, blocks = CHAIN
    moved = float(CHAIN_PASSES * blocks * rows * width * FLOAT_BYTES)
    subject = Subject(
        part="passes", name="norm, activations, addition", dtype="fp32", shape=CHAIN, payload_bytes=moved
    )

    def make(probe: Probe) -> Sample:
        start = torch.randn(rows, width, requires_grad=True)
        gradient, scale, shift = torch.randn(rows, width), torch.ones(width), torch.zeros(width)

        def work() -> None:
            flow = start
            for _ in range(blocks):
                inner = functional.layer_norm(flow, (width,), scale, shift)
                for _ in range(ACTIVATIONS):
                    inner = functional.gelu(inner)
                flow = flow + inner
            torch.autograd.grad(flow, start, gradient)

        return lambda: (clocked(work, no_wait),)

    return Probe(subjects=(subject,), make=make)


def _convolution(far: Far, samples: int, channels: int, side: int, kernel: int) -> Probe:
    image_shape, weight_shape = (samples, channels, side, side), (channels, channels, kernel, kernel)
    flop = 2.0 * samples * side**2 * channels**2 * kernel**2
    moved = float(FLOAT_BYTES * (2 * math.prod(image_shape) + math.prod(weight_shape)))
    name = f"{kernel} x {kernel}, {channels} of {side} x {side}"
    subjects = tuple(
        Subject(
            part=part,
            name=f"{part} {name}",
            dtype="fp32",
            shape=(samples, channels, side, kernel),
            flop=times * flop,
            payload_bytes=times * moved,
        )
        for part, times in (("convolution", 1.0), ("convolution backward", 2.0))
    )

    def sample() -> tuple[float, ...]:
        found: list[Any] = []
        image, weight = (far.take(*shape).detach().requires_grad_() for shape in (image_shape, weight_shape))
        gradient = far.take(*image_shape)
        forward = _keeping(found, lambda: functional.conv2d(image, weight, padding=kernel // 2))
        forward_s = clocked(forward, no_wait)
        backward = _keeping(found, lambda: torch.autograd.grad(found[0], (image, weight), gradient))
        backward_s = clocked(backward, no_wait)
        far.keep(found[0], *found[1])
        return forward_s, backward_s

    return Probe(subjects=subjects, make=lambda probe: sample)


def _pool() -> Probe:
    samples, channels, height, width = POOLED
    name = f"max-pool 3 x 3, {channels} of {2 * height} x {2 * width}"
    subject = Subject(part="pooling", name=name, dtype="fp32", shape=POOLED)

    def make(probe: Probe) -> Sample:
        image = torch.randn(samples, channels, 2 * height, 2 * width, requires_grad=True)
        gradient = torch.randn(POOLED)

        def work() -> None:
            pooled = functional.max_pool2d(image, kernel_size=3, stride=2, padding=1)
            torch.autograd.grad(pooled, image, gradient)

        return lambda: (clocked(work, no_wait),)

    return Probe(subjects=(subject,), make=make)


def _update(device: Device, floats: int) -> Probe:
    """AdamW on networks in turn, whose weights together are as large as an array of a stream."""
    tensors, parameters = UPDATED
    subject = Subject(part="optimizer", name="AdamW step", dtype="fp32", shape=UPDATED)

    def make(probe: Probe) -> Sample:
        networks = cycle([_trained() for _ in range(max(1, floats // (tensors * parameters)))])
        return timing(lambda: next(networks).step(), device.wait)(probe)

    return Probe(subjects=(subject,), make=make)


def _trained() -> Any:
    """AdamW with the gradients of its tensors."""
    tensors, parameters = UPDATED
    weights = [nn.Parameter(torch.randn(parameters)) for _ in range(tensors)]
    for weight in weights:
        weight.grad = torch.randn(parameters)
    return torch.optim.AdamW(weights, lr=1e-4)


def _keeping(found: list[Any], work: Callable[[], Any]) -> Callable[[], None]:
    return lambda: found.append(work())
