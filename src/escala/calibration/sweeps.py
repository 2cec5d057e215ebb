"""Sweeps: published layouts of one training on one machine. How well predictions rank them, and choose.

Rows of one layout are one choice with the mean of their times. A sweep has at least four layouts.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.calibration.ranks import least_regret, ordered_pairs, regret, spearman
from escala.calibration.scoring import Prediction
from escala.calibration.usual_rule import rule_distance
from escala.model.columns import F64
from escala.model.network import Network
from escala.model.parameters import active_parameters, network_parameters
from escala.model.plan import Plan

LEAST_LAYOUTS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepScore:
    """One sweep: rank correlation, pairs more than 5 % apart, those ordered right, regrets.

    `rule_regret` is what the usual rule table costs on average over what it allows, `rule_least_regret` with
    the fastest of that; None for mixtures of experts, which the table leaves out.
    """

    group: str
    layouts: int
    spearman: float | None
    pairs: int
    ordered: int
    regret: float
    rule_regret: float | None
    rule_least_regret: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepScores:
    """Several sweeps: means over sweeps, and the share of all pairs that is ordered right.

    `ruled` sweeps are those that the usual rule table speaks of; `ruled_regret` is the regret of the
    predictions there, `rule_regret` and `rule_least_regret` are those of the rule.
    """

    name: str
    sweeps: int
    layouts: int
    spearman: float | None
    pairs: int
    ordered_share: float | None
    regret: float
    ruled: int
    ruled_regret: float | None
    rule_regret: float | None
    rule_least_regret: float | None


def sweep_scores(predictions: Iterable[Prediction]) -> tuple[SweepScore, ...]:
    """Every sweep among trusted rows with a time: one network, machine, batch and quantity."""
    alike: defaultdict[object, defaultdict[Plan, list[Prediction]]] = defaultdict(lambda: defaultdict(list))
    for each in predictions:
        of = each.reading
        if of.is_trusted and of.step_s is not None:
            alike[of.sweep, of.quantity, of.problem.workload.network][of.plan].append(each)
    return tuple(_score(layouts) for layouts in alike.values() if len(layouts) >= LEAST_LAYOUTS)


def _score(layouts: Mapping[Plan, Sequence[Prediction]]) -> SweepScore:
    reading = next(iter(layouts.values()))[0].reading
    published = np.array([np.mean([each.reading.step_s for each in rows]) for rows in layouts.values()])
    predicted = np.array([np.mean([each.step_s for each in rows]) for rows in layouts.values()])
    distance = _rule_distance(reading.problem.workload.network, tuple(layouts))
    pairs, ordered = ordered_pairs(published, predicted)
    return SweepScore(
        group=reading.group,
        layouts=len(layouts),
        spearman=spearman(published, predicted),
        pairs=pairs,
        ordered=ordered,
        regret=regret(published, predicted),
        rule_regret=None if distance is None else regret(published, distance),
        rule_least_regret=None if distance is None else least_regret(published, distance),
    )


def _rule_distance(network: Network, plans: Sequence[Plan]) -> F64 | None:
    """How far each layout is from what the rule allows: the nearest are its choice."""
    parameters = network_parameters(network).total
    if active_parameters(network) != parameters:
        return None
    tp, pp = np.array([plan.tp for plan in plans]), np.array([plan.pp for plan in plans])
    return rule_distance(parameters, tp, pp)


def summary(name: str, scores: Sequence[SweepScore]) -> SweepScores | None:
    """Sweeps together; None where there is none."""
    if not scores:
        return None
    pairs = sum(each.pairs for each in scores)
    ruled = [each for each in scores if each.rule_regret is not None]
    return SweepScores(
        name=name,
        sweeps=len(scores),
        layouts=sum(each.layouts for each in scores),
        spearman=_mean(each.spearman for each in scores),
        pairs=pairs,
        ordered_share=sum(each.ordered for each in scores) / pairs if pairs else None,
        regret=float(np.mean([each.regret for each in scores])),
        ruled=len(ruled),
        ruled_regret=_mean(each.regret for each in ruled),
        rule_regret=_mean(each.rule_regret for each in ruled),
        rule_least_regret=_mean(each.rule_least_regret for each in ruled),
    )


def by_group(scores: Iterable[SweepScore]) -> tuple[SweepScores, ...]:
    """Sweeps by group of sources, the group with most sweeps first."""
    alike: defaultdict[str, list[SweepScore]] = defaultdict(list)
    for each in scores:
        alike[each.group].append(each)
    found = [summary(name, own) for name, own in alike.items()]
    return tuple(sorted((each for each in found if each), key=lambda each: (-each.sweeps, each.name)))


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean of what is known."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
