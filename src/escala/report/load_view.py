"""How unevenly experts are loaded, as data and in words: busiest rank, bad draw, dropped tokens."""

from dataclasses import dataclass

from escala.model.loads import bad_draw_ratio, dropped_share, experts_of, load_ratio
from escala.model.matmuls import Shape
from escala.model.network import Experts
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.units import digits, percent


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLoadView:
    """Tokens of the busiest expert rank over the mean, of the layers with most experts.

    `bad_draw_ratio` is exceeded in one step of ten; `dropped_share` are tokens beyond a capacity; `origin`
    says where the loads come from.
    """

    ranks: int
    load_ratio: float
    bad_draw_ratio: float
    dropped_share: float
    origin: str


def expert_load_view(problem: Problem, plan: Plan) -> ExpertLoadView | None:
    """The loads of a plan; None without experts, or where one rank has them all and drops nothing."""
    stack = problem.workload.network.main
    found = [part for block in stack.blocks if (part := experts_of(block)) is not None]
    part = max(found, key=lambda each: each.experts, default=None)
    if part is None or (plan.ep == 1 and part.capacity_factor is None):
        return None
    plans = Plans.of(plan)
    shape = Shape.of(plans, stack.tokens or problem.workload.sequence_tokens)
    skew = problem.assumptions.expert_skew if part.load_deviation is None else part.load_deviation
    return ExpertLoadView(
        ranks=plan.ep,
        load_ratio=float(load_ratio(problem, plans, part, shape)[0]),
        bad_draw_ratio=float(bad_draw_ratio(problem, plans, part, shape)[0]),
        dropped_share=dropped_share(part, skew, float(shape.tokens[0] / shape.tp[0])),
        origin=_origin(problem, part),
    )


def load_words(given: ExpertLoadView) -> tuple[str, ...]:
    """The same for people."""
    busiest = f"busiest of {given.ranks} ranks {digits(given.load_ratio)} × the mean"
    has_worse = given.bad_draw_ratio > given.load_ratio
    worse = f"in one step of ten more than {digits(given.bad_draw_ratio)} ×" if has_worse else ""
    drops = f"{percent(given.dropped_share)} of the tokens dropped" if given.dropped_share > 0 else ""
    return tuple(each for each in (busiest, worse, drops, given.origin) if each)


def _origin(problem: Problem, part: Experts) -> str:
    if part.capacity_factor is not None and part.is_padded:
        return f"buffers padded to a capacity of {part.capacity_factor:g}"
    if part.loads:
        return "loads as measured"
    if part.load_deviation is not None:
        return f"loads deviate by {percent(part.load_deviation)}, as described"
    return f"loads taken to deviate by {percent(problem.assumptions.expert_skew)}"
