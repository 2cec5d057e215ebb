"""Which clients a round asks: by chance, utility, energy or carbon. Knows columns and a seed, no network.

A cohort depends on the seed, the round and the clients' numbers (and, but for uniform and Poisson, on their
columns), never on the order in which nodes turn up. Weighted policies run a race: each client draws an
exponential time over its weight and the first ones win, which samples without replacement in proportion to
weight. Source: Efraimidis and Spirakis 2006.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.errors import InvalidInput
from escala.federated.fleet import Fleet, History
from escala.federated.order import SERVER, generator
from escala.federated.training import Selection, Training
from escala.model.columns import F64, I64, Bool

COHORT: Final = 1
"""What the server's random numbers are for, see `fleet.DRAW`."""

# Oort: share of never tried clients, its decay by round and its floor; utilities above this percentile count
# as much; clients slower than this percentile pay (preferred time / time) to this power; weight of staleness;
# who is within this share of the last one that would get in may get in.
# Source: Lai et al. 2021 and the defaults of its code in FedScale (fedscale/cloud/config_parser.py).
EXPLORATION, EXPLORATION_DECAY, EXPLORATION_LEAST = 0.9, 0.98, 0.3
UTILITY_CLIP, PREFERRED_TIME, PENALTY = 90, 30, 2.0
STALENESS: Final = 0.1
CUT_OFF: Final = 0.95
# Assumptions: a client that needs half the energy or carbon is four times as likely; a fifth of a battery is
# its owner's.
PREFERENCE: Final = 2.0
RESERVE: Final = 0.2


def choose(training: Training, fleet: Fleet, history: History, here: Bool, *, round_: int, hour: int) -> I64:
    """Sorted numbers of the clients that a round asks, among those that are here; `hour` is of the day, UTC.

    `clients_per_round` times `over_selection` of them, or all where there are fewer; with Poisson a number
    by chance.
    """
    refuse_unfit(training, fleet)
    field = Field(
        training=training,
        fleet=fleet,
        history=history,
        here=here,
        race=generator(training.seed, SERVER, COHORT, round_).standard_exponential(len(fleet)),
        wanted=min(asked_clients(training), int(here.sum())),
        round_=round_,
        hour=hour,
    )
    return np.sort(POLICIES[training.selection](field))


def refuse_unfit(training: Training, fleet: Fleet) -> None:
    """Refuse a policy that cannot be followed with this training or this fleet."""
    if training.selection is Selection.POISSON and training.over_selection != 1.0:
        raise InvalidInput(
            "over_selection does not go with selection poisson: the first of a cohort are no Poisson sample;"
            " leave over_selection out or choose uniform"
        )
    if training.selection is Selection.LOW_CARBON and not fleet.has_carbon.any():
        raise InvalidInput("selection low-carbon needs the country of at least one class of clients")


def asked_clients(training: Training) -> int:
    """Clients that have to return * over-selection, rounded up."""
    return math.ceil(round(training.clients_per_round * training.over_selection, 9))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Field:
    """The clients before a choice: columns, who is here, the time that each drew, how many are wanted."""

    training: Training
    fleet: Fleet
    history: History
    here: Bool
    race: F64
    wanted: int
    round_: int
    hour: int


def uniform(field: Field) -> I64:
    """Each client that is here is as likely as another."""
    return _winners(field.race, field.here, field.wanted)


def poisson(field: Field) -> I64:
    """Each client by itself, with probability clients of a round / all clients."""
    probability = min(field.training.clients_per_round / len(field.fleet), 1.0)
    return np.flatnonzero(field.here & (field.race > -math.log(probability)))


def utility(field: Field) -> I64:
    """Those whose samples still teach most in good time, and a share of clients that nobody has tried.

    Utility = samples * loss, scaled to 0..1, + what staleness adds, * (preferred time / time)^2 for the slow.
    Source: Lai et al. 2021 (Oort), without its pacer: the preferred time is the 30th percentile of times.
    """
    tried = field.here & (field.history.last_round >= 0)
    new = field.here & ~tried
    share = max(EXPLORATION * EXPLORATION_DECAY**field.round_, EXPLORATION_LEAST)
    exploring = min(int(field.wanted * share), int(new.sum()))
    known = min(field.wanted - exploring, int(tried.sum()))
    best = _exploited(field, tried, known)
    speed = _in_time(_expected_s(field), new)
    return np.concatenate([best, _winners(_raced(field.race, speed), new, field.wanted - known)])


