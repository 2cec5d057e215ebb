"""Small tasks and populations for tests."""

import numpy as np

from escala.federated.ranges import exactly
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
    Skew,
    Target,
)
from escala.federated.task import Task
from escala.federated.training import Training

DEVICE = Device(
    name="board",
    targets=(Target(name="cpu", flop_per_s=exactly(1e9), power_w=exactly(2.0)),),
    memory_bytes=1e9,
    idle_w=exactly(1.0),
    start_s=exactly(0.0),
)
ACCESS = Access(
    name="line",
    up_bytes_per_s=exactly(1e6),
    down_bytes_per_s=exactly(1e6),
    latency_s=0.0,
    arrival_ratio=1.0,
    energy_j_per_byte=exactly(1e-4),
)


def clients(count: int, samples: int, skew: Skew = Skew.IID, **data: object) -> ClientClass:
    """So many clients alike."""
    held = LocalData(samples=samples, sample_bytes=256, skew=skew, **data)
    return ClientClass(name="alike", clients=count, device=DEVICE, access=ACCESS, data=held)


def training(**changed: object) -> Training:
    """Training of all ten clients, but for what is changed."""
    return Training(**{"rounds": exactly(5), "clients_per_round": 10, **changed})


def plain_task(labels: np.ndarray, users: np.ndarray | None = None) -> Task:
    """A task whose inputs count its rows and whose module is never made."""
    rows = np.arange(len(labels))
    return Task(
        name="rows",
        module=lambda: None,
        inputs=rows[:, None].astype(np.float32),
        labels=np.asarray(labels, np.int64),
        test_inputs=np.zeros((1, 1), np.float32),
        test_labels=np.zeros(1, np.int64),
        users=users,
    )


def population(classes: list[ClientClass], asked: Training) -> Scenario:
    """A scenario of classes of clients that learn some network."""
    return Scenario(
        name="population",
        learnt=Learnt(name="net", weights=17_226, trained_weights=17_226, forward_flop_per_sample=34e3),
        training=asked,
        clients=tuple(classes),
        rules=Rules(movement=Movement.NEVER),
        central=Central(
            name="room",
            devices=1,
            flop_per_s=exactly(1e12),
            power_w=exactly(300.0),
            pue=1.2,
            country=None,
            price_usd_per_device_hour=None,
            price_source=None,
            access=ACCESS,
            epochs=exactly(1.0),
        ),
    )
