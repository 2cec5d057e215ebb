"""The eight criteria of the field as numbers: four that speak for federating, four against.

Each has one or two gauges with a threshold, which is computed (a break-even, a limit of the scenario) or a
named assumption. Criteria describe a case; the verdict does not count them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from escala.federated.cases import ONLY_MIDDLE
from escala.federated.costs import Federated
from escala.federated.flips import data_bytes
from escala.federated.scenario import Scenario
from escala.federated.verdict import Comparison, compare, deadline_of, held_back, hides_updates, varies
from escala.federated.visits import training_bytes
from escala.model.columns import F64

# Assumptions: a model is light if moving it takes no longer than training it; devices are unequal if the
# slowest class takes twice as long as the middle one; a network is unstable if one in ten clients is lost,
# expensive if it takes half of the energy.
LIGHT: Final = 1.0
UNEQUAL: Final = 2.0
UNSTABLE: Final = 0.1
EXPENSIVE: Final = 0.5


class Side(StrEnum):
    """Which way a criterion speaks."""

    FOR = "for"
    AGAINST = "against"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """One number beside its threshold; `is_below` says that the criterion holds at or below it."""

    what: str
    value: float
    threshold: float
    origin: str
    is_below: bool = False

    @property
    def holds(self) -> bool:
        """Whether the number is on the side on which the criterion holds."""
        return self.value <= self.threshold if self.is_below else self.value > self.threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """A criterion of the field, which way it speaks, and whether it does here (any gauge is enough)."""

    name: str
    side: Side
    holds: bool
    gauges: tuple[Gauge, ...]


def criteria(scenario: Scenario, compared: Comparison | None = None) -> tuple[Criterion, ...]:
    """All eight at the middle of everything."""
    middle = compared or compare(scenario, ONLY_MIDDLE)
    gauges = [*_for(scenario, middle), *_against(scenario, middle)]
    return tuple(
        Criterion(name=name, side=side, holds=any(each.holds for each in found), gauges=found)
        for name, side, found in gauges
    )


def break_even_bytes(scenario: Scenario, ours: Federated) -> F64:
    """Data of a client from which on gathering moves more: rounds * cohort / clients * (down + up).

    Every message that is sent counts, those of over-selection and retries too; without them this is
    D* = R q S (1/c_d + 1/c_u).
    """
    return ours.costs.traffic_bytes / sum(each.clients for each in scenario.clients)


def mean_data_bytes(scenario: Scenario) -> float:
    """Raw data of a client, mean over clients."""
    clients = sum(each.clients for each in scenario.clients)
    return sum(each.clients * data_bytes(each) for each in scenario.clients) / clients


def network_share(ours: Federated) -> float:
    """Network's part of the energy of the federation."""
    return _middle(ours.costs.phase_j["network"]) / _middle(ours.costs.energy_j)


def _middle(cases: F64) -> float:
    size = cases.shape[-1] // 2
    return float(cases[..., size, size])


def _for(scenario: Scenario, found: Comparison) -> Iterator[tuple[str, Side, tuple[Gauge, ...]]]:
    ours = found.federated
    held = Gauge(
        what="share of the data that may not go to the centre",
        value=held_back(scenario),
        threshold=0.0,
        origin="computed from the rules",
    )
    yield "sensitive or regulated data", Side.FOR, (held,)
    many = Gauge(
        what="data of a client / break-even",
        value=_over(mean_data_bytes(scenario), _middle(break_even_bytes(scenario, ours))),
        threshold=1.0,
        origin="computed: bytes of all rounds / clients",
    )
    yield "many raw data, costly to move", Side.FOR, (many,)
    light = Gauge(
        what="transfer / training of a client in a round",
        value=_over(_middle(ours.transfer_s), _middle(ours.work_s)),
        threshold=LIGHT,
        origin="assumption: moving takes no longer than training",
        is_below=True,
    )
    yield "light or partly updated model", Side.FOR, (light,)
    named = "the scenario's deadline" if scenario.rules.deadline_s else "assumption: a year"
    calm = Gauge(
        what="time / deadline",
        value=_middle(ours.costs.time_s) / deadline_of(scenario),
        threshold=1.0,
        origin=named,
        is_below=True,
    )
    yield "no time pressure", Side.FOR, (calm,)


def _against(scenario: Scenario, found: Comparison) -> Iterator[tuple[str, Side, tuple[Gauge, ...]]]:
    ours = found.federated
    unequal = Gauge(
        what="slowest class / middle client",
        value=_unequal(scenario, ours),
        threshold=UNEQUAL,
        origin="assumption: twice as long",
    )
    yield "very unequal devices", Side.AGAINST, (unequal,)
    least = min(each.device.memory_bytes for each in scenario.clients)
    large = Gauge(
        what="memory of training / smallest device",
        value=training_bytes(scenario.learnt) / least,
        threshold=1.0,
        origin="computed: what fits",
    )
    yield "large model", Side.AGAINST, (large,)
    lost = Gauge(
        what="clients of a round that never return",
        value=_middle(ours.lost_ratio),
        threshold=UNSTABLE,
        origin="assumption: one in ten",
    )
    yield "unstable or expensive network", Side.AGAINST, (lost, *_dear(ours))
    missing = Gauge(
        what="guarantees asked for that it cannot give",
        value=float(_missing(scenario)),
        threshold=0.0,
        origin="computed from rules and training",
    )
    yield "full audit or exact repeat needed", Side.AGAINST, (missing,)


def _dear(ours: Federated) -> Iterator[Gauge]:
    if "network" in ours.costs.phase_j:
        yield Gauge(
            what="network's share of the energy",
            value=network_share(ours),
            threshold=EXPENSIVE,
            origin="assumption: half",
        )


def _missing(scenario: Scenario) -> int:
    rules = scenario.rules
    repeat = rules.needs_exact_repeat and varies(scenario)
    return int(repeat) + int(rules.needs_audit and hides_updates(scenario.training))


def _unequal(scenario: Scenario, ours: Federated) -> float:
    """Slowest class / the class of the middle client, one visit each."""
    seconds = np.array([_middle(each) for each in ours.client_s])
    counts = np.array([each.clients for each in scenario.clients])
    order = np.argsort(seconds)
    half = np.searchsorted(np.cumsum(counts[order]), counts.sum() / 2)
    return float(seconds.max() / seconds[order][half])


def _over(value: float, by: float) -> float:
    return value / by if np.isfinite(by) and by > 0 else 0.0
