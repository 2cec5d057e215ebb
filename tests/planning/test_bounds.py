"""Bounds as bounds: on every way of small spaces they are never above what some way to run it takes."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from escala import catalog
from escala.catalog.networks import network
from escala.model.bounds import (
    best_wires,
    least_bubble_s,
    least_bytes,
    least_host_verdict,
    least_s,
    least_states,
)
from escala.model.columns import F64
from escala.model.estimate import deal, estimate, memory_of, placed_wires, timed_rows
from escala.model.firstrank import first_rank_s
from escala.model.host import host_bytes
from escala.model.layers import LayerTime
from escala.model.memory import Verdict
from escala.model.plan import PLACEMENTS, Offload, Plans, Recompute, concatenate
from escala.model.problem import Problem
from escala.model.workload import Workload
from escala.planning.cells import cells, expand, fill
from escala.planning.space import SpaceLimits, groups
from escala.planning.variants import changed, recomputed

SAMPLE = 3000
EVERY_ORDER = SpaceLimits(all_placements=True)
QUESTIONS = {
    "dense": ("llama-3.1-8b", "h100-sxm", 16, 32, 8192, "pytorch", 40.0),
    "small memory": ("llama-3.1-8b", "h100-sxm", 32, 64, 8192, "pytorch", 12.0),
    "two kinds of layers": ("deepseek-v2-lite", "h800-sxm", 32, 128, 4096, "pytorch", 30.0),
    "Megatron": ("mixtral-8x7b", "h100-sxm", 32, 64, 4096, "megatron-core", 48.0),
    "DeepSpeed": ("gpt3-13b", "v100-sxm2-32gb", 64, 256, 2048, "deepspeed", 16.0),
    "many nodes": ("qwen3-30b-a3b", "h100-sxm", 128, 512, 4096, "pytorch", 20.0),
}
by_name = pytest.mark.parametrize("name", QUESTIONS)


@cache
def question(name: str) -> Problem:
    """A published network on devices of the given memory."""
    of, chip, devices, batch, tokens, engine, memory_gib = QUESTIONS[name]
    cluster = catalog.cluster_for(chip, devices)
    group = cluster.groups[0]
    small = replace(group, accelerator=replace(group.accelerator, memory_bytes=memory_gib * 2**30))
    return Problem(
        workload=Workload(network=network(of), sequence_tokens=tokens, global_batch=batch),
        cluster=replace(cluster, groups=(small,)),
        engine=catalog.engine(engine),
        assumptions=catalog.assumptions(),
    )


@cache
def ways(name: str) -> Plans:
    """A sample of the ways of a question, in every mesh order."""
    tables = []
    for group in groups(question(name), EVERY_ORDER):
        columns, _ = expand(group, cells(group))
        tables.append(fill(columns, len(columns["dp"]), EVERY_ORDER.plain))
    every = concatenate(tables)
    return every.take(np.random.default_rng(1_848).integers(0, len(every), SAMPLE))


@cache
def fastest_s(name: str) -> F64:
    """Seconds of each way with the recompute that fits and is fastest, infinite when none fits."""
    problem, plans = question(name), ways(name)
    most = int((-(-problem.workload.network.layers // plans.pp)).max())
    modes = [recomputed(plans, mode) for mode in (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)]
    modes += [recomputed(plans, Recompute.FIRST_LAYERS, layers) for layers in range(1, most)]
    found = [estimate(problem, each) for each in modes]
    seconds = [np.where(each.memory.verdict == Verdict.FITS, each.step_s, np.inf) for each in found]
    return np.asarray(np.min(seconds, axis=0))


def limit_bytes(problem: Problem) -> float:
    return problem.accelerator.memory_bytes * problem.assumptions.risky_share


def never_above(bounds: F64, values: F64) -> bool:
    return bool((bounds <= values * (1 + 1e-12)).all())


@by_name
def test_the_sample_has_plans_that_fit_and_plans_that_do_not(name):
    fits = np.isfinite(fastest_s(name))

    assert fits.any()
    assert not fits.all()


@by_name
def test_a_cell_takes_no_longer_than_any_of_its_ways(name):
    problem, plans = question(name), ways(name)
    states = least_states(problem, plans)

    seconds = least_s(problem, plans, placed_wires(problem, plans), states, limit_bytes(problem))

    assert never_above(seconds, fastest_s(name))
    assert never_above(seconds + least_bubble_s(problem, plans, seconds), fastest_s(name))


@by_name
def test_what_needs_too_much_at_least_fits_in_no_way(name):
    problem, plans = question(name), ways(name)

    needs = least_bytes(problem, plans, least_states(problem, plans))

    assert np.isinf(fastest_s(name)[needs > limit_bytes(problem)]).all()


@by_name
def test_what_the_states_take_of_a_node_at_least_no_way_undercuts(name):
    problem, plans = question(name), ways(name)
    sharded = plans.take(np.flatnonzero(plans.zero >= 1))
    weights = np.where(sharded.zero == 3, int(Offload.CPU), int(Offload.NONE))
    moved = changed(sharded, offload_params=weights, offload_optimizer=int(Offload.CPU))
    least = host_bytes(problem, moved, least_states(problem, moved).moved_bytes)

    found = memory_of(problem, moved, deal(problem, moved))

    assert len(moved)
    assert never_above(least.running_bytes, found.host_bytes)
    assert (least_host_verdict(problem, moved, least_states(problem, moved)) <= found.host_verdict).all()


@by_name
def test_a_first_rank_that_fits_takes_no_longer_than_any_way_that_fits(name):
    problem, plans = question(name), ways(name)

    seconds = first_rank_s(problem, plans, placed_wires(problem, plans), limit_bytes(problem))

    assert never_above(seconds, fastest_s(name))
    # close enough to be of use
    fits = np.isfinite(fastest_s(name))
    assert np.median(seconds[fits] / fastest_s(name)[fits]) > 0.6


@by_name
def test_the_best_links_of_all_orders_are_slower_than_none_of_them(name):
    problem = question(name)
    plans = replace(ways(name), placement=np.zeros(SAMPLE, np.int64))
    orders = range(len(PLACEMENTS))

    best = timed_rows(problem, plans, best_wires(problem, plans, orders))

    for code in orders:
        placed = replace(plans, placement=np.full(SAMPLE, code))
        own = timed_rows(problem, placed, placed_wires(problem, placed))
        assert all(_no_slower(least, each) for least, each in zip(best, own, strict=True))


def _no_slower(least: LayerTime, own: LayerTime) -> bool:
    names = ("forward_s", "backward_s", "recompute_full_s", "recompute_selective_s")
    return all(never_above(getattr(least, name), getattr(own, name)) for name in names)


@by_name
def test_the_best_links_of_one_order_are_its_own(name):
    problem = question(name)
    plans = replace(ways(name), placement=np.full(SAMPLE, 3))

    best = timed_rows(problem, plans, best_wires(problem, plans, [3]))

    for least, own in zip(best, timed_rows(problem, plans, placed_wires(problem, plans)), strict=True):
        assert least.forward_s.tolist() == own.forward_s.tolist()
