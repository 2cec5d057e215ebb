"""`assess`: a scenario's verdict with everything that it rests on, as one document. Runs nothing."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from escala import __version__
from escala.errors import InvalidInput
from escala.federated.cases import ALL, ONLY_MIDDLE, range_over
from escala.federated.costs import Costs, Federated, alone_for, central_for, federated
from escala.federated.criteria import Criterion, break_even_bytes, criteria, mean_data_bytes
from escala.federated.flips import Flip, flips
from escala.federated.levers import Lever, levers
from escala.federated.ranges import Range, exactly
from escala.federated.returns import MOST_ASKED
from escala.federated.scenario import Movement, Scenario
from escala.federated.selection import asked_clients
from escala.federated.sites import FEDERATED_ROUNDS, Way, are_few, shared_hours, simplest, sites
from escala.federated.training import Selection
from escala.federated.verdict import Comparison, Option, Verdict, compare
from escala.model.columns import F64
from escala.units import digits, percent

SCHEMA: Final = "escala/federate-assess@1"
WEEK_DAYS: Final = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What one option takes: low, mid, high; None is unknown, or never reached where time is None.

    `phase_j` is energy by phase, `leaves` what leaves a client, `protects` what protects that, `obstacles`
    why the option is out, in all cases (`is_out`) or in some.
    """

    option: Option
    is_out: bool
    obstacles: tuple[str, ...]
    traffic_bytes: Range | None
    time_s: Range | None
    energy_j: Range | None
    carbon_kg: Range | None
    money_usd: Range | None
    phase_j: dict[str, Range]
    leaves: str
    protects: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundView:
    """One federated round: seconds, clients asked, counted and lost, hours of a day that it can use."""

    round_s: Range | None
    asked: float
    counted: Range
    lost_ratio: Range
    usable_hours: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """A week of new data under one option."""

    option: Option
    traffic_bytes: Range | None
    time_s: Range | None
    energy_j: Range | None
    carbon_kg: Range | None
    money_usd: Range | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """The document of `escala federate assess --json`.

    `leaning` is the choice with everything at its middle; `score` the geometric mean of federated / central
    over the measures of `ratios`. Flip points, levers and sites are of the middle.
    """

    schema: str
    escala: str
    scenario: str
    model: str
    clients: int
    verdict: Verdict
    leaning: Verdict
    reasons: tuple[str, ...]
    score: Range | None
    ratios: dict[str, Range]
    options: tuple[Taken, ...]
    round: RoundView
    data_bytes: float
    break_even_bytes: Range | None
    flips: tuple[Flip, ...]
    criteria: tuple[Criterion, ...]
    levers: tuple[Lever, ...]
    sites: tuple[Way, ...]
    week: tuple[Week, ...]
    unsaid: tuple[str, ...]
    notes: tuple[str, ...]
    assumed: tuple[str, ...]


def assess(scenario: Scenario) -> Assessment:
    """Federated against central against each place alone, and where that flips."""
    _refuse_large(scenario)
    whole, middle = compare(scenario, ALL), compare(scenario, ONLY_MIDDLE)
    between = sites(scenario, middle.federated)
    ours = whole.federated
    return Assessment(
        schema=SCHEMA,
        escala=__version__,
        scenario=scenario.name,
        model=scenario.learnt.name,
        clients=sum(each.clients for each in scenario.clients),
        verdict=whole.verdict,
        leaning=whole.middle,
        reasons=tuple(_reasons(scenario, whole, between)),
        score=_finite(whole.score),
        ratios={str(name): found for name, each in whole.ratios.items() if (found := _finite(each))},
        options=tuple(_options(scenario, whole)),
        round=RoundView(
            round_s=_finite(ours.round_s),
            asked=ours.asked,
            counted=_ordered(ours.counted),
            lost_ratio=_ordered(ours.lost_ratio),
            usable_hours=ours.usable_hours,
        ),
        data_bytes=mean_data_bytes(scenario),
        break_even_bytes=_finite(break_even_bytes(scenario, ours)),
        flips=flips(scenario),
        criteria=criteria(scenario, middle),
        levers=levers(scenario) if np.isfinite(middle.federated.costs.time_s).all() else (),
        sites=between,
        week=tuple(_week(scenario)),
        unsaid=tuple(_unsaid(scenario, whole)),
        notes=scenario.notes,
        assumed=scenario.assumed,
    )


def _refuse_large(scenario: Scenario) -> None:
    """Refuse a cohort whose distribution would take minutes."""
    asked = asked_clients(scenario.training)
    if asked > MOST_ASKED:
        raise InvalidInput(
            f"a round asks {asked:,} clients (clients_per_round * over_selection); assess computes at most"
            f" {MOST_ASKED:,}: choose fewer clients_per_round, or let one client stand for several"
        )


def _finite(cases: F64 | None) -> Range | None:
    """Low, mid, high; None where it is unknown or endless in some case."""
    return None if cases is None or not np.all(np.isfinite(cases)) else range_over(cases)


def _ordered(cases: F64) -> Range:
    """The same of what is a share or a count: never endless."""
    return range_over(np.maximum(cases, 0.0))


