"""The predicted terms of a plan beside the measured parts of its step. Predicts by the model, no fit.

A recorded step does not show every term by itself: terms that look alike in a trace stand together.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from escala.errors import InvalidInput
from escala.measurement.profile.record import Arrival, Beside, Prediction, RankProfile, TermTime
from escala.model.estimate import estimate
from escala.model.explain import Term, explain
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.rejects import Reject, describe
from escala.planning.simplicity import describe as title_of

DATA_TERMS: Final = ("sharding_s", "gradient_sync_s")
COMPUTE: Final = "forward and backward"
COMMUNICATION: Final = "communication, exposed"
WAITING: Final = "waiting for other ranks"
OPTIMIZER: Final = "optimizer"
NOT_MODELLED: Final = "data and idle"
# Names of escala.model.explain.TERMS; every term is in one part.
PARTS: Final = {
    COMPUTE: (
        "matmul_s",
        "attention_s",
        "elementwise_s",
        "routing_s",
        "head_s",
        "embedding_s",
        "recompute_s",
        "dispatch_s",
        "accumulate_s",
        "overhead_s",
    ),
    COMMUNICATION: (
        "tensor_parallel_s",
        "context_parallel_s",
        "expert_parallel_s",
        "transfer_s",
        "sharding_s",
        "gradient_sync_s",
        "offload_s",
    ),
    WAITING: ("bubble_s", "straggler_s"),
    OPTIMIZER: ("optimizer_s",),
    NOT_MODELLED: (),
}


def _word(names: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![a-z])({names})(?![a-z])")


# Axis: its degree in a plan, how PyTorch, torchtitan and Megatron-LM call its groups, its terms. The first
# that fits counts: data parallel groups are named after the axes that they span.
AXES: Final = {
    "data parallel": ("dp", _word("fsdp|ddp|hsdp|dp|data_parallel|shard|replicate"), DATA_TERMS),
    "tensor parallel": ("tp", _word("tp|tensor_(model_)?parallel"), ("tensor_parallel_s",)),
    "context parallel": ("cp", _word("cp|context_parallel"), ("context_parallel_s",)),
    "expert parallel": ("ep", _word("ep|expert_(model_)?parallel"), ("expert_parallel_s",)),
    "pipeline": ("pp", _word("pp|pipe|pipeline(_model)?_parallel"), ("transfer_s",)),
}


def beside(
    planned: tuple[Problem, Plan], rank: RankProfile, waited: Sequence[Arrival], *, has_device: bool
) -> Prediction:
    """The plan's step, term by term, beside that of the rank that decides."""
    problem, plan = planned
    result = estimate(problem, Plans.of(plan))
    broken = int(result.reject[0]) & ~int(Reject.MEMORY)
    if broken:
        raise InvalidInput(f"the plan cannot be run ({', '.join(describe(broken))}); give that of the run")
    terms = {each.name: each for each in explain(problem, result).terms}
    measured = _measured(rank, waited, has_device)
    step_s, ratio = float(result.step_s[0]), float(result.interval_ratio[0])
    return Prediction(
        plan_title=title_of(plan),
        network=problem.workload.network.name,
        step_s=step_s,
        low_s=step_s / ratio,
        high_s=step_s * ratio,
        error=step_s / rank.step_s - 1.0,
        axes=_axes(plan, terms, rank),
        parts=tuple(
            _part(name, [terms[key] for key in keys], measured[name]) for name, keys in PARTS.items()
        ),
    )


def _measured(rank: RankProfile, waited: Sequence[Arrival], has_device: bool) -> dict[str, float | None]:
    """The seconds that a trace has for each part; waiting is part of communication unless ranks tell it."""
    phases = rank.phases
    waiting_s = next(
        (min(each.waits_s, phases.communication_s) for each in waited if each.rank == rank.rank), None
    )
    calling_s = rank.waits.launch_s if has_device else 0.0  # on a processor the phases hold it
    return {
        COMPUTE: phases.forward_s + phases.backward_s + calling_s,
        COMMUNICATION: phases.communication_s - (waiting_s or 0.0),
        WAITING: waiting_s,
        OPTIMIZER: phases.optimizer_s,
        NOT_MODELLED: phases.data_s + phases.idle_s - calling_s,
    }


def _axes(plan: Plan, terms: Mapping[str, Term], rank: RankProfile) -> tuple[Beside, ...]:
    """Exposed messages by axis; none where a group's name does not tell its axis and the plan has several."""
    used = [axis for axis, (degree, _, _) in AXES.items() if getattr(plan, degree) > 1]
    measured_s = dict.fromkeys(used, 0.0)
    for each in rank.traffic:
        axis = used[0] if len(used) == 1 else _axis(each.group or "")
        if axis in measured_s:
            measured_s[axis] += each.exposed_s
        elif each.exposed_s > 0:
            return ()
    return tuple(
        _part(axis, [terms[key] for key in AXES[axis][2]], value_s) for axis, value_s in measured_s.items()
    )


def _axis(group: str) -> str | None:
    return next((axis for axis, (_, pattern, _) in AXES.items() if pattern.search(group.lower())), None)


def _part(name: str, terms: Sequence[Term], measured_s: float | None) -> Beside:
    predicted_s = sum(each.seconds_s for each in terms)
    return Beside(
        part=name,
        predicted_s=predicted_s,
        measured_s=measured_s,
        error=predicted_s / measured_s - 1.0 if measured_s and predicted_s else None,
        terms=tuple(
            TermTime(name=each.name, title=each.title, predicted_s=each.seconds_s)
            for each in terms
            if each.seconds_s > 0
        ),
    )
