"""Where the verdict flips: the value of each input at which the middle case chooses otherwise, by bisection.

One input at a time is scaled from a thousandth to a thousand times; everything else stays. The search is over
the same function that gives the verdict.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from escala.federated.cases import ONLY_MIDDLE
from escala.federated.ranges import Range
from escala.federated.returns import MOST_ASKED
from escala.federated.scenario import ClientClass, Scenario
from escala.federated.verdict import Verdict, compare, deadline_of

FARTHEST: Final = 1000.0
STEPS: Final = 10  # in each direction
HALVINGS: Final = 11  # a step is a factor of 2: its 2,048th part is 0.034 %


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """The nearest values below and above at which the choice is another; None within a thousand times."""

    name: str
    unit: str
    now: float
    below: float | None
    below_becomes: Verdict | None
    above: float | None
    above_becomes: Verdict | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One input: its name and unit, its value, and the scenario with that value times a factor."""

    name: str
    unit: str
    value: float
    scaled: Callable[[Scenario, float], Scenario]


def flips(scenario: Scenario) -> tuple[Flip, ...]:
    """Each input with its flip points."""
    now = compare(scenario, ONLY_MIDDLE).middle
    return tuple(_flip(scenario, each, now) for each in inputs(scenario))


def inputs(scenario: Scenario) -> Iterator[Input]:
    """What can be turned; means are over clients, at the middle."""
    training, learnt = scenario.training, scenario.learnt
    yield Input(
        name="bandwidth of a client, up", unit="bytes_per_s", value=_mean(scenario, _up), scaled=_bandwidth
    )
    yield Input(name="model size", unit="weights", value=learnt.weights, scaled=_model)
    yield Input(name="data of a client", unit="bytes", value=_mean(scenario, data_bytes), scaled=_data)
    yield Input(name="rounds", unit="rounds", value=training.rounds.mid, scaled=_rounds)
    yield Input(
        name="energy of the network", unit="j_per_byte", value=_mean(scenario, _byte_j), scaled=_byte_energy
    )
    yield Input(
        name="clients",
        unit="clients",
        value=float(sum(each.clients for each in scenario.clients)),
        scaled=_clients,
    )
    yield Input(name="deadline", unit="s", value=deadline_of(scenario), scaled=_deadline)
    yield Input(name="speed of the clients", unit="times", value=1.0, scaled=_speed)


def data_bytes(given: ClientClass) -> float:
    """Raw data of one client."""
    return given.data.samples * given.data.sample_bytes


def _up(given: ClientClass) -> float:
    return given.access.up_bytes_per_s.mid


def _byte_j(given: ClientClass) -> float:
    return given.access.energy_j_per_byte.mid


def _mean(scenario: Scenario, value: Callable[[ClientClass], float]) -> float:
    total = sum(each.clients for each in scenario.clients)
    return sum(each.clients * value(each) for each in scenario.clients) / total


def _flip(scenario: Scenario, given: Input, now: Verdict) -> Flip:
    below, to = _search(scenario, given, now, 1.0 / FARTHEST)
    above, towards = _search(scenario, given, now, FARTHEST)
    return Flip(
        name=given.name,
        unit=given.unit,
        now=given.value,
        below=None if below is None else below * given.value,
        below_becomes=to,
        above=None if above is None else above * given.value,
        above_becomes=towards,
    )


def _search(
    scenario: Scenario, given: Input, now: Verdict, end: float
) -> tuple[float | None, Verdict | None]:
    """The factor nearest to 1 on the way to the end at which the choice is another."""
    same = 1.0
    for step in range(1, STEPS + 1):
        other = end ** (step / STEPS)
        if _chosen(scenario, given, other) is not now:
            break
        same = other
    else:
        return None, None
    for _ in range(HALVINGS):
        middle = (same * other) ** 0.5
        if _chosen(scenario, given, middle) is now:
            same = middle
        else:
            other = middle
    return other, _chosen(scenario, given, other)


