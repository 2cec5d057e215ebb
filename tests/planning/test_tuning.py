from dataclasses import replace

import numpy as np
import pytest

from escala import catalog
from escala.catalog.networks import network
from escala.model.estimate import estimate
from escala.model.plan import Compile, Plan, Plans, Recompute, Schedule
from escala.model.problem import Problem
from escala.model.workload import Workload
from escala.planning.space import SpaceLimits
from escala.planning.tuning import Setting, settings

PLAN = Plan(dp=8, zero=3, reshard=True, shard=8, micro_batches=8, recompute=Recompute.FULL)


def question(name: str = "llama-3.2-1b", devices: int = 8, batch: int = 64) -> Problem:
    return Problem(
        workload=Workload(network=network(name), sequence_tokens=4096, global_batch=batch),
        cluster=catalog.cluster_for("h100-sxm", devices),
        engine=catalog.engine("pytorch"),
        assumptions=catalog.assumptions(),
    )


def step_s(problem: Problem, plan: Plan) -> float:
    return float(estimate(problem, Plans.of(plan)).step_s[0])


def named(found: list[Setting], name: str) -> Setting:
    return next(each for each in found if each.name == name)


def test_a_setting_is_worth_the_difference_of_two_steps():
    problem = question()

    for each in settings(problem, PLAN):
        if each.plan is not None:
            change = step_s(problem, PLAN) - step_s(problem, each.plan)
            assert each.saved_s == pytest.approx(-change if each.is_used else change, rel=1e-9)
            assert int(estimate(problem, Plans.of(each.plan)).reject[0]) == 0


def test_the_largest_gain_comes_first():
    gains = [each.saved_s for each in settings(question(), PLAN)]

    assert gains == sorted(gains, reverse=True)
    assert min(gains) > 0


def test_a_plan_that_recomputes_all_is_told_what_keeping_would_save():
    found = named(settings(question(), PLAN), "recompute")

    assert (found.is_used, found.other, found.value) == (False, "full", "none")
    assert found.memory_ratio > 1


def test_a_used_setting_is_held_against_the_plainest():
    plan = replace(PLAN, recompute=Recompute.NONE, compile=Compile.DEFAULT)

    found = settings(question(), plan)

    assert named(found, "recompute").is_used
    assert named(found, "recompute").other == "full"
    assert (named(found, "compile").is_used, named(found, "compile").other) == (True, "off")


def test_prefetch_is_worth_what_gathers_in_the_open_cost():
    problem = question(devices=16, batch=128)
    plan = replace(PLAN, dp=16, shard=16)
    late = replace(problem.messages, prefetches=False)
    bare = replace(problem, engine=replace(problem.engine, messages=(("any", late),)))

    found = named(settings(problem, plan), "prefetch")

    assert found.saved_s == pytest.approx(step_s(bare, plan) - step_s(problem, plan), rel=1e-9)


def test_what_was_fixed_is_not_proposed():
    kept = SpaceLimits(fixed={"recompute": (int(Recompute.FULL),), "compile": (0,), "micro_batch": (1,)})

    names = {each.name for each in settings(question(), PLAN, kept)}

    assert not names & {"recompute", "compile", "micro-batch"}


def test_a_pipeline_is_told_what_interleaving_saves():
    plan = Plan(dp=2, pp=4, schedule=Schedule.ONE_F_ONE_B, zero=1, shard=2, micro_batches=32)

    found = named(settings(question(), plan), "schedule")

    # idle time is (pp - 1) / v of a micro-batch
    assert found.value.startswith(("interleaved", "zero-bubble"))
    assert np.isfinite(found.saved_s)
