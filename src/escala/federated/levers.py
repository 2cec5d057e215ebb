"""What would change it: compression, fewer weights, other cohorts, more local work, by the same costs.

How many rounds a lever costs or saves is measured or published where it says so; where nobody knows, rounds
are held and that is said. One lever at a time; they do not simply multiply.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from escala.federated.cases import ONLY_MIDDLE
from escala.federated.flips import times
from escala.federated.refusals import reasons_against
from escala.federated.scenario import Measure, Scenario
from escala.federated.training import Codec, Part, Training
from escala.federated.verdict import Comparison, Verdict, compare, measured

# Rounds to 85 %: digits, 20 clients, Dirichlet 0.5, error feedback: 11 plain, 13 and 22 with top-k.
TOP_10_ROUNDS: Final = 1.2
TOP_1_ROUNDS: Final = 2.0
# Ten times the clients a round: 206 to 97 rounds, so rounds fall with their number to this power.
# Source: McMahan et al. 2017, table 1, CNN, non-IID, B = 10.
COHORT_POWER: Final = 0.327
# Five times the local epochs: 350 to 229 rounds. Source: McMahan et al. 2017, table 2, CNN, non-IID, B = 10.
EPOCHS_POWER: Final = 0.264
TENTH, HUNDREDTH = 0.1, 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """One change: what of the rounds is known, costs as shares of today's, and the verdict with it."""

    name: str
    rounds_factor: float
    origin: str
    bytes_ratio: float
    time_ratio: float
    energy_ratio: float
    becomes: Verdict


def levers(scenario: Scenario) -> tuple[Lever, ...]:
    """Every lever that is neither pulled already nor refused with the rest, at the middle of everything."""
    now, clients = compare(scenario, ONLY_MIDDLE), sum(each.clients for each in scenario.clients)
    return tuple(
        _lever(scenario, now, *each)
        for each in _changes(scenario)
        if not reasons_against(each[3].training, clients)
    )


Change = Callable[[Training], Training]


def _changes(scenario: Scenario) -> Iterator[tuple[str, float, str, Scenario]]:
    yield from _codecs(scenario)
    yield from _parts(scenario)
    yield from _cohorts(scenario)
    power = 2.0**-EPOCHS_POWER
    more = _trained(scenario, lambda given: replace(given, local_epochs=2 * given.local_epochs))
    yield "twice the local epochs", power, "published (CNN, 5 times: 350 to 229 rounds)", more


def _codecs(scenario: Scenario) -> Iterator[tuple[str, float, str, Scenario]]:
    training = scenario.training
    small = "measured on a small task"
    for kind, said in (("fp16", "taken as none, int8 had none"), ("int8", f"{small}: none")):
        if training.codec_up.kind == "none" and training.codec_down.kind == "none":
            yield f"{kind} both ways", 1.0, said, _trained(scenario, _packed(kind))
    for keep, factor in ((TENTH, TOP_10_ROUNDS), (HUNDREDTH, TOP_1_ROUNDS)):
        if training.codec_up.kind in ("none", "fp16", "int8"):
            yield f"top-k {keep:.0%} up".replace("%", " %"), factor, small, _trained(scenario, _kept(keep))


def _packed(kind: str) -> Change:
    return lambda given: replace(given, codec_up=Codec(kind=kind), codec_down=Codec(kind=kind))


def _kept(keep: float) -> Change:
    return lambda given: replace(given, codec_up=Codec(kind="top-k", keep_ratio=keep, has_feedback=True))


def _parts(scenario: Scenario) -> Iterator[tuple[str, float, str, Scenario]]:
    held = "rounds held: nobody knows before a pilot"
    if scenario.training.part is Part.FULL:
        for part, share, name in (
            (Part.LAST_LAYERS, TENTH, "last layers, a tenth of the weights"),
            (Part.LORA, HUNDREDTH, "LoRA, a hundredth of the weights"),
        ):
            learnt = replace(scenario.learnt, trained_weights=scenario.learnt.weights * share)
            changed = replace(scenario, learnt=learnt, training=replace(scenario.training, part=part))
            yield name, 1.0, held, changed


def _cohorts(scenario: Scenario) -> Iterator[tuple[str, float, str, Scenario]]:
    cohort, clients = scenario.training.clients_per_round, sum(each.clients for each in scenario.clients)
    said = "published (CNN, 10 times: 206 to 97 rounds)"
    if cohort >= 2:
        factor = (cohort / (cohort // 2)) ** COHORT_POWER
        yield "half the clients a round", factor, said, _trained(scenario, _asked(cohort // 2))
    if 2 * cohort <= clients:
        yield "twice the clients a round", 2.0**-COHORT_POWER, said, _trained(scenario, _asked(2 * cohort))


def _asked(cohort: int) -> Change:
    return lambda given: replace(
        given, clients_per_round=cohort, least_clients=min(given.least_clients, cohort)
    )


def _trained(scenario: Scenario, change: Change) -> Scenario:
    return replace(scenario, training=change(scenario.training))


def _lever(
    scenario: Scenario, now: Comparison, name: str, factor: float, origin: str, changed: Scenario
) -> Lever:
    rounds = times(changed.training.rounds, factor)
    found = compare(replace(changed, training=replace(changed.training, rounds=rounds)), ONLY_MIDDLE)
    return Lever(
        name=name,
        rounds_factor=factor,
        origin=origin,
        bytes_ratio=_ratio(found, now, Measure.BYTES),
        time_ratio=_ratio(found, now, Measure.TIME),
        energy_ratio=_ratio(found, now, Measure.ENERGY),
        becomes=found.middle,
    )


def _ratio(found: Comparison, now: Comparison, measure: Measure) -> float:
    one, other = measured(found.federated.costs, measure), measured(now.federated.costs, measure)
    assert one is not None
    assert other is not None
    return float(one[0, 0] / other[0, 0])
