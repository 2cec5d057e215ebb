from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from escala.catalog import engine
from escala.catalog.networks import config as config_of
from escala.catalog.networks import network
from escala.errors import InvalidInput
from escala.measurement.tracing.keys import config_keys
from escala.measurement.tracing.ranks import few_micro_batches, stands_for, traced_ranks
from escala.model.plan import ContextKind, Plan, Recompute, Schedule
from escala.model.problem import Problem

Of = Callable[..., Problem]
PIPE = Plan(pp=3, schedule=Schedule.ONE_F_ONE_B, micro_batches=8)


def test_ranks_with_equal_layers_are_traced_once(problem: Of) -> None:
    # 6 layers on 3 stages: 2 each; embedding on the first, head on the last, the middle one has neither
    ranks = traced_ranks(problem(PIPE), PIPE)

    assert [(each.rank, each.alike, each.layers) for each in ranks] == [(0, 1, 2), (1, 1, 2), (2, 1, 2)]
    ends = [(each.jobs[0].chunks[0].has_embedding, each.jobs[0].chunks[0].has_head) for each in ranks]
    assert ends == [(True, False), (False, False), (False, True)]


def test_a_deep_rank_of_equal_layers_is_traced_with_three_and_with_four(problem: Of) -> None:
    plan = Plan()

    (rank,) = traced_ranks(problem(plan, num_hidden_layers=40), plan)

    assert rank.layers == 40
    assert [job.layers for job in rank.jobs] == [3, 4]


def test_every_layer_is_traced_where_some_are_recomputed(problem: Of) -> None:
    plan = Plan(recompute=Recompute.FIRST_LAYERS, recompute_layers=2)

    (rank,) = traced_ranks(problem(plan), plan)

    assert [job.layers for job in rank.jobs] == [6]


def test_the_first_of_four_stages_runs_four_forwards_before_its_first_backward(problem: Of) -> None:
    plan = replace(PIPE, pp=4, micro_batches=16)
    job = traced_ranks(problem(plan, num_hidden_layers=8), plan)[0].jobs[0]

    kinds = [turn.kind for turn in job.turns]

    assert kinds.index("backward") == 4
    assert kinds.count("forward") == kinds.count("backward") == 5  # held at once, and one more


def test_left_out_micro_batches_are_like_the_second() -> None:
    plan = Plan(micro_batches=10)

    # 3 are traced: first, 1 + 7 like the second, last
    assert few_micro_batches(plan, 0) == 3
    assert stands_for(plan, 3) == [1, 8, 1]
    assert sum(stands_for(plan, 3)) == plan.micro_batches


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (Plan(cp=2, cp_kind=ContextKind.RING), "context parallelism"),
        (Plan(pp=2, schedule=Schedule.ZERO_BUBBLE_V, virtual_stages=2), "schedule zero-bubble-v"),
        (Plan(dp=2, zero=2, shard=2), "ZeRO-2"),
    ],
)
def test_what_is_not_traced_is_refused_by_name(problem: Of, plan: Plan, said: str) -> None:
    with pytest.raises(InvalidInput, match=f"cannot be traced: {said}; change it"):
        traced_ranks(problem(plan), plan)


def test_only_plans_for_pytorch_are_traced(problem: Of) -> None:
    other = replace(problem(Plan()), engine=engine("megatron-core"))

    with pytest.raises(InvalidInput, match="its engine is megatron-core, and only pytorch is traced"):
        traced_ranks(other, Plan())


def test_keys_of_a_catalogued_network_are_those_of_the_catalog() -> None:
    assert config_keys(network("gpt2")) == config_of("gpt2")


def test_a_config_that_changed_after_planning_is_refused(problem: Of) -> None:
    planned = problem(Plan()).workload.network
    file = Path(planned.source)
    file.write_text(file.read_text().replace("14336", "14592"))

    with pytest.raises(InvalidInput, match="has changed since the plan was made"):
        config_keys(planned)


def test_a_network_without_its_file_is_refused(problem: Of) -> None:
    planned = replace(problem(Plan()).workload.network, source="given by the user")

    with pytest.raises(
        InvalidInput, match=r"config\.json of llama is needed .* given by the user is no file"
    ):
        config_keys(planned)
