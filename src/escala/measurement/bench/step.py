"""Probes of one real training step of a small network, and of the launch of one small operation."""

import time
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import nn

from escala.measurement.bench.device import Device
from escala.measurement.bench.probe import Probe, Sample, clocked
from escala.measurement.bench.samples import Subject

# layers, hidden, heads, vocabulary, sequences, tokens of a sequence
SIZES: Final = {"cpu": (2, 256, 4, 2048, 2, 64), "cuda": (4, 1024, 16, 32768, 8, 1024)}
LAUNCHES: Final = 1000
PHASES: Final = ("forward", "backward", "optimizer")


def step_probes(device: Device) -> Iterator[Probe]:
    """Forward with loss, backward and AdamW of a small decoder."""
    dtype = "bf16" if device.kind == "cuda" else "fp32"
    subjects = tuple(
        Subject(part="step", name=f"step, {phase}", dtype=dtype, shape=SIZES[device.kind]) for phase in PHASES
    )
    yield Probe(subjects=subjects, make=lambda probe: _step(device))


def launch_probe(device: Device) -> Probe:
    """A thousand additions of one number."""
    return Probe(
        subjects=(Subject(part="launch", name="one small operation", dtype="fp32", shape=(1,)),),
        make=lambda probe: _launch(device),
    )


def _step(device: Device) -> Sample:
    *_, vocabulary, sequences, tokens = SIZES[device.kind]
    network = _network(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    ids = torch.randint(vocabulary, (sequences, tokens), device=device.place)

    def sample() -> tuple[float, ...]:
        losses: list[Any] = []

        def forward() -> None:
            scores = network(ids).flatten(0, 1).float()
            losses.append(nn.functional.cross_entropy(scores, ids.flatten()))

        forward_s = clocked(forward, device.wait)
        backward_s = clocked(lambda: losses[0].backward(), device.wait)
        optimizer_s = clocked(optimizer.step, device.wait)
        optimizer.zero_grad()
        return forward_s, backward_s, optimizer_s

    return sample


def _network(device: Device) -> Any:
    layers, hidden, heads, vocabulary, *_ = SIZES[device.kind]
    block = [
        nn.TransformerEncoderLayer(
            hidden, heads, 4 * hidden, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        for _ in range(layers)
    ]
    network = nn.Sequential(nn.Embedding(vocabulary, hidden), *block, nn.Linear(hidden, vocabulary))
    return network.to(device.place, torch.bfloat16 if device.kind == "cuda" else torch.float32)


def _launch(device: Device) -> Sample:
    number = torch.zeros(1, device=device.place)

    def sample() -> tuple[float, ...]:
        device.wait()
        began = time.perf_counter()
        for _ in range(LAUNCHES):
            number.add_(1.0)
        device.wait()
        return ((time.perf_counter() - began) / LAUNCHES,)

    return sample
