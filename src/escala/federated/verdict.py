"""Federate, centralise, each alone, or undecided: what the rules forbid, then what costs less, case by case.

The score is the geometric mean of federated / central over the measures that count, each with the same
weight: a convention, not a law; `decide_by` of a scenario names other measures. Accuracy is not part of it:
every option is taken to reach the target in the rounds or passes that the scenario states, and whether a
place alone reaches it nobody knows before a pilot, unless `enough_samples` says so.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from escala.federated.cases import Cases
from escala.federated.costs import Costs, Federated, alone, centralised, federated
from escala.federated.scenario import Measure, Movement, Scenario
from escala.federated.training import Algorithm, Training
from escala.federated.visits import fits
from escala.model.columns import F64, Bool
from escala.units import DAY_S

# Who names no deadline does not wait longer than this: an assumption.
LONGEST_S: Final = 365 * DAY_S


class Option(StrEnum):
    """The three ways to learn."""

    FEDERATED = "federated"
    CENTRAL = "central"
    ALONE = "alone"


class Verdict(StrEnum):
    """What to do."""

    FEDERATE = "federate"
    CENTRALISE = "centralise"
    ALONE = "each alone"
    UNDECIDED = "undecided"
    NONE = "none as asked"


ORDER: Final = (Verdict.FEDERATE, Verdict.CENTRALISE, Verdict.ALONE, Verdict.NONE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Obstacle:
    """Why an option is out, and in which cases. Shape (own, shared) of its option."""

    option: Option
    told: str
    where: Bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """The three options, what forbids each, the score and the choice in every case of the federated one.

    `choices` are places in `ORDER`; `ratios` are federated / central by measure.
    """

    federated: Federated
    central: Costs
    alone: Costs
    obstacles: tuple[Obstacle, ...]
    ratios: dict[Measure, F64]
    score: F64
    choices: F64

    @property
    def middle(self) -> Verdict:
        """The choice where everything is at its middle."""
        size = len(self.choices) // 2
        return ORDER[int(self.choices[size, size])]

    @property
    def verdict(self) -> Verdict:
        """The choice of all cases, or undecided."""
        return self.middle if len(np.unique(self.choices)) == 1 else Verdict.UNDECIDED


def compare(scenario: Scenario, cases: Cases) -> Comparison:
    """All options of a scenario side by side."""
    ours, theirs, each = federated(scenario, cases), centralised(scenario, cases), alone(scenario, cases)
    obstacles = tuple(_obstacles(scenario, ours, theirs, each))
    ratios = dict(_ratios(scenario, ours.costs, theirs))
    score = (
        np.exp(np.mean([np.log(ratio) for ratio in ratios.values()], axis=0)) if ratios else np.ones((1, 1))
    )
    return Comparison(
        federated=ours,
        central=theirs,
        alone=each,
        obstacles=obstacles,
        ratios=ratios,
        score=score,
        choices=_choices(scenario, score, obstacles, ours.costs.time_s.shape),
    )


def measured(costs: Costs, measure: Measure) -> F64 | None:
    """One measure of an option; None where it is not known."""
    return {
        Measure.BYTES: costs.traffic_bytes,
        Measure.TIME: costs.time_s,
        Measure.ENERGY: costs.energy_j,
        Measure.CARBON: costs.carbon_kg,
        Measure.MONEY: costs.money_usd,
    }[measure]


def deadline_of(scenario: Scenario) -> float:
    """What the scenario says, or a year."""
    return scenario.rules.deadline_s or LONGEST_S


def _ratios(scenario: Scenario, ours: Costs, theirs: Costs) -> Iterator[tuple[Measure, F64]]:
    """Federated / central; our best beside their worst."""
    for measure in scenario.rules.decide_by:
        one, other = measured(ours, measure), measured(theirs, measure)
        if one is not None and other is not None and np.all(one > 0) and np.all(other > 0):
            yield measure, one / other[::-1]


def _choices(scenario: Scenario, score: F64, obstacles: tuple[Obstacle, ...], shape: tuple[int, ...]) -> F64:
    free = {option: np.ones(shape, bool) for option in Option}
    for each in obstacles:
        free[each.option] &= ~each.where
    ours, places, theirs = free[Option.FEDERATED], free[Option.ALONE], free[Option.CENTRAL][::-1]
    suffices = scenario.rules.enough_samples is not None
    by_rules = np.where(ours, 0, np.where(theirs, 1, np.where(places, 2, 3)))
    by_cost = np.where(ours & theirs, np.where(score < 1.0, 0, 1), by_rules)
    return np.asarray(np.where(places, 2, by_cost) if suffices else by_cost, np.float64)


def _obstacles(scenario: Scenario, ours: Federated, theirs: Costs, each: Costs) -> Iterator[Obstacle]:
    always = np.ones_like(theirs.time_s, bool)
    latest_s = deadline_of(scenario)
    said = "the deadline" if scenario.rules.deadline_s else "a year, taken as the longest anybody waits"
    yield from _of_federation(scenario, ours, always)
    for option, costs in ((Option.FEDERATED, ours.costs), (Option.CENTRAL, theirs), (Option.ALONE, each)):
        late = costs.time_s > latest_s
        if np.any(late & np.isfinite(costs.time_s)):
            yield Obstacle(option=option, told=f"it takes longer than {said}", where=late)
    why = _forbidden(scenario)
    if why:
        yield Obstacle(option=Option.CENTRAL, told=why, where=always)
    yield from _of_places(scenario, always)


def _of_federation(scenario: Scenario, ours: Federated, always: Bool) -> Iterator[Obstacle]:
    rules, training = scenario.rules, scenario.training
    if ours.usable_hours == 0:
        told = f"at no hour are {training.least_clients:,} clients there whose memory holds training"
        yield Obstacle(option=Option.FEDERATED, told=told, where=always)
    elif np.any(np.isinf(ours.costs.time_s)):
        told = f"fewer than {training.least_clients:,} of those that are asked come back in time"
        yield Obstacle(option=Option.FEDERATED, told=told, where=np.isinf(ours.costs.time_s))
    if rules.needs_exact_repeat and varies(scenario):
        told = "the time of arrival decides who counts, so that no run can be repeated exactly"
        yield Obstacle(option=Option.FEDERATED, told=told, where=always)
    if rules.needs_audit and hides_updates(training):
        told = "secure aggregation or local noise hides single updates, so that none can be audited"
        yield Obstacle(option=Option.FEDERATED, told=told, where=always)


def _of_places(scenario: Scenario, always: Bool) -> Iterator[Obstacle]:
    small = [each.name for each in scenario.clients if not fits(each, scenario.learnt)]
    if small:
        told = f"training does not fit the memory of {', '.join(small)}"
        yield Obstacle(option=Option.ALONE, told=told, where=always)
    enough = scenario.rules.enough_samples
    few = [each.name for each in scenario.clients if enough is not None and each.data.samples < enough]
    if few and enough is not None:
        told = f"{', '.join(few)} hold fewer than the {enough:,.0f} samples that suffice"
        yield Obstacle(option=Option.ALONE, told=told, where=always)


def _forbidden(scenario: Scenario) -> str:
    """Why data may not be gathered; empty where they may."""
    rules, country = scenario.rules, scenario.central.country
    if rules.movement is Movement.NEVER:
        return "data may not leave the clients"
    if rules.movement is Movement.WITHIN_REGION and held_back(scenario) > 0:
        where = country or "no named country"
        return f"data may not leave {', '.join(rules.region)}, and the centre is in {where}"
    return ""


def held_back(scenario: Scenario) -> float:
    """Share of the data, in bytes, that may not go to the centre."""
    rules = scenario.rules
    sizes = [each.clients * each.data.samples * each.data.sample_bytes for each in scenario.clients]
    if rules.movement is Movement.FREE or scenario.central.country in rules.region:
        return 0.0
    if rules.movement is Movement.NEVER:
        return 1.0
    bound = [
        size
        for size, each in zip(sizes, scenario.clients, strict=True)
        if each.country is None or each.country in rules.region
    ]
    return sum(bound) / sum(sizes)


def varies(scenario: Scenario) -> bool:
    """Whether the time of arrival decides which updates count."""
    training = scenario.training
    is_raced = training.over_selection > 1.0 or training.round_deadline_s is not None
    drops = any(each.dropout_ratio > 0 for each in scenario.clients)
    return is_raced or drops or training.algorithm is Algorithm.FEDBUFF


def hides_updates(training: Training) -> bool:
    """Whether nobody sees the update of one client."""
    is_noisy = training.privacy is not None and training.privacy.place == "local"
    return training.has_secure_aggregation or is_noisy