def _options(scenario: Scenario, found: Comparison) -> Iterator[Taken]:
    for option, costs in (
        (Option.FEDERATED, found.federated.costs),
        (Option.CENTRAL, found.central),
        (Option.ALONE, found.alone),
    ):
        mine = [each for each in found.obstacles if each.option is option]
        leaves, protects = _privacy(scenario, option, found.federated)
        yield Taken(
            option=option,
            is_out=bool(mine) and bool(np.all(np.any([each.where for each in mine], axis=0))),
            obstacles=tuple(each.told for each in mine),
            phase_j={name: taken for name, each in costs.phase_j.items() if (taken := _finite(each))},
            leaves=leaves,
            protects=protects,
            **_five(costs),
        )


def _five(costs: Costs) -> dict[str, Range | None]:
    return {
        "traffic_bytes": _finite(costs.traffic_bytes),
        "time_s": _finite(costs.time_s),
        "energy_j": _finite(costs.energy_j),
        "carbon_kg": _finite(costs.carbon_kg),
        "money_usd": _finite(costs.money_usd),
    }


def _privacy(scenario: Scenario, option: Option, ours: Federated) -> tuple[str, str]:
    """What leaves a client, and what protects it."""
    if option is Option.ALONE:
        return "nothing", ""
    if option is Option.CENTRAL:
        return "all raw data", "what the centre promises; none in the method"
    training = scenario.training
    clients = sum(each.clients for each in scenario.clients)
    visits = scenario.training.rounds.mid * ours.asked / clients
    means = []
    if training.has_secure_aggregation:
        means.append("secure aggregation: the server sees sums only")
    if training.privacy is not None:
        means.append(f"{training.privacy.place} noise, {training.privacy.noise_ratio:g} of the clip")
    if not means:
        means.append("none; single updates can betray samples to the server")
    leaves = (
        f"{scenario.learnt.trained_weights:,.0f} numbers of an update, about {visits:,.3g} times a client"
    )
    return leaves, "; ".join(means)


def _reasons(scenario: Scenario, found: Comparison, between: tuple[Way, ...]) -> Iterator[str]:
    for each in found.obstacles:
        if each.told and bool(np.any(each.where)):
            some = "" if np.all(each.where) else ", in some cases"
            yield f"{each.option}: {each.told}{some}"
    if found.ratios and np.isfinite(found.score[1, 1]):
        yield _score_told(found)
    best = simplest(between)
    if best is not None and best.name != FEDERATED_ROUNDS and best.time_s < between[-1].time_s:
        yield (
            f"between so few sites '{best.name}' serves better than rounds: its exchanges take"
            f" {percent(best.exchange_share)} of the time, and data stay where they are"
        )


def _score_told(found: Comparison) -> str:
    """The score with its ends; a case that never reaches the target has none above."""
    mid, low, high = float(found.score[1, 1]), float(found.score.min()), float(found.score.max())
    parts = ", ".join(f"{name} {digits(float(each[1, 1]))}" for name, each in found.ratios.items())
    said = "costs less" if mid < 1 else "costs more"
    end = digits(high) if np.isfinite(high) else "without end: some cases never reach the target"
    return (
        f"federated {said} than central: {digits(mid)} times ({digits(low)} to {end}), the geometric mean of"
        f" {parts}"
    )


def _unsaid(scenario: Scenario, found: Comparison) -> Iterator[str]:
    yield "accuracy: all options are taken to reach the target in the stated rounds and passes; a pilot tells"
    if scenario.rules.enough_samples is None:
        yield "whether a place alone learns well enough: give rules.enough_samples from your learning curve"
    if found.federated.costs.carbon_kg is None:
        yield "carbon: give every class, and the centre or the server, a country"
    if found.federated.costs.money_usd is None or found.central.money_usd is None:
        yield "money: no price was given for both options"
    elif not any(each.price_usd_per_device_hour for each in scenario.clients):
        yield "money of clients is that of their traffic: no price of their device-hours was given"
    if are_few(scenario) and not shared_hours(scenario):
        yield "data parallel and local steps between the sites: there is no hour in which all are there"
    if scenario.training.selection not in (Selection.UNIFORM, Selection.POISSON):
        yield f"selection by {scenario.training.selection} is taken as uniform here; simulate it"
    if scenario.training.has_secure_aggregation:
        yield "secure aggregation: its keys and shares are not counted"
    if len(scenario.clients) < 3 and sum(each.clients for each in scenario.clients) > 100:
        yield "speeds differ within a class too: split it, or simulate"


def _week(scenario: Scenario) -> Iterator[Week]:
    """Rounds of a week against sending and learning what a week brings; empty where nothing keeps coming."""
    per_week = scenario.rules.rounds_per_week
    fresh = [WEEK_DAYS * each.data.growth_samples_per_day for each in scenario.clients]
    if per_week is None or not any(fresh):
        return
    training = replace(scenario.training, rounds=exactly(per_week))
    ours = federated(replace(scenario, training=training), ALL).costs
    theirs, each = central_for(scenario, ALL, fresh), alone_for(scenario, ALL, fresh)
    for option, costs in ((Option.FEDERATED, ours), (Option.CENTRAL, theirs), (Option.ALONE, each)):
        if option is Option.CENTRAL and scenario.rules.movement is Movement.NEVER:
            continue
        yield Week(option=option, **_five(costs))
