"""The devices of a scenario as columns, one row a client; a client's number is its row, in every engine."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from escala.catalog.places import grid_carbon
from escala.federated.order import SERVER, generator
from escala.federated.ranges import Range
from escala.federated.scenario import ClientClass, Learnt, Scenario, Target
from escala.federated.training import Part, Selection, Training
from escala.model.columns import F64, I64, Bool

DRAW: Final = 0
"""What the server's random numbers are for: the fleet here, cohorts in `selection`, fates in `events`."""
DECILE: Final = 1.2815515655446004
"""The 90th percentile of the normal distribution."""
HOURS: Final = 24
SPEED, POWER, LINK, START = range(4)
"""What is drawn for a client: it is as slow on one target as on another, its link both ways."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fleet:
    """What each client has, drawn once from its class by a seed.

    Shapes (n,), but `hours` and `carbon_kg_per_j` (n, 24), by hour in UTC.
    `battery_j` is 0 where `has_battery` is false, `carbon_kg_per_j` is 0 where `has_carbon` is false.
    `target` is the chosen one of the device's targets, `sample_s` the time of one training sample on it.
    """

    kind: I64
    target: I64
    samples: I64
    sample_s: F64
    start_s: F64
    compute_w: F64
    idle_w: F64
    up_bytes_per_s: F64
    down_bytes_per_s: F64
    latency_s: F64
    arrival_ratio: F64
    dropout_ratio: F64
    hours: Bool
    battery_j: F64
    has_battery: Bool
    carbon_kg_per_j: F64
    has_carbon: Bool

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(slots=True, kw_only=True, eq=False)
class History:
    """What rounds told about each client so far; grows with them. Shapes (n,).

    `loss` is the root mean square of the last training losses of its samples (statistical utility), `round_s`
    its last round, `chosen` how often it was asked, `last_round` when it last returned (-1 never),
    `charge_ratio` what its battery last held of its capacity.
    """

    loss: F64
    round_s: F64
    chosen: I64
    last_round: I64
    charge_ratio: F64


def no_history(clients: int) -> History:
    """What is known before the first round: nothing; batteries are taken as full."""
    return History(
        loss=np.zeros(clients),
        round_s=np.zeros(clients),
        chosen=np.zeros(clients, np.int64),
        last_round=np.full(clients, -1),
        charge_ratio=np.ones(clients),
    )


def fleet_of(scenario: Scenario, seed: int) -> Fleet:
    """Every client with speed, power, link and start drawn from the ranges of its class.

    Clients are numbered class by class. A client's draw depends on the seed and on its number, not on how
    many follow. Seconds and watts that no client is known by are those of its class. The target is the
    fastest one; where clients are chosen by energy, the one that needs least for a sample in time.
    """
    counts = [each.clients for each in scenario.clients]
    draws = np.split(
        generator(seed, SERVER, DRAW).standard_normal((sum(counts), 4)), np.cumsum(counts)[:-1].tolist()
    )
    parts = [
        _class_columns(kind, each, scenario, draw)
        for kind, (each, draw) in enumerate(zip(scenario.clients, draws, strict=True))
    ]
    return Fleet(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def sample_flop(learnt: Learnt, part: Part) -> float:
    """Forward once, backward through activations once and through trained weights once.

    LoRA saves the last but for its share of weights; last layers save both backward parts below them, taken
    as their share of the weights.
    """
    trained_share = learnt.trained_weights / learnt.weights
    passes = {
        Part.FULL: 3.0,
        Part.LORA: 2.0 + trained_share,
        Part.LAST_LAYERS: 1.0 + 2.0 * trained_share,
    }[part]
    return passes * learnt.forward_flop_per_sample


def sample_seconds(target: Target, learnt: Learnt, part: Part) -> Range:
    """Time of one training sample: as measured for this model, else its FLOP / what the target achieves."""
    if target.sample_s is not None:
        return target.sample_s
    flop, rate = sample_flop(learnt, part), target.flop_per_s
    return Range(low=flop / rate.high, mid=flop / rate.mid, high=flop / rate.low)


def spread(given: Range, draws: F64) -> F64:
    """Values whose median is mid and whose 10th and 90th percentiles are low and high; equal ends are exact.

    Two halves of log-normal distributions that meet at mid; where an end is 0, the half is linear and ends
    there. That a range holds eight clients in ten is an assumption.
    """
    steps = np.abs(draws) / DECILE
    return np.where(draws < 0, _half(given.mid, given.low, steps), _half(given.mid, given.high, steps))


def _half(middle: float, end: float, steps: F64) -> F64:
    if min(middle, end) > 0:
        return middle * (end / middle) ** steps
    return np.maximum(middle + (end - middle) * steps, 0.0)


def _class_columns(kind: int, given: ClientClass, scenario: Scenario, draws: F64) -> dict[str, F64]:
    rows = len(draws)
    device, access = given.device, given.access
    link = -draws[:, LINK]  # a high draw is a slow client, in everything
    columns = {
        "start_s": spread(device.start_s, draws[:, START]),
        "idle_w": spread(device.idle_w, draws[:, POWER]),
        "up_bytes_per_s": spread(access.up_bytes_per_s, link),
        "down_bytes_per_s": spread(access.down_bytes_per_s, link),
    }
    same = {
        "kind": kind,
        "samples": given.data.samples,
        "latency_s": access.latency_s,
        "arrival_ratio": access.arrival_ratio,
        "dropout_ratio": given.dropout_ratio,
        "battery_j": device.battery_j or 0.0,
        "has_battery": device.battery_j is not None,
    }
    columns |= {name: np.full(rows, value) for name, value in same.items()}
    columns |= _targets(given, scenario, columns, draws)
    return columns | _hourly(given, rows)


def _targets(given: ClientClass, scenario: Scenario, columns: dict[str, F64], draws: F64) -> dict[str, F64]:
    """Speed and power on the target that each client computes with."""
    targets, training = given.device.targets, scenario.training
    seconds = [sample_seconds(each, scenario.learnt, training.part) for each in targets]
    sample_s = np.stack([spread(each, draws[:, SPEED]) for each in seconds], axis=1)
    compute_w = np.stack([spread(each.power_w, draws[:, POWER]) for each in targets], axis=1)
    least = sample_s
    if training.selection is Selection.ENERGY:
        work_s = sample_s * (training.local_epochs * columns["samples"])[:, None]
        is_late = work_s > _time_to_compute_s(scenario.learnt, training, columns)[:, None]
        least = np.where(is_late, np.inf, sample_s * compute_w)
        least = np.where(is_late.all(axis=1, keepdims=True), sample_s, least)
    target = least.argmin(axis=1)
    chosen = (np.arange(len(target)), target)
    return {"target": target, "sample_s": sample_s[chosen], "compute_w": compute_w[chosen]}


def _time_to_compute_s(learnt: Learnt, training: Training, columns: dict[str, F64]) -> F64:
    """What a round's deadline leaves beside the start and two transfers that no codec shortens."""
    if training.round_deadline_s is None:
        return np.full(len(columns["start_s"]), np.inf)
    payload_bytes = learnt.trained_weights * learnt.weight_bytes
    transfer_s = payload_bytes / columns["up_bytes_per_s"] + payload_bytes / columns["down_bytes_per_s"]
    return training.round_deadline_s - columns["start_s"] - 2 * columns["latency_s"] - transfer_s


def _hourly(given: ClientClass, rows: int) -> dict[str, F64]:
    present = np.isin(np.arange(HOURS), given.hours)
    carbon: Sequence[float] = given.hourly_carbon_kg_per_j
    if not carbon and given.country is not None:
        carbon = [grid_carbon(given.country).value] * HOURS
    return {
        "hours": np.tile(present, (rows, 1)),
        "carbon_kg_per_j": np.tile(np.asarray(carbon or [0.0] * HOURS), (rows, 1)),
        "has_carbon": np.full(rows, len(carbon) > 0),
    }


def without(fleet: Fleet, clients: Iterable[int]) -> Fleet:
    """The fleet with some clients never there, as if they had no hours."""
    hours = fleet.hours.copy()
    hours[list(clients)] = False
    return replace(fleet, hours=hours)
