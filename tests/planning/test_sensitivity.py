from dataclasses import replace

import pytest

from escala import catalog
from escala.catalog.networks import network
from escala.model.plan import Plan, Recompute, Schedule
from escala.model.problem import Problem
from escala.model.workload import Workload
from escala.planning.sensitivity import Change, sensitivity


def question(name: str = "llama-3.1-8b", devices: int = 16, batch: int = 64) -> Problem:
    return Problem(
        workload=Workload(network=network(name), sequence_tokens=4096, global_batch=batch),
        cluster=catalog.cluster_for("h100-sxm", devices),
        engine=catalog.engine("pytorch"),
        assumptions=catalog.assumptions(),
    )


PLANS = {
    "sharded": Plan(
        dp=16, zero=3, reshard=True, shard=16, micro_batch=2, micro_batches=2, recompute=Recompute.FULL
    ),
    "tensor": Plan(dp=2, tp=8, sp=True, zero=3, reshard=True, shard=2, micro_batch=2, micro_batches=16),
    "piped": Plan(
        dp=2, tp=4, pp=2, zero=3, shard=2, schedule=Schedule.ONE_F_ONE_B, micro_batch=1, micro_batches=32
    ),
}


def changes(name: str) -> dict[str, Change]:
    return {change.title: change for change in sensitivity(question(), PLANS[name])}


@pytest.mark.parametrize("name", PLANS)
def test_better_hardware_is_never_slower_and_needs_no_more_memory(name):
    hardware = [change for change in changes(name).values() if change.kind == "hardware"]

    assert len(hardware) >= 7
    for change in hardware:
        assert change.step_ratio is not None, change
        assert change.step_ratio <= 1.0, change
        assert change.need_ratio == 1.0, change


@pytest.mark.parametrize("name", PLANS)
def test_a_change_has_a_ratio_or_a_reason(name):
    for change in changes(name).values():
        assert (change.step_ratio is None) == bool(change.impossible), change
        assert change.need_ratio is not None
        assert change.need_ratio > 0


def test_twice_the_peak_helps_most_where_products_take_the_time():
    found = changes("sharded")

    ratios = {title: change.step_ratio for title, change in found.items() if change.kind == "hardware"}
    assert min(ratios, key=lambda title: ratios[title]) == "2 × peak FLOP/s"


def test_a_plan_change_says_why_it_cannot_be():
    # 8 key-value heads: tp 16 does not divide them
    assert "key-value heads" in changes("tensor")["2 × tp, half dp"].impossible


def test_twice_the_micro_batch_needs_more_memory():
    change = changes("sharded")["2 × micro-batch"]

    assert change.need_ratio > 1.0


def test_half_the_micro_batch_needs_less_memory():
    change = changes("sharded")["half the micro-batch"]

    assert change.need_ratio < 1.0
    assert change.step_ratio is not None


def test_a_first_pipeline_gets_a_schedule():
    # from pp 1 to pp 2 without resharding, which the engine cannot do in a pipeline
    change = changes("tensor")["2 × pp, half dp"]

    assert "schedule" not in change.impossible
    assert "engine" not in change.impossible


def test_one_device_has_no_degree_to_trade():
    problem = question("qwen2.5-0.5b", devices=1, batch=1)

    found = sensitivity(problem, Plan())

    assert {change.kind for change in found} == {"hardware"}


def test_dense_networks_are_not_asked_about_experts():
    assert "2 × ep" not in changes("sharded")


def test_a_device_that_is_too_small_says_so():
    problem = question(batch=64)
    plan = replace(PLANS["sharded"], micro_batch=4, micro_batches=1, recompute=Recompute.NONE)

    found = {change.title: change for change in sensitivity(problem, plan)}

    assert "does not fit" in found["2 × peak FLOP/s"].impossible
