"""What becomes of each client that a round asks: seconds by phase, bytes, joules, and why it was lost.

Knows columns of the cohort and random numbers; nothing of deadlines or of how many have to return.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.federated.fleet import Fleet
from escala.federated.order import SERVER, generator
from escala.federated.phases import RADIO_W, shared_rate, training_s, transfer_s
from escala.federated.transport import Transport, before_work_s, looked_s
from escala.model.columns import F64, I64, Bool
from escala.units import HOUR_S

FATES: Final = 2
STARTS: Final = 4
"""What the server's random numbers are for, see `fleet.DRAW`."""
DRAWS: Final = 4
DOWN, UP, LEAVES, WHEN = range(DRAWS)
ATTEMPTS: Final = 3
"""Assumption: so often is a transfer tried before a client gives up."""
DAY_HOURS: Final = 24
REASONS: Final = ("link", "dropout", "window", "battery")
LINK, DROPOUT, WINDOW, BATTERY = range(len(REASONS))
KEPT: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Payload:
    """Bytes of one message to a client and of its reply, overhead counted."""

    down_bytes: int
    up_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServerLink:
    """What the server sends and receives in a second, and how many clients share it."""

    down_bytes_per_s: float
    up_bytes_per_s: float
    clients: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fates:
    """One row a client of the cohort, seconds after it was asked. Shapes (k,).

    `end_s` is when its reply is there or when it stopped; `reason` is -1 or a place in `REASONS`. Seconds by
    phase and bytes are those that happened, tries that failed and what was cut off too.
    """

    clients: I64
    end_s: F64
    reason: I64
    down_s: F64
    work_s: F64
    up_s: F64
    down_bytes: F64
    up_bytes: F64
    battery_j: F64

    @property
    def has_returned(self) -> Bool:
        """Whose reply came, in time or not."""
        return self.reason == KEPT


def mean_phases(ended: Fates, counted: Bool) -> dict[str, float]:
    """Mean seconds of those that count, by phase."""
    return {
        "down": mean(ended.down_s[counted]),
        "compute": mean(ended.work_s[counted]),
        "up": mean(ended.up_s[counted]),
    }


def mean(column: F64) -> float:
    """The mean; 0 of nothing."""
    return float(column.mean()) if column.size else 0.0


def draws_of(seed: int, round_: int, clients: int) -> F64:
    """Four numbers from 0 to 1 for each client of the fleet, whoever is asked. Shape (n, 4)."""
    return generator(seed, SERVER, FATES, round_).random((clients, DRAWS))


def starts_of(seed: int, round_: int) -> np.random.Generator:
    """The random numbers of the pauses between tries of clients that wait for their message."""
    return generator(seed, SERVER, STARTS, round_)


def fates(
    fleet: Fleet,
    clients: I64,
    payload: Payload,
    server: ServerLink,
    *,
    epochs: int,
    transport: Transport,
    start_s: F64 | float,
    charge_j: F64,
    draws: F64,
    starts: np.random.Generator,
) -> Fates:
    """Download, start, train, upload, until one of four misfortunes: whichever comes first.

    A transfer is tried three times; a drop-out happens at any moment of the work alike; a client leaves when
    its hours end; an empty battery ends everything. The pauses before work and after it are those of the
    transport. `start_s`, `charge_j` and `draws` are of the cohort.
    """
    tries = {way: _attempts(draws[:, way], fleet.arrival_ratio[clients]) for way in (DOWN, UP)}
    one_s = _one_try_s(fleet, clients, payload, server)
    there_s, back_s = (np.minimum(tries[way], ATTEMPTS) * one_s[way] for way in (DOWN, UP))
    trained_s = training_s(fleet.samples[clients], epochs, fleet.sample_s[clients])
    before_s = before_work_s(transport, fleet.start_s[clients], there_s, starts)
    whole = np.stack([there_s, looked_s(before_s + trained_s, transport.reply_look_s), back_s])
    watts = _watts(fleet, clients)
    misfortunes = np.stack(
        [
            _lost_s(tries, whole),
            _dropped_s(draws, fleet.dropout_ratio[clients], whole),
            _beyond(hours_left_s(fleet, clients, start_s), whole),
            _empty_s(fleet, clients, charge_j, whole, watts),
        ]
    )
    stops_s, reason = misfortunes.min(axis=0), misfortunes.argmin(axis=0)
    end_s = np.minimum(whole.sum(0), stops_s)
    spent = np.where(end_s >= whole.sum(0), whole, _spent(whole, end_s))
    return Fates(
        clients=clients,
        end_s=end_s,
        reason=np.where(np.isinf(stops_s), KEPT, reason),
        down_s=spent[0],
        work_s=spent[1],
        up_s=spent[2],
        down_bytes=np.round(payload.down_bytes * spent[0] / one_s[DOWN]),
        up_bytes=np.round(payload.up_bytes * spent[2] / one_s[UP]),
        battery_j=np.where(fleet.has_battery[clients], (spent * watts).sum(0), 0.0),
    )


