"""Measured lines in place of the formulas of the catalog."""

from dataclasses import replace

import numpy as np
import pytest

from escala.model.cluster import Collective, Line
from escala.model.estimate import time_of
from escala.model.measured import alpha_s, beta_s_per_byte, lines_of
from escala.model.placement import Mesh, wire
from escala.model.plan import Plan, Plans, Schedule
from escala.model.replicas import gradient_sync_s

PARTS = {
    Collective.ALL_REDUCE: 1.0,
    Collective.ALL_GATHER: 0.5,
    Collective.REDUCE_SCATTER: 1.0,
    Collective.ALL_TO_ALL: 0.5,
    Collective.SEND: 0.25,
    Collective.EXCHANGE: 0.4,
}


def line(ranks, alpha, beta, operation=Collective.ALL_REDUCE):
    """A line of a link with a latency of a second and a bandwidth of a gigabyte a second."""
    return Line(operation=operation, ranks=ranks, latency_ratio=alpha, wire_ratio=beta * 1e9)


def every(ranks, alpha, beta):
    """All-reduce with the given line, gathers half of it, scatters all, sends a quarter."""
    return tuple(line(ranks, alpha * part, beta * part, operation) for operation, part in PARTS.items())


def with_lines(link, *lines, **given):
    return replace(link, latency_s=1.0, bytes_per_s=1e9, lines=lines, **given)


def test_latency_grows_with_the_steps_of_a_ring(link):
    # 22 ms among 2 ranks (1 step), 66 among 4 (3 steps): 44 among 3; the last slope is 22 ms a step, so that
    # 8 ranks (7 steps) take 66 + 4 * 22 = 154
    ring = with_lines(link("network", 4, 1e9), line(2, 22e-3, 1.0), line(4, 66e-3, 1.0))
    found = alpha_s(ring, Collective.ALL_REDUCE, np.array([2.0, 3.0, 4.0, 8.0]), "gloo")

    assert found == pytest.approx([22e-3, 44e-3, 66e-3, 154e-3], rel=1e-12)


def test_latency_grows_with_doublings_where_no_ring_is_known(link):
    # 20 us among 2 ranks, 30 among 4: 40 among 8
    tree = with_lines(link("network", 4, 1e9), line(2, 20e-6, 1.0), line(4, 30e-6, 1.0))

    assert alpha_s(tree, Collective.ALL_REDUCE, np.array([8.0]), "nccl") == pytest.approx([40e-6], rel=1e-12)


def test_latency_that_does_not_grow_stays(link):
    # an exchange with all others at once takes 11 ms among 2 and among 4, so also among 8
    flat = with_lines(link("network", 4, 1e9), line(2, 11e-3, 1.0), line(4, 11e-3, 1.0))

    assert alpha_s(flat, Collective.ALL_REDUCE, np.array([8.0]), "gloo") == pytest.approx([11e-3], rel=1e-12)


def test_bytes_cost_what_they_cost_on_the_wire(link):
    # all-reduce among 2 at 80 ns a byte: 1/2 of a byte twice, so 160 ns for (n - 1) / n; among 4: 120 ns
    pair = with_lines(link("network", 2, 1e9), line(2, 0.0, 80e-9))
    found = beta_s_per_byte(pair, Collective.ALL_REDUCE, np.array([2.0, 4.0, 1e9]))

    assert found == pytest.approx([80e-9, 120e-9, 160e-9], rel=1e-8)


def test_a_group_on_one_measured_level_takes_its_lines(cluster_of, link):
    network = with_lines(link("network", 4, 1e9), *every(2, 22e-3, 80e-9), *every(4, 66e-3, 120e-9))
    mesh = Mesh.of(cluster_of(4, network), Plans.of([Plan(dp=4), Plan(dp=2, tp=2)]))
    found = wire(mesh, ("dp",), mesh.plans.dp)
    payload = np.array([1e6, 1e6])

    # alpha + beta * 1 MB: 66 + 120 ms and 22 + 80 ms; gathers half of it, scatters as much
    assert found.reduce_s(payload) == pytest.approx([186e-3, 102e-3], rel=1e-12)
    assert found.gather_s(payload) == pytest.approx([93e-3, 51e-3], rel=1e-12)
    assert found.scatter_s(payload) == pytest.approx([186e-3, 102e-3], rel=1e-12)
    assert found.exchange_s(payload) == pytest.approx([93e-3, 51e-3], rel=1e-12)


