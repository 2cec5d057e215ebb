from dataclasses import replace

import pytest

from escala import catalog
from escala.catalog.networks import network
from escala.model.plan import Plan
from escala.model.problem import Problem
from escala.model.workload import Workload
from escala.planning.scaling import ScalePoint, counts, curve, pareto

NAME = "llama-3.2-1b"


def question(devices: int = 64, *, name: str = NAME, batch: int = 64, gpu: str = "h100-sxm") -> Problem:
    return Problem(
        workload=Workload(network=network(name), sequence_tokens=4096, global_batch=batch),
        cluster=catalog.cluster_for(gpu, devices),
        engine=catalog.engine("pytorch"),
        assumptions=catalog.assumptions(),
    )


def point(
    devices: int, step_s: float, energy_j: float | None = None, cost_usd: float | None = None
) -> ScalePoint:
    return ScalePoint(
        devices=devices,
        plan=Plan(dp=devices),
        step_s=step_s,
        interval_ratio=1.14,
        mfu=0.4,
        efficiency=1.0,
        is_risky=False,
        energy_j=energy_j,
        cost_usd=cost_usd,
    )


@pytest.fixture(scope="module")
def scaled():
    return curve(question())


def test_counts_double_inside_the_node_and_then_nodes():
    assert list(counts(question(), 1, 64)) == [1, 2, 4, 8, 16, 32, 64]
    assert list(counts(question(), 16, 40)) == [16, 32]


def test_counts_of_a_node_that_is_no_power_of_two_pass_through_it():
    problem = question()
    group = replace(problem.cluster.groups[0], devices_per_node=6)

    six = replace(problem, cluster=replace(problem.cluster, groups=(group,)))

    assert list(counts(six, 1, 24)) == [1, 2, 4, 6, 12, 24]


def test_the_curve_rises_in_devices(scaled):
    devices = [each.devices for each in scaled.points]

    assert devices == sorted(set(devices))
    assert devices[-1] == 64


def test_efficiency_is_against_the_first_point(scaled):
    first = scaled.points[0]

    assert first.efficiency == 1.0
    for each in scaled.points:
        ideal_s = first.step_s * first.devices / each.devices
        assert each.efficiency == pytest.approx(ideal_s / each.step_s, rel=1e-12)


def test_the_fewest_devices_are_the_first_that_fit(scaled):
    assert scaled.fewest == scaled.points[0].devices


def test_every_point_has_a_plan_for_its_devices(scaled):
    for each in scaled.points:
        assert each.plan.devices == each.devices
        assert not each.is_risky


def test_the_last_count_that_pays_keeps_four_fifths_of_each_doubling(scaled):
    for one, two in zip(scaled.points, scaled.points[1:], strict=False):
        if two.devices <= scaled.worth:
            assert one.step_s / two.step_s >= 0.8 * two.devices / one.devices


def test_a_large_network_does_not_fit_on_few_devices():
    # 70.6 B parameters * 16 B = 1,052 GiB of states: more than 8 devices of 79 GiB
    few = curve(question(name="llama-3.1-70b", batch=64), most=8)

    assert (few.points, few.fewest, few.worth) == ((), None, None)


def test_one_sequence_cannot_be_spread_without_splitting_the_network():
    points = curve(question(8, batch=1)).points

    assert all(each.plan.dp == 1 for each in points)


def test_pareto_leaves_what_nothing_beats():
    quick, cheap, worse = point(64, 1.0, 100.0, 10.0), point(8, 4.0, 60.0, 5.0), point(32, 4.5, 70.0, 6.0)

    assert pareto((quick, cheap, worse)) == (quick, cheap)


def test_unknown_money_does_not_decide():
    quick, slow = point(64, 1.0, 100.0), point(8, 4.0, 120.0)

    assert pareto((quick, slow)) == (quick,)


def test_equal_points_both_stay():
    one, two = point(8, 1.0, 5.0), point(16, 1.0, 5.0)

    assert pareto((one, two)) == (one, two)
