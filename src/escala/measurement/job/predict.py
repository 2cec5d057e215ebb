"""The plan that a run here followed, as a question to the model. Predicts by the model's own functions."""

from dataclasses import dataclass
from typing import Final

from escala.errors import InvalidInput
from escala.measurement.job.record import OWN, StepRun
from escala.measurement.job.request import Sizes
from escala.measurement.profile.analyse import Planned
from escala.model.cluster import Cluster
from escala.model.network import Network
from escala.model.plan import Plan, Recompute
from escala.planning.defaults import Question, answerable, precision_code

OPTIMIZERS: Final = {"AdamW": "adamw", "Adam": "adamw"}
"""Classes of torch and the optimizer of the model that moves the same bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a prediction needs beside the run: network, or why it is unknown; machine; software."""

    network: Network | None
    unknown: str
    cluster: Cluster | None
    engine: str


def planned(asked: Asked, run: StepRun, sizes: Sizes) -> Planned:
    """The run as a problem and a plan: one device or data parallel, one micro-batch a step."""
    if asked.network is None:
        raise InvalidInput(asked.unknown)
    if asked.cluster is None:
        raise InvalidInput(
            "no machine is given; add --cluster bench.json, which `escala bench` writes, or --gpu"
        )
    _refuse_unknown(run)
    assert run.samples is not None
    question = Question(
        network=asked.network,
        cluster=asked.cluster,
        engine=asked.engine,
        sequence_tokens=_sequence_tokens(asked.network, run, sizes),
        global_batch=run.samples * run.ranks,
        optimizer=OPTIMIZERS[run.optimizer or ""],
        precision=sizes.precision,
    )
    plan = Plan(
        dp=run.ranks,
        micro_batch=run.samples,
        recompute=Recompute.FULL if run.recomputes else Recompute.NONE,
        precision=precision_code(sizes.precision),
    )
    return Planned(problem=answerable(question)[0], plan=plan)


def _sequence_tokens(network: Network, run: StepRun, sizes: Sizes) -> int | None:
    """Tokens of a sample, as its batch has them or the person says; none for images."""
    if network.is_image:
        return None
    tokens = run.tokens // run.samples if run.tokens and run.samples else sizes.sequence_tokens
    if tokens is None:
        raise InvalidInput("the batches have no input_ids to count tokens by; give --seq")
    return tokens


def _refuse_unknown(run: StepRun) -> None:
    """Refuse a run that no plan describes."""
    if run.parallelism == OWN:
        raise InvalidInput("the function spreads its model in a way that no plan here describes")
    if run.samples is None:
        raise InvalidInput("no batch is seen whose samples could be counted")
    if run.optimizer not in OPTIMIZERS:
        raise InvalidInput(f"the optimizer {run.optimizer} is none of {', '.join(OPTIMIZERS)}")