def test_several_messages_wait_several_times_and_send_the_same_bytes(cluster_of, link):
    network = with_lines(link("network", 2, 1e9), *every(2, 20e-3, 80e-9))
    mesh = Mesh.of(cluster_of(2, network), Plans.of(Plan(dp=2)))

    # 5 x 20 ms + 80 ms for 1 MB in all
    found = wire(mesh, ("dp",), mesh.plans.dp).reduce_s(np.array([1e6]), 5.0)
    assert found == pytest.approx([180e-3], rel=1e-12)


def test_a_group_over_two_levels_keeps_the_formula(cluster_of, link):
    inside, outside = link("node", 2, 100e9), link("network", 4, 10e9)
    plans = Plans.of(Plan(dp=4))
    plain = wire(Mesh.of(cluster_of(4, inside, outside), plans), ("dp",), plans.dp)
    lines = every(2, 1.0, 1.0)
    known = cluster_of(4, replace(inside, lines=lines), replace(outside, lines=lines))
    found = wire(Mesh.of(known, plans), ("dp",), plans.dp)

    assert found.reduce_s(np.array([1e6])) == plain.reduce_s(np.array([1e6]))


def test_lines_of_an_operation_come_in_rising_ranks(link):
    network = with_lines(link("network", 8, 1e9), *every(8, 3.0, 1.0), *every(2, 1.0, 1.0))

    assert [each.ranks for each in lines_of(network, Collective.ALL_GATHER)] == [2, 8]


def test_a_link_of_twice_the_speed_and_half_the_latency_takes_half_the_time(cluster_of, link):
    network = with_lines(link("network", 2, 1e9), *every(2, 22e-3, 80e-9))
    quicker = replace(network, latency_s=0.5, bytes_per_s=2e9)
    plans = Plans.of(Plan(dp=2))
    found = [
        wire(Mesh.of(cluster_of(2, each), plans), ("dp",), plans.dp).reduce_s(np.array([1e6]))[0]
        for each in (network, quicker)
    ]

    assert found == pytest.approx([102e-3, 51e-3], rel=1e-12)


def on_gloo(problem, network):
    """The problem on a measured network under what is known of PyTorch on gloo."""
    return replace(problem, cluster=replace(problem.cluster, links=(network,), backend="gloo"))


def test_sends_follow_their_line_where_it_was_measured(ideal, llama, link):
    network = with_lines(link("network", 2, 1e9), *every(2, 0.04, 1e-9))
    plan = Plan(pp=2, schedule=Schedule.ONE_F_ONE_B, micro_batches=4, micro_batch=1)
    problem = ideal(llama(), 2, batch=4)
    problem = replace(problem, cluster=replace(problem.cluster, links=(network,)))
    problem = replace(problem, assumptions=replace(problem.assumptions, transfer_efficiency=0.5))

    # 1024 tokens x 2048 x 2 bytes at 4 GB/s + 10 ms twice, at 2.5 GB/s + 16 ms three times; the catalog's
    # share does not apply
    once, both = 1024 * 2048 * 2 / 4e9 + 0.01, 1024 * 2048 * 2 / 2.5e9 + 0.016
    assert time_of(problem, Plans.of(plan)).transfer_s[0] == pytest.approx(2 * once + 3 * both, rel=1e-12)


@pytest.mark.parametrize(("backend", "ratio"), [("gloo", 1.5), ("nccl", 1.0)])
def test_exchanges_that_no_bench_timed_are_assumed(ideal, llama, link, backend, ratio):
    lines = (each for each in every(2, 0.04, 1e-9) if each.operation is not Collective.EXCHANGE)
    problem = on_gloo(ideal(llama(), 2, batch=4), with_lines(link("network", 2, 1e9), *lines))
    problem = replace(problem, cluster=replace(problem.cluster, backend=backend))
    plan = Plan(pp=2, schedule=Schedule.ONE_F_ONE_B, micro_batches=4)

    once = 1024 * 2048 * 2 / 4e9 + 0.01
    assert time_of(problem, Plans.of(plan)).transfer_s[0] == pytest.approx((2 + 3 * ratio) * once, rel=1e-12)


