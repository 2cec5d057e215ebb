"""How many more rounds to a target, from the rounds of a pilot. Knows a metric by round, not its cause.

Curves of two families are drawn as much as they count, with the noise from one evaluation to the next: when
they first are at the target is the interval, with the disagreement of the families in it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from escala import __version__
from escala.errors import InvalidInput, unknown
from escala.federated.roundrecord import Round
from escala.federated.saturating import FAMILIES, Fits, at_round, crossing_of, fits_of
from escala.model.columns import F64

SCHEMA: Final = "escala/federate-forecast@1"
LEAST_POINTS: Final = 8
ENOUGH_POINTS: Final = 20
SHORT: Final = (
    "fewer than 20 evaluations: of such pilots of real training the interval held the truth in 4 of 10, as it"
    " came sooner; run a longer pilot"
)
"""Measured: docs/how-to/forecast-rounds.md."""
DRAWS: Final = 1000
MOST_STEPS: Final = 4000
"""So many evaluations ahead noise is drawn for each of; beyond, the curve alone decides."""
NEVER_TIMES: Final = 1000.0
"""A target that takes more than so many times the pilot is taken as out of reach."""
LEAST_WAY: Final = 0.1
"""A pilot has to have gone this much of the way to the target; an assumption."""
INTERVAL: Final = (0.1, 0.5, 0.9)


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """A family of curves: how much it counts, and where it alone puts the target (None: never)."""

    name: str
    weight: float
    more_rounds: float | None


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """More rounds after the pilot to the first evaluation at the target; 80 % interval.

    None is never, or out of reach; `never_share` of the fits say so. `level` is where the metric saturates,
    low, mid and high. `reached_round` is set where the pilot itself reached the target.
    """

    schema: str = SCHEMA
    escala: str
    metric: str
    target: float
    pilot_rounds: int
    points: int
    best: float
    reached_round: int | None
    more_low_rounds: float | None
    more_mid_rounds: float | None
    more_high_rounds: float | None
    never_share: float
    level: tuple[float, float, float]
    noise: float
    families: tuple[Family, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pilot:
    """A metric where it was evaluated. Shapes (n,)."""

    metric: str
    rounds: F64
    values: F64


def pilot_of(rounds: Sequence[Round], metric: str) -> Pilot:
    """A metric of recorded rounds."""
    known = list(dict.fromkeys(name for each in rounds for name in each.metrics))
    if metric not in known:
        hint = f"there are {', '.join(known)}" if known else "nothing was evaluated"
        raise unknown("metric of these rounds", metric, known, hint)
    points = [(each.round, each.metrics[metric]) for each in rounds if metric in each.metrics]
    finite = [(round_, value) for round_, value in points if math.isfinite(value)]
    if len(finite) < LEAST_POINTS:
        raise InvalidInput(
            f"{len(finite)} rounds have '{metric}'; a forecast needs {LEAST_POINTS} at least: run a longer"
            " pilot"
        )
    at, values = np.array(finite, np.float64).T
    return Pilot(metric=metric, rounds=at, values=values)


def forecast(pilot: Pilot, target: float, *, seed: int = 0) -> Forecast:
    """More rounds to the target: the tenth, half and nine tenths of all fits, each with noise of its own."""
    if "accuracy" in pilot.metric and not 0 <= target <= 1:
        raise InvalidInput(f"{pilot.metric} lies between 0 and 1, {target:g} was given; write 0.9 for 90 %")
    sign = -1.0 if target < pilot.values[0] else 1.0
    values, goal = sign * pilot.values, sign * target
    best, reached = float(values.max()), np.flatnonzero(values >= goal)
    if not reached.size:
        _refuse_too_early(pilot, target)
    fits = fits_of(pilot.rounds, values, _cap(pilot, sign, goal))
    generator = np.random.default_rng(seed)
    drawn = _drawn(fits, generator)
    more = _more_rounds(drawn, pilot, values, goal, generator) if not reached.size else np.zeros(DRAWS)
    ends = [_or_none(each) for each in np.quantile(more, INTERVAL, method="inverted_cdf")]
    level = sorted(sign * np.quantile(drawn.level, INTERVAL))
    return Forecast(
        escala=__version__,
        metric=pilot.metric,
        target=target,
        pilot_rounds=int(pilot.rounds[-1]),
        points=len(pilot.rounds),
        best=sign * best,
        reached_round=int(pilot.rounds[reached[0]]) if reached.size else None,
        more_low_rounds=ends[0],
        more_mid_rounds=ends[1],
        more_high_rounds=ends[2],
        never_share=float(np.isinf(more).mean()),
        level=(float(level[0]), float(level[1]), float(level[2])),
        noise=jitter(values),
        families=tuple(_families(fits, drawn, more)),
        notes=(SHORT,) if not reached.size and len(pilot.rounds) < ENOUGH_POINTS else (),
    )


def _refuse_too_early(pilot: Pilot, target: float) -> None:
    """Refuse a pilot that has not left its beginning: nothing in it says how the rest will go."""
    begins, ends = float(pilot.values[0]), float(np.median(pilot.values[-max(len(pilot.values) // 3, 3) :]))
    way = (ends - begins) / (target - begins)
    if way < LEAST_WAY:
        raise InvalidInput(
            f"{pilot.metric} went from {begins:.3g} to {ends:.3g} in the pilot, not a tenth of the way to"
            f" {target:g}: run a longer pilot"
        )


def jitter(values: F64) -> float:
    """Standard deviation from one evaluation to the next, in the later half: of differences / sqrt 2."""
    return float(np.diff(values[len(values) // 2 :]).std() / math.sqrt(2))


def _families(fits: Fits, drawn: Fits, more: F64) -> Iterator[Family]:
    for at, family in enumerate(FAMILIES):
        own = more[drawn.family == at]
        middle = _or_none(np.quantile(own, 0.5, method="inverted_cdf")) if own.size else None
        yield Family(name=family.name, weight=float(fits.share[fits.family == at].sum()), more_rounds=middle)


def _or_none(value: float) -> float | None:
    return None if math.isinf(value) else float(value)


def _cap(pilot: Pilot, sign: float, goal: float) -> float:
    """What the metric cannot pass: 1 for shares, 0 for what falls, else far beyond the target."""
    values = sign * pilot.values
    if sign < 0 <= pilot.values.min():
        return 0.0
    if pilot.values.min() >= 0 and pilot.values.max() <= 1 and goal <= 1:
        return 1.0
    return float(max(values.max(), goal) + 2 * (max(values.max(), goal) - values.min()))


def _drawn(fits: Fits, generator: np.random.Generator) -> Fits:
    """Curves by their shares."""
    rows = generator.choice(len(fits.share), DRAWS, p=fits.share)
    return Fits(**{name: getattr(fits, name)[rows] for name in Fits.__dataclass_fields__})


def _more_rounds(drawn: Fits, pilot: Pilot, values: F64, goal: float, generator: np.random.Generator) -> F64:
    """The first evaluation at which each curve with its noise is at the target."""
    every = float(np.median(np.diff(pilot.rounds)))
    last = float(pilot.rounds[-1])
    crossing = crossing_of(drawn, goal) - last
    steps = int(min(max(4 * len(values), 200), MOST_STEPS))
    more = np.where(crossing > steps * every, crossing, np.inf)
    noise = jitter(values)
    waiting = np.ones(DRAWS, np.bool_)
    for step in range(1, steps + 1):
        at = last + step * every
        deviation = generator.standard_normal(DRAWS)
        value = at_round(drawn, np.full(DRAWS, at)) + noise * deviation
        hit = waiting & (value >= goal)
        more[hit] = step * every
        waiting &= ~hit
        if not waiting.any():
            break
    return np.where(more > NEVER_TIMES * last, np.inf, more)
