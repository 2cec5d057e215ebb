"""Between sites: the bandwidth below which local steps pay, by halving and by algebra."""

from dataclasses import replace
from math import inf

import pytest

from escala.catalog import assumptions, engine
from escala.catalog.networks import network
from escala.formats.cluster_toml import cluster_from_keys
from escala.model.estimate import time_of
from escala.model.parameters import network_parameters
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.replicas import crossover_bytes_per_s
from escala.model.workload import Workload
from escala.planning.search import search
from escala.planning.sites import between, crossover_ratio, least_steps
from escala.planning.space import SpaceLimits

PLAIN = Plan(dp=2, micro_batch=16)
LOCAL = replace(PLAIN, local_steps=100)


def problem_of(latency: str = "1 ns") -> Problem:
    """Two sites of one device each that send 1 GB/s, with an engine that hides all it can."""
    sites = {"count": 2, "bandwidth": "8 Gb/s", "latency": latency}
    keys = {"accelerator": "h100-sxm", "devices": 2, "devices_per_node": 1, "sites": sites}
    known = engine("pytorch")
    return Problem(
        workload=Workload(network=network("gpt2"), sequence_tokens=1024, global_batch=32),
        cluster=cluster_from_keys(keys),
        engine=replace(known, time=replace(known.time, gradient_hidden=1.0)),
        assumptions=assumptions(),
    )


def test_halving_finds_the_bandwidth_that_algebra_says():
    problem = problem_of()
    times = time_of(problem, Plans.of([PLAIN, LOCAL])).gradient_sync_s
    # two replicas all-reduce 2 x 1/2 x 4 bytes a weight, at the share that the link reaches
    sent_bytes = 4.0 * network_parameters(problem.workload.network).total
    reached_bytes_per_s = 1e9 * problem.cluster.links[-1].reduce_efficiency
    sent_s = sent_bytes / reached_bytes_per_s

    algebra = crossover_bytes_per_s(
        sent_bytes, sent_bytes, 100, hidden_s=sent_s - times[0], passes_s=100 * times[1] - sent_s
    )

    found = crossover_ratio(problem, PLAIN, LOCAL, 0.0)
    assert found * reached_bytes_per_s == pytest.approx(algebra, rel=1e-6)


def test_where_nothing_hides_and_nothing_is_passed_local_steps_always_send_less():
    assert crossover_bytes_per_s(8.0, 8.0, 10, hidden_s=0.0, passes_s=0.0) == inf
    # 8 - 80 / 10 bytes
    assert crossover_bytes_per_s(8.0, 80.0, 10, hidden_s=1.0, passes_s=0.0) == 0.0


def test_with_a_long_way_local_steps_pay_at_any_bandwidth():
    # 2 x 1 s in every step
    assert crossover_ratio(problem_of("1 s"), PLAIN, LOCAL, 0.05) == inf


def test_from_the_least_steps_on_agreeing_takes_its_share():
    problem = problem_of()
    steps = least_steps(problem, LOCAL)

    for count, is_enough in ((steps - 1, False), (steps, True)):
        time = time_of(problem, Plans.of(replace(LOCAL, local_steps=count)))
        rest_s = time.step_s[0] - time.gradient_sync_s[0]
        assert (time.gradient_sync_s[0] <= 0.05 * rest_s) == is_enough


def test_the_planner_sets_the_best_plan_with_local_steps_beside_its_own():
    problem, limits = problem_of(), SpaceLimits()
    found = between(problem, limits, search(problem, limits, top=1))

    assert found is not None
    assert found.bytes_per_s == 1e9
    assert found.local.local_steps == 100
    assert found.local_step_s < found.plain_step_s
    assert found.crossover_bytes_per_s > found.bytes_per_s


def test_nothing_is_said_where_local_steps_are_chosen_or_no_sites_joined():
    problem, limits = problem_of(), SpaceLimits(fixed={"local_steps": (20,)})
    assert between(problem, limits, search(problem, limits, top=1)) is None
