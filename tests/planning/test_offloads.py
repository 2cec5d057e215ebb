"""Searches that offload: only where nothing fits without, or when asked."""

from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import pytest

from escala import catalog
from escala.catalog.networks import network
from escala.errors import InvalidInput
from escala.model.memory import Verdict
from escala.model.parameters import network_parameters
from escala.model.plan import Offload, Plan, Recompute
from escala.model.problem import Problem
from escala.model.workload import Workload
from escala.planning import search as searching
from escala.planning.search import levels, search
from escala.planning.simplicity import describe, moved
from escala.planning.space import SpaceLimits
from escala.planning.why import smallest

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


def test_states_that_the_nodes_cannot_hold_are_not_offloaded():
    # weights, gradients and two moments in fp32 on 8 nodes: more than the 1,863 GiB of one
    question = problem("kimi-k2", "h100-sxm", 64)
    states_bytes = 16 * network_parameters(question.workload.network).total
    capacity = question.cluster.host.memory_bytes
    assert capacity is not None
    assert states_bytes / 8 > capacity

    assert search(question).ranking is None


def test_a_host_that_buffers_may_fill_is_risked_before_a_full_device():
    _, found = best(problem("glm-5", "h100-sxm", 64))

    assert found.is_risky
    assert set(found.ranking.memory.host_verdict) == {Verdict.RISKY}
    assert set(found.ranking.memory.device_verdict) == {Verdict.FITS}


def test_the_levels_of_risk_rise():
    question = problem("llama-3.1-8b", "h100-sxm", 8)
    plain = [(each.device_share, each.host) for each in levels(question, Plan())]
    away = [(each.device_share, each.host) for each in levels(question, Plan(offload_optimizer=Offload.CPU))]

    assert plain == [(0.93, Verdict.FITS), (1.0, Verdict.FITS), (1.04, Verdict.FITS)]
    assert away == [(0.93, Verdict.FITS), (0.93, Verdict.RISKY), (1.0, Verdict.RISKY), (1.04, Verdict.RISKY)]


def of_memory(question: Problem, memory_bytes: float) -> Problem:
    group = question.cluster.groups[0]
    small = replace(group, accelerator=replace(group.accelerator, memory_bytes=memory_bytes))
    return replace(question, cluster=replace(question.cluster, groups=(small,)))


@pytest.mark.parametrize(("share", "is_moved"), [(1.02, True), (0.98, False)])
def test_a_plan_that_is_expected_to_run_out_is_no_answer_where_offload_fits(share, is_moved):
    whole = problem("llama-3.1-8b", "h100-sxm", 8)
    least_bytes = float(smallest(whole, SpaceLimits()).needed_bytes.min())
    tight = of_memory(whole, least_bytes / share)
    assert search(tight, may_offload=False).is_risky

    plan, _ = best(tight)

    assert bool(moved(plan)) is is_moved


def test_the_seconds_of_a_search_are_those_of_all_its_passes(monkeypatch):
    # a clock that is read when the search begins and when it ends, whatever passes it takes
    ticks = count(10.0, 5.0)
    monkeypatch.setattr(searching, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))

    assert best(problem("glm-5", "h100-sxm", 64))[1].search_s == 5.0