def _one_try_s(fleet: Fleet, clients: I64, payload: Payload, server: ServerLink) -> dict[int, F64]:
    """Seconds of one transfer each way, over a server's link that all share."""
    down = shared_rate(fleet.down_bytes_per_s[clients], server.up_bytes_per_s, server.clients)
    up = shared_rate(fleet.up_bytes_per_s[clients], server.down_bytes_per_s, server.clients)
    latency_s = fleet.latency_s[clients]
    return {
        DOWN: transfer_s(payload.down_bytes, down, latency_s),
        UP: transfer_s(payload.up_bytes, up, latency_s),
    }


def _lost_s(tries: dict[int, I64], whole: F64) -> F64:
    """When a client has tried a transfer in vain for the last time."""
    after_all = np.where(tries[UP] > ATTEMPTS, whole.sum(0), np.inf)
    return np.where(tries[DOWN] > ATTEMPTS, whole[0], after_all)


def _dropped_s(draws: F64, dropout_ratio: F64, whole: F64) -> F64:
    """When a client drops out: at any moment of its work alike."""
    return np.where(draws[:, LEAVES] < dropout_ratio, whole[0] + draws[:, WHEN] * whole[1], np.inf)


def hours_left_s(fleet: Fleet, clients: I64, start_s: F64 | float) -> F64:
    """Seconds until the hours of each client end; without end where it is there all day."""
    hour, into_s = np.divmod(np.broadcast_to(start_s, clients.shape), HOUR_S)
    ahead = (hour[:, None].astype(np.int64) + np.arange(DAY_HOURS)) % DAY_HOURS
    is_there = fleet.hours[clients[:, None], ahead]
    left_s = np.maximum(is_there.argmin(axis=1) * HOUR_S - into_s, 0.0)
    return np.where(is_there.all(axis=1), np.inf, left_s)


def _attempts(draw: F64, arrival_ratio: F64) -> I64:
    """Tries until one arrives, one more than allowed where none does: geometric, by inversion."""
    failed = 1.0 - arrival_ratio
    in_vain = [draw >= 1.0 - failed**tried for tried in range(1, ATTEMPTS + 1)]
    return np.asarray(1 + np.sum(in_vain, axis=0), np.int64)


def _beyond(left_s: F64, whole: F64) -> F64:
    return np.where(left_s < whole.sum(0), left_s, np.inf)


def _watts(fleet: Fleet, clients: I64) -> F64:
    """What a device draws while it receives, works and sends. Shape (3, k)."""
    idle_w = fleet.idle_w[clients]
    radio_w = idle_w + RADIO_W.mid
    return np.stack([radio_w, idle_w + fleet.compute_w[clients], radio_w])


def _empty_s(fleet: Fleet, clients: I64, charge_j: F64, whole: F64, watts: F64) -> F64:
    """When the battery is empty, where it does not last for the round."""
    after_j = np.cumsum(whole * watts, axis=0)
    before_j = np.vstack([np.zeros(len(clients)), after_j[:-1]])
    lasts_s = np.clip((charge_j - before_j) / np.maximum(watts, np.finfo(np.float64).tiny), 0.0, whole).sum(0)
    return np.where(fleet.has_battery[clients] & (charge_j < after_j[-1]), lasts_s, np.inf)


def _spent(whole: F64, end_s: F64) -> F64:
    """Seconds of each phase before the end."""
    begins_s = np.vstack([np.zeros(whole.shape[1]), np.cumsum(whole, axis=0)[:-1]])
    return np.clip(end_s - begins_s, 0.0, whole)