def test_gathers_on_gloo_show_in_full_with_one_for_the_root(ideal, llama, link):
    network = with_lines(link("network", 2, 1e9), *every(2, 0.1, 1e-9))
    problem = on_gloo(ideal(llama(), 2, batch=2), network)
    plan = Plan(dp=2, zero=3, shard=2, reshard=True)

    # 4 layers and the root: two gathers at half the line, a reduction at all of it; bf16, fp32 gradients
    count = 4 * (2048 * 128 * (16 * 2 + 4 * 2) + 3 * 2048 * 5632 + 2 * 2048) + 2 * 32000 * 2048 + 2048
    gather = 5 * 0.05 + 0.5e-9 * 2 * count
    scatter = 5 * 0.1 + 1e-9 * 4 * count
    found = time_of(problem, Plans.of(plan)).sharding_s[0]
    assert found == pytest.approx(2 * gather + scatter, rel=1e-12)


def test_gradients_on_gloo_leave_in_buckets_and_the_last_one_shows(ideal, llama, link):
    network = with_lines(link("network", 2, 1e9), *every(2, 1e-3, 1e-9), hidden_share=1.0)
    small = llama(layers=2, hidden=256, heads=2, kv_heads=2, width=512, vocab=1024)
    problem = on_gloo(ideal(small, 2, batch=2, sequence=100_000), network)

    # fp32 gradients of 2 (4 x 256² + 3 x 256 x 512 + 2 x 256) + 2 x 1024 x 256 + 256 parameters: 1 MiB ahead,
    # the rest in a second bucket; computation is far longer, so the first bucket hides and the second shows
    count = 2 * (4 * 256**2 + 3 * 256 * 512 + 2 * 256) + 2 * 1024 * 256 + 256
    last = 1e-3 + 1e-9 * (4 * count - 2**20)
    found = time_of(problem, Plans.of(Plan(dp=2))).gradient_sync_s[0]
    assert found == pytest.approx(last, rel=1e-12)
    assert gradient_sync_s.__doc__ is not None


def test_tensor_ranks_meet_for_the_ends_where_they_are_counted(ideal, llama, link):
    network = with_lines(link("network", 2, 1e9), *every(2, 1e-3, 1e-9))
    problem = ideal(llama(), 2)
    measured = replace(problem, cluster=replace(problem.cluster, links=(network,)))
    plans = Plans.of(Plan(tp=2))
    more = time_of(on_gloo(problem, network), plans).tensor_parallel_s
    less = time_of(measured, plans).tensor_parallel_s

    # two more all-reduces of 1024 tokens x 2048 x 2 bytes, two of three numbers a token together
    ends = 2 * (1e-3 + 1e-9 * 1024 * 2048 * 2) + 2 * 1e-3 + 1e-9 * 3 * 1024 * 4
    assert (more - less)[0] == pytest.approx(ends, rel=1e-9)


@pytest.mark.parametrize(("keeps_part", "pairs", "sums"), [(True, 2.0 + 0.5 / 1.5, 0), (False, 2.0, 1)])
def test_sequence_parallelism_gathers_again_only_where_a_part_was_kept(
    ideal, llama, link, keeps_part, pairs, sums
):
    network = with_lines(link("network", 2, 1e9), *every(2, 0.0, 1e-9))
    problem = ideal(llama(ends=False), 2)
    own = () if keeps_part else problem.engine.messages
    problem = replace(problem, cluster=replace(problem.cluster, links=(network,), backend="gloo"))
    problem = replace(problem, engine=replace(problem.engine, messages=own))

    # a pair is a gather at half the line and a scatter at all of it: 1.5 ns a byte; twice in 4 layers;
    # the fp32 gradients of 8 norms are summed once
    once, norms = 1.5e-9 * 1024 * 2048 * 2, 8 * 1e-9 * 2048 * 4
    found = time_of(problem, Plans.of(Plan(tp=2, sp=True))).tensor_parallel_s[0]
    assert found == pytest.approx(4 * 2 * once * pairs + sums * norms, rel=1e-9)