def energy(field: Field) -> I64:
    """Clients that spend little on a sample and have charge left after the round; the target was chosen so.

    Weight = (1 / energy of a sample)^2 * charge after the round. Who would fall below a fifth of the battery
    is not asked. A heuristic after the ideas of Kim and Wu 2021 (AutoFL) and of Arouj and Abdelmoniem 2022
    (EAFL).
    """
    fleet = field.fleet
    round_j = fleet.compute_w * fleet.sample_s * fleet.samples * field.training.local_epochs
    spent = np.divide(round_j, fleet.battery_j, out=np.zeros(len(fleet)), where=fleet.has_battery)
    left = np.where(fleet.has_battery, field.history.charge_ratio - spent, 1.0)
    able = field.here & (left >= np.where(fleet.has_battery, RESERVE, 0.0))
    return _winners(field.race * _cost(sample_j(fleet), able) / np.maximum(left, RESERVE), able, field.wanted)


def low_carbon(field: Field) -> I64:
    """Clients whose grid is now at or below its mean of the day, those with little carbon of a sample first.

    Weight = (1 / carbon of a sample)^2. Others, and those whose grid nobody knows, fill up what is missing.
    """
    fleet = field.fleet
    mean = fleet.carbon_kg_per_j.mean(axis=1)
    now = np.where(fleet.has_carbon, fleet.carbon_kg_per_j[:, field.hour], mean.max())
    is_green = fleet.has_carbon & (now <= mean * (1 + 1e-9))
    race = field.race * _cost(sample_j(fleet) * now, field.here)
    first = _winners(race, field.here & is_green, field.wanted)
    return np.concatenate([first, _winners(race, field.here & ~is_green, field.wanted - len(first))])


POLICIES: Final[dict[Selection, Callable[[Field], I64]]] = {
    Selection.UNIFORM: uniform,
    Selection.POISSON: poisson,
    Selection.UTILITY: utility,
    Selection.ENERGY: energy,
    Selection.LOW_CARBON: low_carbon,
}


def sample_j(fleet: Fleet) -> F64:
    """Energy of one training sample above idle: power * time."""
    return fleet.compute_w * fleet.sample_s


def _cost(value: F64, among: Bool) -> F64:
    """What multiplies the time of a client in the race: (value / mean)^2."""
    mean = value[among].mean() if among.any() else 1.0
    return (value / mean) ** PREFERENCE if mean > 0 else np.ones(len(value))


def _raced(race: F64, weight: F64) -> F64:
    """Times over weights; who has no weight comes last."""
    return np.divide(race, weight, out=np.full(len(race), np.inf), where=weight > 1e-300)


def _winners(race: F64, among: Bool, count: int) -> I64:
    """So many of the clients with the least times."""
    numbers = np.flatnonzero(among)
    if count >= len(numbers):
        return numbers
    return numbers[np.argpartition(race[numbers], count)[:count]] if count > 0 else numbers[:0]


def _exploited(field: Field, tried: Bool, count: int) -> I64:
    """A draw, by utility, of those that reach 95 % of the last utility that would get in."""
    if count == 0:
        return np.empty(0, np.int64)
    value = _utilities(field, tried)
    last = np.partition(value[tried], -count)[-count]
    pool = tried & (value >= CUT_OFF * last)
    return _winners(_raced(field.race, value), pool, count)


def _utilities(field: Field, tried: Bool) -> F64:
    history = field.history
    reward = field.fleet.samples * history.loss
    low, clip = reward[tried].min(), np.percentile(reward[tried], UTILITY_CLIP)
    scaled = (np.minimum(reward, clip) - low) / (clip - low) if clip > low else np.ones(len(reward))
    age = STALENESS * math.log(max(field.round_, 1)) / np.maximum(history.last_round, 1)
    return (scaled + np.sqrt(age)) * _in_time(history.round_s, tried)


def _expected_s(field: Field) -> F64:
    fleet = field.fleet
    return fleet.start_s + fleet.sample_s * fleet.samples * field.training.local_epochs


def _in_time(took_s: F64, among: Bool) -> F64:
    """1 up to the preferred time, (preferred time / time)^2 beyond it."""
    if not among.any():
        return np.ones(len(took_s))
    preferred_s = np.percentile(took_s[among], PREFERRED_TIME)
    return np.where(took_s > preferred_s, preferred_s / np.maximum(took_s, preferred_s), 1.0) ** PENALTY
