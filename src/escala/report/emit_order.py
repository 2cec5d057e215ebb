"""A plan of a file with what no plan knows: model, data, rate and steps. Knows no target."""

from dataclasses import dataclass
from math import ceil
from typing import Final

from escala.catalog import networks
from escala.errors import InvalidInput, spoken
from escala.foreign.orders import Order
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.rejects import Reject, rejects
from escala.model.rejects import describe as described
from escala.model.workload import Method
from escala.report.planfile import PlanFile, digest_of
from escala.report.shared import AssumptionView, tokens_per_step

HUB: Final = "huggingface.co/"
STEPS: Final = 1000
# The usual rates of published recipes: pretraining of Llama 3 8B; full fine-tuning; QLoRA for adapters
RATES: Final = {Method.PRETRAIN: 3e-4, Method.FULL: 2e-5, Method.LORA: 2e-4, Method.QLORA: 2e-4}
DATA: Final = {Method.PRETRAIN: "allenai/c4"}
TUNING_DATA: Final = "tatsu-lab/alpaca"
ELSEWHERE: Final = Reject.ENGINE | Reject.OFFLOAD | Reject.HOST_LINK
"""Rules of a prediction that say nothing of whether another tool can run the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What no plan knows; None where nothing was given."""

    model: str | None = None
    data: str | None = None
    learning_rate: float | None = None
    steps: int | None = None


def order_of(file: PlanFile, row: int, wishes: Wishes) -> tuple[Order, tuple[AssumptionView, ...]]:
    """The order of one plan, and what was taken for what nobody gave."""
    problem, plan = file.problem, file.plans[row]
    _refuse_broken(problem, plan)
    model, data, rate, steps = _model(problem), _data(problem), _rate(problem), _steps(problem)
    assumed = (
        (wishes.model, "model", *model, "--model-path"),
        (wishes.data, "data", *data, "--data"),
        (wishes.learning_rate, "learning rate", f"{rate[0]:g}", rate[1], "--lr"),
        (wishes.steps, "steps", f"{steps[0]:,}", steps[1], "--steps"),
    )
    order = Order(
        problem=problem,
        plan=plan,
        digest=digest_of(file, row),
        model=wishes.model or model[0],
        data=wishes.data or data[0],
        learning_rate=wishes.learning_rate or rate[0],
        steps=wishes.steps or steps[0],
    )
    for what, text in (("model", order.model), ("data", order.data)):
        if not text.strip() or not text.isprintable():
            raise InvalidInput(
                f"the name of the {what} is {spoken(text)}; give one line of printable letters"
            )
    return order, tuple(
        AssumptionView(name=name, value=value, reason=reason, option=option)
        for given, name, value, reason, option in assumed
        if given is None
    )


def _refuse_broken(problem: Problem, plan: Plan) -> None:
    bits = int(rejects(problem, Plans.of(plan))[0]) & ~int(ELSEWHERE)
    if bits:
        raise InvalidInput(
            f"the plan cannot be run: {'; '.join(described(bits))}; `escala explain` says what to change"
        )


def _model(problem: Problem) -> tuple[str, str]:
    network = problem.workload.network
    if network.name in networks.names() and networks.network(network.name) == network:
        hub = networks.describe(network.name).hub
        if hub is not None:
            return hub, "id of the catalog's network on the Hugging Face hub"
    if HUB in network.source:
        return network.source.partition(HUB)[2].split()[0].strip(",;"), "where its config.json came from"
    return network.name, "the name of the network, since no public id is known"


def _data(problem: Problem) -> tuple[str, str]:
    method = problem.workload.method
    return DATA.get(method, TUNING_DATA), f"a public data set, so that the first run of {method} starts"


def _rate(problem: Problem) -> tuple[float, str]:
    method = problem.workload.method
    return RATES.get(method, RATES[Method.PRETRAIN]), f"usual of published recipes for {method}"


def _steps(problem: Problem) -> tuple[int, str]:
    total = problem.workload.total_tokens
    if total is None:
        return STEPS, "the plan has no total of tokens"
    return ceil(total / tokens_per_step(problem)), "the tokens of the plan over those of a step"
