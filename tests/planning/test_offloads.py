"""Searches that offload: only where nothing fits without, or when asked."""

import pytest

from escala import catalog
from escala.catalog.networks import network
from escala.errors import InvalidInput
from escala.model.memory import Verdict
from escala.model.plan import Offload, Recompute
from escala.model.problem import Problem
from escala.model.workload import Workload
from escala.planning.search import search
from escala.planning.simplicity import describe, moved
from escala.planning.space import SpaceLimits

CPU = (int(Offload.CPU),)


def problem(name: str, gpu: str, devices: int, engine: str = "pytorch", batch: int = 64) -> Problem:
    return Problem(
        workload=Workload(network=network(name), sequence_tokens=2048, global_batch=batch),
        cluster=catalog.cluster_for(gpu, devices),
        engine=catalog.engine(engine),
        assumptions=catalog.assumptions(),
    )


def best(question: Problem, limits: SpaceLimits | None = None):
    found = search(question, limits, top=2)
    assert found.ranking is not None
    assert found.recommended is not None
    return found.ranking.plans[found.recommended], found


def test_a_network_that_fits_only_with_offload_is_planned_with_it():
    question = problem("llama-3.1-70b", "a100-sxm-80gb", 8)
    assert search(question, may_offload=False).ranking is None

    plan, found = best(question)

    assert moved(plan) == ("weights", "optimizer")
    assert found.ranking.memory.verdict[0] == Verdict.FITS
    assert "weights + optimizer on the host" in describe(plan)


def test_an_engine_that_moves_states_apart_moves_as_little_as_is_enough():
    plan, _ = best(problem("llama-3.1-8b", "a100-sxm-80gb", 1, "deepspeed"))

    assert moved(plan) == ("optimizer",)


def test_what_fits_without_offload_is_planned_without():
    plan, _ = best(problem("llama-3.1-8b", "h100-sxm", 8))

    assert moved(plan) == ()


def test_offload_that_is_asked_for_is_planned():
    fixed = {"offload_params": CPU, "offload_optimizer": CPU}
    plan, _ = best(problem("llama-3.1-8b", "h100-sxm", 8), SpaceLimits(fixed=fixed))

    assert moved(plan) == ("weights", "optimizer")
    assert plan.zero == 3


def test_offloaded_activations_are_checkpoints():
    fixed = {"offload_activations": CPU}
    plan, _ = best(problem("llama-3.1-8b", "h100-sxm", 8, "trl-fsdp2"), SpaceLimits(fixed=fixed))

    assert plan.recompute is Recompute.FULL


@pytest.mark.parametrize(
    ("engine", "fixed", "said"),
    [
        ("litgpt", {"offload_optimizer": CPU}, "cannot offload"),
        ("pytorch", {"offload_optimizer": CPU}, "cannot offload"),
        ("deepspeed", {"offload_optimizer": (int(Offload.NVME),)}, "is not known"),
        ("torchtune", {"offload_optimizer": CPU, "offload_params": CPU, "optimizer_step": (2,)}, "fix one"),
    ],
)
def test_what_cannot_be_answered_is_refused(engine, fixed, said):
    with pytest.raises(InvalidInput, match=said):
        search(problem("llama-3.1-8b", "h100-sxm", 8, engine), SpaceLimits(fixed=fixed))
