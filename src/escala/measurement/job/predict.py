"""The plan that a run here followed, as a question to the model. Predicts by the model's own functions."""

from dataclasses import dataclass
from typing import Final

from escala.errors import InvalidInput
from escala.measurement.job.record import StepRun
from escala.measurement.profile.analyse import Planned
from escala.model.cluster import Cluster
from escala.model.network import Network
from escala.model.plan import Plan, Recompute
from escala.planning.defaults import Question, answerable, precision_code

OPTIMIZERS: Final = {"AdamW": "adamw", "Adam": "adamw"}
"""Classes of torch and the optimizer of the model that moves the same bytes."""
OWN: Final = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a prediction of a run needs beside the run: network, machine, software, format, recompute."""

    network: Network | None
    cluster: Cluster | None
    engine: str
    precision: str
    sequence_tokens: int | None
    recomputes: bool


def planned(asked: Asked, run: StepRun) -> Planned:
    """The run as a problem and a plan: one device or data parallel, one micro-batch a step."""
    if asked.network is None:
        raise InvalidInput("a function does not say which network it trains; name it with --model")
    if asked.cluster is None:
        raise InvalidInput(
            "no machine is given; add --cluster bench.json (`escala bench` writes it) or --gpu"
        )
    _refuse_unknown(run)
    assert run.samples is not None
    tokens = run.tokens // run.samples if run.tokens else asked.sequence_tokens
    question = Question(
        network=asked.network,
        cluster=asked.cluster,
        engine=asked.engine,
        sequence_tokens=tokens,
        global_batch=run.samples * run.ranks,
        optimizer=OPTIMIZERS[run.optimizer or ""],
        precision=asked.precision,
    )
    if tokens is None and not asked.network.is_image:
        raise InvalidInput("the batches have no input_ids to count tokens by; give --seq")
    problem, _ = answerable(question)
    plan = Plan(
        dp=run.ranks,
        micro_batch=run.samples,
        recompute=Recompute.FULL if asked.recomputes else Recompute.NONE,
        precision=precision_code(asked.precision),
    )
    return Planned(problem=problem, plan=plan)


def _refuse_unknown(run: StepRun) -> None:
    """Refuse a run that no plan describes."""
    if run.parallelism == OWN:
        raise InvalidInput("the function spreads its model in a way that no plan here describes")
    if run.samples is None:
        raise InvalidInput("the batches have no common first dimension to count samples by")
    if run.optimizer not in OPTIMIZERS:
        raise InvalidInput(f"the optimizer {run.optimizer} is none of {', '.join(OPTIMIZERS)}")
