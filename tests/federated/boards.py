"""Small populations for tests: every number is round, and known exactly unless a test says a range."""

from dataclasses import replace
from typing import Any

from escala.federated.ranges import Range, exactly
from escala.federated.scenario import (
    Access,
    Central,
    ClientClass,
    Device,
    Learnt,
    LocalData,
    Movement,
    Rules,
    Scenario,
    Target,
)
from escala.federated.training import Training

LEARNT = Learnt(name="small", weights=1e6, trained_weights=1e6, forward_flop_per_sample=1e9)


def device(**changes: Any) -> Device:
    """10 GFLOP/s at 2 W over 1 W idle, 5 s to start."""
    target = Target(name="cpu", flop_per_s=exactly(1e10), power_w=exactly(2.0))
    made = Device(
        name="board", targets=(target,), memory_bytes=1e9, idle_w=exactly(1.0), start_s=exactly(5.0)
    )
    return replace(made, **changes)


def access(**changes: Any) -> Access:
    """1 MB/s up, 4 MB/s down, no latency, everything arrives."""
    made = Access(
        name="line",
        up_bytes_per_s=exactly(1e6),
        down_bytes_per_s=exactly(4e6),
        latency_s=0.0,
        arrival_ratio=1.0,
        energy_j_per_byte=Range(low=1e-5, mid=1e-4, high=4e-4),
    )
    return replace(made, **changes)


def clients(count: int, **changes: Any) -> ClientClass:
    """Clients with 100 samples of 1 kB: 3 * 1 GFLOP / 10 GFLOP/s = 0.3 s a sample."""
    made = ClientClass(
        name="boards",
        clients=count,
        device=device(),
        access=access(),
        data=LocalData(samples=100, sample_bytes=1000.0),
    )
    return replace(made, **changes)


def scenario(*classes: ClientClass, training: Training | None = None, **changes: Any) -> Scenario:
    """A scenario of these classes, or of ten clients; two a round for ten rounds."""
    central = Central(
        name="room",
        devices=1,
        flop_per_s=exactly(1e13),
        power_w=exactly(300.0),
        pue=1.2,
        country=None,
        price_usd_per_device_hour=None,
        price_source=None,
        access=access(up_bytes_per_s=exactly(1e12), down_bytes_per_s=exactly(1e12)),
        epochs=exactly(1.0),
    )
    made = Scenario(
        name="test",
        learnt=LEARNT,
        training=training or Training(rounds=exactly(10), clients_per_round=2),
        clients=classes or (clients(10),),
        rules=Rules(movement=Movement.FREE),
        central=central,
    )
    return replace(made, **changes)
