from dataclasses import replace

import pytest

from escala import catalog
from escala.catalog.networks import network
from escala.model.problem import Problem
from escala.model.workload import Lora, Method, Workload
from escala.planning.advice import remedies
from escala.planning.search import search


def question(name: str, gpu: str, devices: int, batch: int, tokens: int = 4096, **workload) -> Problem:
    return Problem(
        workload=Workload(network=network(name), sequence_tokens=tokens, global_batch=batch, **workload),
        cluster=catalog.cluster_for(gpu, devices),
        engine=catalog.engine("pytorch"),
        assumptions=catalog.assumptions(),
    )


TOO_BIG = {
    "8B on one 80 GB device": question("llama-3.1-8b", "h100-sxm", 1, 8),
    "8B on four 24 GB cards": question("llama-3.1-8b", "rtx-4090", 4, 8),
    "70B on eight 80 GB devices": question("llama-3.1-70b", "h100-sxm", 8, 16),
    "3B on one 24 GB card": question("llama-3.2-3b", "rtx-4090", 1, 4),
}


@pytest.mark.parametrize("name", TOO_BIG)
def test_when_nothing_fits_there_are_remedies(name):
    problem = TOO_BIG[name]

    assert search(problem, may_offload=False).ranking is None
    found = remedies(problem)

    assert 1 <= len(found) <= 3
    assert all(each.title and each.step_s > 0 for each in found)


@pytest.mark.parametrize("name", TOO_BIG)
def test_remedies_are_different(name):
    titles = [each.title for each in remedies(TOO_BIG[name], most=8)]

    assert len(set(titles)) == len(titles)


def test_at_most_as_many_as_asked_for():
    assert len(remedies(TOO_BIG["8B on one 80 GB device"], most=1)) == 1


def test_smaller_states_come_before_anything_else():
    titles = [each.title for each in remedies(TOO_BIG["8B on four 24 GB cards"], most=8)]

    kinds = ["states", "sequence", "LoRA", "devices"]
    order = [next(i for i, kind in enumerate(kinds) if kind in title) for title in titles]
    assert order == sorted(order)


def test_a_frozen_network_gets_no_advice_about_its_optimizer():
    problem = question("llama-3.1-70b", "rtx-4090", 1, 4, method=Method.LORA, lora=Lora())

    titles = [each.title for each in remedies(problem, most=8)]

    assert not any("optimizer" in title or "LoRA" in title for title in titles)


def test_what_is_beyond_help_gets_no_advice():
    # one sequence on one device: no more devices can share it, and 405B fit in no way
    problem = question("llama-3.1-405b", "rtx-4090", 1, 1, tokens=512)

    assert remedies(problem) == []


def test_the_remedy_is_a_plan_that_fits():
    problem = TOO_BIG["8B on four 24 GB cards"]
    first = remedies(problem)[0]
    optimizer = replace(problem.workload.optimizer, state_bytes=1.0)

    found = search(replace(problem, workload=replace(problem.workload, optimizer=optimizer)))

    assert first.title == "keep optimizer states in 8-bit"
    assert found.ranking is not None
    assert first.step_s <= found.ranking.step_s[0] * (1 + found.tolerance)
