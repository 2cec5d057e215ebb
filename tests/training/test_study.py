from dataclasses import replace

import pytest

from escala.catalog import engine
from escala.catalog.clusters import cluster
from escala.catalog.engines import assumptions
from escala.catalog.networks import network
from escala.errors import InvalidInput
from escala.model.plan import Plan
from escala.model.problem import Problem
from escala.model.workload import Workload
from escala.planning.resizing import case_of
from escala.report.scale_view import counts_of
from escala.training.study import scaled

PLAN = Plan(dp=4, zero=3, shard=4, reshard=True, micro_batch=2, micro_batches=4)


@pytest.fixture
def problem() -> Problem:
    return Problem(
        workload=Workload(network=network("gpt2"), sequence_tokens=512, global_batch=32),
        cluster=cluster("dgx-h100-superpod-su", 8),
        engine=engine("pytorch"),
        assumptions=assumptions(),
    )


def test_strong_scaling_keeps_the_global_batch(problem: Problem):
    fewer = case_of(problem, PLAN, 2, is_weak=False).plan
    more = case_of(problem, PLAN, 8, is_weak=False).plan

    # 32 samples: 16 a rank on two in micro-batches of 2, 4 a rank on eight
    assert (fewer.dp, fewer.micro_batch, fewer.micro_batches, fewer.shard) == (2, 2, 8, 2)
    assert (more.dp, more.micro_batch, more.micro_batches, more.shard) == (8, 2, 2, 8)


def test_strong_scaling_makes_micro_batches_smaller_where_a_rank_has_fewer_samples(problem: Problem):
    found = case_of(problem, replace(PLAN, micro_batch=8, micro_batches=1), 8, is_weak=False).plan

    assert (found.micro_batch, found.micro_batches) == (4, 1)  # 32 / 8


def test_weak_scaling_keeps_the_samples_of_a_device(problem: Problem):
    found = case_of(problem, PLAN, 8, is_weak=True)

    assert (found.plan.micro_batch, found.plan.micro_batches) == (2, 4)
    assert found.problem.workload.global_batch == 64
    assert found.problem.cluster.devices == 8


def test_one_rank_has_nothing_to_share(problem: Problem):
    found = case_of(problem, PLAN, 1, is_weak=True).plan

    assert (found.zero, found.shard, found.reshard) == (0, 1, False)


def test_groups_that_share_states_keep_their_size(problem: Problem):
    assert case_of(problem, replace(PLAN, shard=2), 8, is_weak=True).plan.shard == 2


@pytest.mark.parametrize(
    ("plan", "devices", "said"),
    [
        (replace(PLAN, tp=2), 3, "do not hold copies of tp x pp x cp = 2"),
        (PLAN, 3, "do not divide the global batch 32"),
        (replace(PLAN, ep=4), 2, "ep = 4 does not divide"),
    ],
)
def test_numbers_of_devices_that_cannot_hold_the_plan_are_refused(
    problem: Problem, plan: Plan, devices: int, said: str
):
    with pytest.raises(InvalidInput, match=said):
        case_of(problem, plan, devices, is_weak=False)


def test_a_study_without_points_says_what_is_missing(problem: Problem):
    found = scaled([case_of(problem, PLAN, 2, is_weak=False)], [], is_weak=False)

    assert found.is_interrupted
    assert (found.points, found.fit, found.ahead) == ((), None, ())
    assert found.unsaid == ("what is lost with more devices: two points are needed at least",)


def test_numbers_of_devices_are_read_in_rising_order():
    assert counts_of("4, 1,2,2") == (1, 2, 4)
    for wrong in ("", "1;2", "0,1", "two"):
        with pytest.raises(InvalidInput, match="write for example 1,2,4"):
            counts_of(wrong)
