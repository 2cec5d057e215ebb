"""One client's part in a round, class by class: seconds, bytes and joules by phase, and the chance to return.

Columns of shape (classes, own cases, shared cases); times of return have a row for each way to retry.
"""

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from escala.federated.cases import Cases, stacked
from escala.federated.fates import ATTEMPTS, Payload
from escala.federated.fleet import sample_seconds
from escala.federated.phases import RADIO_W, moving_j, shared_rate, training_s, transfer_s, working_j
from escala.federated.population import payload_of
from escala.federated.ranges import exactly
from escala.federated.scenario import ClientClass, Learnt, Scenario, Target
from escala.federated.selection import asked_clients
from escala.federated.training import Selection, Training
from escala.model.columns import F64
from escala.units import HOUR_S

DAY_HOURS: Final = 24
# Of a weight that is trained: itself, its gradient and one moment, in fp32; activations come on top.
STATE_BYTES: Final = 12.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Visits:
    """Every class: means of a client that is asked, and the times after which it may be back.

    `return_s` and `chances` have shape (classes, ways, own, shared); the chances of a class add up to the
    chance that its client returns at all.
    """

    down_s: F64
    work_s: F64
    up_s: F64
    down_bytes: F64
    up_bytes: F64
    down_j: F64
    compute_j: F64
    up_j: F64
    network_j: F64
    idle_w: F64
    return_s: F64
    chances: F64

    @property
    def busy_s(self) -> F64:
        """Seconds of a client that is asked, waiting aside."""
        return self.down_s + self.work_s + self.up_s

    @property
    def shortest_s(self) -> F64:
        """Seconds of a client all of whose transfers arrive at once."""
        return self.return_s[:, 0]


def visits_of(scenario: Scenario, cases: Cases) -> Visits:
    """The part of every class."""
    payload = payload_of(scenario)
    found = [_visit(scenario, each, payload, cases) for each in scenario.clients]
    return Visits(**{each.name: stacked([one[each.name] for one in found]) for each in fields(Visits)})


def target_of(given: ClientClass, learnt: Learnt, training: Training) -> Target:
    """What a class computes with: the fastest target; with selection by energy the one that needs least."""
    by_energy = training.selection is Selection.ENERGY

    def cost(target: Target) -> float:
        sample_s = sample_seconds(target, learnt, training.part).mid
        return sample_s * target.power_w.mid if by_energy else sample_s

    return min(given.device.targets, key=cost)


def training_bytes(learnt: Learnt) -> float:
    """Memory of training: as measured, else weights + state of those that are trained, at the least."""
    if learnt.training_memory_bytes is not None:
        return learnt.training_memory_bytes
    return learnt.weights * learnt.weight_bytes + learnt.trained_weights * STATE_BYTES


def fits(given: ClientClass, learnt: Learnt) -> bool:
    """Whether training fits the device of a class."""
    return training_bytes(learnt) <= given.device.memory_bytes


def tries_of(arrival_ratio: float) -> tuple[F64, float, float]:
    """Chances that the 1st, 2nd, 3rd try arrives; their sum; and the mean number of tries."""
    failed = np.array([(1.0 - arrival_ratio) ** tried for tried in range(ATTEMPTS)])
    arrives = np.asarray(arrival_ratio * failed, np.float64)
    return arrives, float(arrives.sum()), float(failed.sum())


