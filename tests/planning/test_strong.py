from dataclasses import replace

import pytest

from escala import catalog
from escala.catalog.networks import network
from escala.model.plan import Plan
from escala.model.problem import Problem
from escala.model.workload import Workload
from escala.planning.resizing import case_of
from escala.planning.scaling import ScalePoint
from escala.planning.strong import Trend, laws, reading, stretched


def point(
    devices: int, step_s: float, energy_j: float | None = None, cost: float | None = None
) -> ScalePoint:
    return ScalePoint(
        devices=devices,
        plan=Plan(dp=devices),
        step_s=step_s,
        interval_ratio=1.1,
        mfu=0.4,
        efficiency=8.0 / (devices * step_s),
        energy_j=energy_j,
        cost_usd=cost,
        terms_s={"matmul_s": 8.0 / devices, "overhead_s": step_s - 8.0 / devices},
    )


def question(batch: int = 512) -> Problem:
    return Problem(
        workload=Workload(network=network("resnet-50"), sequence_tokens=1, global_batch=batch),
        cluster=catalog.cluster_for("a100-sxm-40gb", 1024),
        engine=catalog.engine("pytorch"),
        assumptions=catalog.assumptions(),
    )


def test_laws_by_hand():
    # 8 s on one device, 2 s on eight: S = 4, e = (1/4 - 1/8) / (7/8) = 1/7, at most 7, scaled 8 - 7/7 = 7
    _, eight = laws([point(1, 8.0), point(8, 2.0)])

    assert eight.speedup == 4.0
    assert eight.serial_share == pytest.approx(1 / 7, rel=1e-12)
    assert eight.amdahl == pytest.approx(7.0, rel=1e-12)
    assert eight.gustafson == pytest.approx(7.0, rel=1e-12)


def test_a_saved_second_costs_what_the_larger_size_needs_more():
    # 8 s to 5 s saves 3 s of a step for 30 J and 0.005 USD more: 10 J/s, 0.005 / 3 * 3600 = 6 USD/h
    _, two = laws([point(1, 8.0, 100.0, 0.010), point(2, 5.0, 130.0, 0.015)])

    assert two.j_per_saved_s == pytest.approx(10.0, rel=1e-12)
    assert two.usd_per_saved_hour == pytest.approx(6.0, rel=1e-9)


def test_nothing_is_saved_where_more_devices_are_slower():
    _, two = laws([point(1, 8.0, 100.0), point(2, 9.0, 300.0)])

    assert two.j_per_saved_s is None


@pytest.mark.parametrize(
    ("steps", "trend"),
    [((8.0, 4.4, 2.6), Trend.FLAT), ((8.0, 4.2, 2.9), Trend.RISING), ((8.0, 5.0, 2.55), Trend.FALLING)],
)
def test_a_rising_share_is_overhead_and_a_flat_one_serial(steps, trend):
    # f = 0.1: 0.8 + 7.2 / p = 4.4, 2.6
    points = [point(devices, step_s) for devices, step_s in zip((1, 2, 4), steps, strict=True)]

    assert (
        reading(points, lambda each: case_of(question(4), each.plan, each.devices, is_weak=False)).trend
        == trend
    )


def test_the_term_that_grew_most_bends_the_curve():
    points = [point(1, 8.0), point(2, 4.0), point(4, 4.0)]

    stop = reading(points, lambda each: case_of(question(4), each.plan, each.devices, is_weak=False)).stop

    # 8 / (4 * 4) = 0.5 kept; 2 of 4 s are overhead there
    assert stop is not None
    assert (stop.devices, stop.efficiency, stop.term, stop.term_share) == (4, 0.5, "overhead_s", 0.5)


def test_a_stretched_layout_ends_where_too_little_is_kept():
    found = stretched(question(), Plan(dp=8, micro_batch=64), keep=0.9)

    assert [each.devices for each in found.points] == [8 * 2**i for i in range(len(found.points))]
    assert found.stop is not None
    assert found.stop.devices == next(each.devices for each in found.points if each.efficiency < 0.9)
    assert all(each.efficiency >= 0.9 for each in found.points[:-2])


def test_a_stretched_layout_ends_with_the_batch():
    # images have no other degree than dp: 16 of them give 16 replicas
    found = stretched(question(16), Plan(dp=8, micro_batch=2), keep=0.01)

    assert found.points[-1].devices == 16
    assert "no degree can be doubled" in found.ends


def test_where_the_batch_ends_another_degree_is_doubled():
    problem = replace(
        question(),
        workload=Workload(network=network("llama-3.2-1b"), sequence_tokens=4096, global_batch=8),
    )

    found = stretched(problem, Plan(dp=8))

    _, two, *_ = (each.plan for each in found.points)
    assert two.dp == 8
    assert two.tp * two.pp * two.cp == 2


def test_twice_the_bandwidth_keeps_more_where_messages_bend_the_curve():
    problem = question(1024)
    slow = replace(
        problem,
        cluster=replace(
            problem.cluster,
            links=tuple(replace(each, bytes_per_s=each.bytes_per_s / 50) for each in problem.cluster.links),
        ),
    )

    stop = stretched(slow, Plan(dp=8, micro_batch=128)).stop

    assert stop is not None
    assert stop.term == "gradient_sync_s"
    assert stop.link_efficiency is not None
    assert stop.link_efficiency > stop.efficiency


def test_least_energy_and_money_have_their_devices():
    points = [point(1, 8.0, 100.0, 3.0), point(2, 4.1, 90.0, 3.1), point(4, 2.5, 120.0, 3.2)]

    found = reading(points, lambda each: case_of(question(4), each.plan, each.devices, is_weak=False))

    assert (found.least_energy, found.least_cost) == (2, 1)
