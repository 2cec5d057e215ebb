"""Reductions of gradients between replicas: how often a step pays them."""

from dataclasses import replace

import pytest

from escala.model.estimate import estimate
from escala.model.plan import Plan, Plans, Schedule

HYBRID = Plan(dp=16, zero=3, reshard=True, shard=8)


def sync_s(problem, plan: Plan) -> float:
    return float(estimate(problem, Plans.of(plan)).time.gradient_sync_s[0])


def hiding_nothing(problem, *, reduces_at_once: bool):
    time = replace(problem.engine.time, gradient_hidden=0.0, reduces_every_micro_batch=reduces_at_once)
    return replace(problem, engine=replace(problem.engine, time=time))


def test_replicas_of_shards_are_reduced_after_every_micro_batch(real, llama):
    problem = hiding_nothing(real(llama(), devices=16), reduces_at_once=True)

    once, four = sync_s(problem, HYBRID), sync_s(problem, replace(HYBRID, micro_batches=4))

    assert once > 0
    assert four == pytest.approx(4 * once, rel=1e-12)


def test_an_engine_that_waits_reduces_replicas_of_shards_once(real, llama):
    problem = hiding_nothing(real(llama(), devices=16), reduces_at_once=False)

    once, four = sync_s(problem, HYBRID), sync_s(problem, replace(HYBRID, micro_batches=4))

    assert four == pytest.approx(once, rel=1e-12)


def test_a_pipeline_reduces_replicas_of_shards_at_its_end(real, llama):
    problem = hiding_nothing(real(llama(), devices=32), reduces_at_once=True)
    piped = replace(HYBRID, pp=2, reshard=False, schedule=Schedule.ONE_F_ONE_B, micro_batches=4)

    four, eight = sync_s(problem, piped), sync_s(problem, replace(piped, micro_batches=8))

    assert eight == pytest.approx(four, rel=1e-12)