def _chosen(scenario: Scenario, given: Input, factor: float) -> Verdict:
    return compare(given.scaled(scenario, factor), ONLY_MIDDLE).middle


def times(given: Range, factor: float) -> Range:
    """A range so many times as large."""
    return Range(low=given.low * factor, mid=given.mid * factor, high=given.high * factor)


def _classes(scenario: Scenario, change: Callable[[ClientClass], ClientClass]) -> Scenario:
    return replace(scenario, clients=tuple(change(each) for each in scenario.clients))


def _bandwidth(scenario: Scenario, factor: float) -> Scenario:
    def change(given: ClientClass) -> ClientClass:
        access = given.access
        up, down = times(access.up_bytes_per_s, factor), times(access.down_bytes_per_s, factor)
        return replace(given, access=replace(access, up_bytes_per_s=up, down_bytes_per_s=down))

    return _classes(scenario, change)


def _model(scenario: Scenario, factor: float) -> Scenario:
    """Weights, those that are trained, FLOP, memory and measured times alike."""
    learnt = scenario.learnt
    memory = learnt.training_memory_bytes
    larger = replace(
        learnt,
        weights=learnt.weights * factor,
        trained_weights=learnt.trained_weights * factor,
        forward_flop_per_sample=learnt.forward_flop_per_sample * factor,
        training_memory_bytes=None if memory is None else memory * factor,
    )
    return replace(_slower(scenario, factor, is_centre=True, is_measured=True), learnt=larger)


def _speed(scenario: Scenario, factor: float) -> Scenario:
    return _slower(scenario, 1.0 / factor, is_centre=False, is_measured=False)


def _slower(scenario: Scenario, factor: float, *, is_centre: bool, is_measured: bool) -> Scenario:
    """Samples take so many times as long: measured times, and rates too where not only those are meant."""

    def change(given: ClientClass) -> ClientClass:
        targets = tuple(
            replace(
                each,
                sample_s=None if each.sample_s is None else times(each.sample_s, factor),
                flop_per_s=each.flop_per_s if is_measured else times(each.flop_per_s, 1.0 / factor),
            )
            for each in given.device.targets
        )
        return replace(given, device=replace(given.device, targets=targets))

    central = scenario.central
    if is_centre and central.sample_s is not None:
        central = replace(central, sample_s=times(central.sample_s, factor))
    return replace(_classes(scenario, change), central=central)


def _data(scenario: Scenario, factor: float) -> Scenario:
    def change(given: ClientClass) -> ClientClass:
        samples = max(round(given.data.samples * factor), 1)
        return replace(given, data=replace(given.data, samples=samples))

    return _classes(scenario, change)


def _rounds(scenario: Scenario, factor: float) -> Scenario:
    rounds = times(scenario.training.rounds, factor)
    return replace(scenario, training=replace(scenario.training, rounds=rounds))


def _byte_energy(scenario: Scenario, factor: float) -> Scenario:
    def change(given: ClientClass) -> ClientClass:
        energy = times(given.access.energy_j_per_byte, factor)
        return replace(given, access=replace(given.access, energy_j_per_byte=energy))

    return _classes(scenario, change)


def _clients(scenario: Scenario, factor: float) -> Scenario:
    """More or fewer of each class; a cohort of all stays one, up to the most that is computed."""
    before = sum(each.clients for each in scenario.clients)
    found = _classes(scenario, lambda each: replace(each, clients=max(round(each.clients * factor), 1)))
    after, training = sum(each.clients for each in found.clients), scenario.training
    most = min(after, MOST_ASKED)
    cohort = most if training.clients_per_round == before else min(training.clients_per_round, most)
    least = min(training.least_clients, cohort)
    return replace(found, training=replace(training, clients_per_round=cohort, least_clients=least))


def _deadline(scenario: Scenario, factor: float) -> Scenario:
    return replace(scenario, rules=replace(scenario.rules, deadline_s=deadline_of(scenario) * factor))