def _visit(scenario: Scenario, given: ClientClass, payload: Payload, cases: Cases) -> dict[str, F64]:
    access, device, training = given.access, given.device, scenario.training
    down_s, up_s = _one_transfer_s(scenario, given, payload, cases)
    target = target_of(given, scenario.learnt, training)
    sample_s = cases.own(sample_seconds(target, scenario.learnt, training.part))
    work_s = cases.own(device.start_s) + training_s(
        np.array(given.data.samples), training.local_epochs, sample_s
    )
    arrives, arrival, tries = tries_of(access.arrival_ratio)
    stays = 1.0 - given.dropout_ratio
    radio_w = cases.own(RADIO_W if device.battery_j is not None else exactly(0.0))
    idle_w, compute_w = cases.own(device.idle_w), cases.own(target.power_w)
    mean_work_s = arrival * (stays + given.dropout_ratio / 2) * work_s
    mean_down_s, mean_up_s = tries * down_s, arrival * stays * tries * up_s
    down_bytes, up_bytes = tries * payload.down_bytes, arrival * stays * tries * payload.up_bytes
    nothing = np.zeros(1)
    ways = np.arange(1, ATTEMPTS + 1)
    return_s = ways[:, None, None, None] * down_s + work_s + ways[None, :, None, None] * up_s
    both = np.multiply.outer(arrives, arrives)[:, :, None, None]
    moved_j = moving_j(down_s + up_s, idle_w, radio_w, nothing, nothing)
    whole_j = working_j(work_s, compute_w, idle_w) + moved_j
    chances = both * stays * _stays_there(given, return_s) * _lasts(device.battery_j, whole_j)
    shape = (ATTEMPTS**2, *np.broadcast_shapes(return_s.shape, chances.shape)[2:])
    return {
        "down_s": mean_down_s,
        "work_s": mean_work_s,
        "up_s": mean_up_s,
        "down_bytes": np.full((1, 1), down_bytes),
        "up_bytes": np.full((1, 1), up_bytes),
        "down_j": moving_j(mean_down_s, idle_w, radio_w, nothing, nothing),
        "compute_j": working_j(mean_work_s, compute_w, idle_w),
        "up_j": moving_j(mean_up_s, idle_w, radio_w, nothing, nothing),
        "network_j": cases.shared(access.energy_j_per_byte) * (down_bytes + up_bytes),
        "idle_w": idle_w if device.battery_j is None else 0.0 * idle_w,
        "return_s": np.broadcast_to(return_s, (ATTEMPTS, ATTEMPTS, *shape[1:])).reshape(shape),
        "chances": np.broadcast_to(chances, (ATTEMPTS, ATTEMPTS, *shape[1:])).reshape(shape),
    }


def _one_transfer_s(
    scenario: Scenario, given: ClientClass, payload: Payload, cases: Cases
) -> tuple[F64, F64]:
    """Seconds of a message down and up: at the client's rate, or at its part of the server's if less."""
    server, access = scenario.central.access, given.access
    asked = asked_clients(scenario.training)
    down = shared_rate(
        cases.shared(access.down_bytes_per_s, is_rate=True),
        cases.shared(server.up_bytes_per_s, is_rate=True),
        asked,
    )
    up = shared_rate(
        cases.shared(access.up_bytes_per_s, is_rate=True),
        cases.shared(server.down_bytes_per_s, is_rate=True),
        asked,
    )
    latency_s = np.array(access.latency_s)
    return transfer_s(payload.down_bytes, down, latency_s), transfer_s(payload.up_bytes, up, latency_s)


def _stays_there(given: ClientClass, return_s: F64) -> F64:
    """Chance that its hours do not end before: 1 - seconds / its window, in which it is asked at any time."""
    if len(given.hours) == DAY_HOURS:
        return np.ones_like(return_s)
    return np.clip(1.0 - return_s / window_s(given.hours), 0.0, 1.0)


def window_s(hours: tuple[int, ...]) -> float:
    """The longest run of hours, over midnight too."""
    longest = run = 0
    for hour in range(2 * DAY_HOURS):
        run = run + 1 if hour % DAY_HOURS in hours else 0
        longest = max(longest, min(run, DAY_HOURS))
    return longest * HOUR_S


def _lasts(battery_j: float | None, needed_j: F64) -> F64:
    return np.ones_like(needed_j) if battery_j is None else np.where(needed_j <= battery_j, 1.0, 0.0)
