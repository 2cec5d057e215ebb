"""What `escala explain` says of uneven experts: the busiest rank, a bad draw, dropped tokens, the origin."""

from dataclasses import replace

import pytest

from escala.catalog import assumptions, cluster_for, engine
from escala.catalog.networks import network
from escala.model.network import Experts
from escala.model.plan import Plan
from escala.model.problem import Problem
from escala.model.workload import Workload
from escala.report.load_view import expert_load_view, load_words


def problem_of(name: str, **changes: object) -> Problem:
    given = network(name)
    if changes:
        (stack,) = given.stacks
        (block,) = stack.blocks
        parts = tuple(replace(p, **changes) if isinstance(p, Experts) else p for p in block.parts)
        given = replace(given, stacks=(replace(stack, blocks=(replace(block, parts=parts),)),))
    return Problem(
        workload=Workload(network=given, sequence_tokens=4096, global_batch=64),
        cluster=cluster_for("h100-sxm", 64),
        engine=engine("pytorch"),
        assumptions=assumptions(),
    )


def test_the_busiest_rank_and_a_bad_draw_are_told_with_their_origin():
    found = expert_load_view(problem_of("mixtral-8x7b"), Plan(dp=64, ep=8))

    assert found is not None
    assert 1.0 < found.load_ratio < found.bad_draw_ratio
    assert load_words(found)[-1] == "loads taken to deviate by 22 %"
    assert load_words(found)[0].startswith("busiest of 8 ranks 1.3")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"load_deviation": 0.05}, "loads deviate by 5 %, as described"),
        ({"loads": (1.0,) * 7 + (2.0,)}, "loads as measured"),
        ({"capacity_factor": 1.25}, "buffers padded to a capacity of 1.25"),
    ],
)
def test_the_origin_of_loads_is_told(changes: dict[str, object], words: str):
    found = expert_load_view(problem_of("mixtral-8x7b", **changes), Plan(dp=64, ep=8))

    assert found is not None
    assert load_words(found)[-1] == words


def test_a_capacity_says_what_it_drops():
    found = expert_load_view(problem_of("mixtral-8x7b", capacity_factor=1.0), Plan(dp=64, ep=8))

    assert found is not None
    # 0.22 / sqrt(2 pi): nearly 9 % of the tokens
    assert found.dropped_share == pytest.approx(0.088, abs=0.001)
    assert "dropped" in " ".join(load_words(found))


def test_one_rank_and_dense_networks_have_nothing_to_tell():
    assert expert_load_view(problem_of("mixtral-8x7b"), Plan(dp=64)) is None
    assert expert_load_view(problem_of("llama-3.1-8b"), Plan(dp=64)) is None
