from dataclasses import replace

import numpy as np
import pytest

from escala.catalog.clusters import cluster
from escala.model.cluster import Torus
from escala.model.placement import Mesh, neighbour_level, neighbour_wire, wire
from escala.model.plan import Plan, Plans


@pytest.fixture
def torus_of(cluster_of, link):
    """Devices with cables of 10 GB/s in each direction, on a grid that wraps by default."""

    def make(*shape: int, wraps: bool = True):
        devices = int(np.prod(shape))
        grid = Torus(shape=shape, wraps=(wraps,) * len(shape))
        cables = replace(link("torus", devices, 10e9 * 2 * len(shape)), latency_s=1e-6, torus=grid)
        return cluster_of(devices, cables)

    return make


def found(where, axis: str, **degrees):
    plans = Plans.of(Plan(**degrees))
    return wire(Mesh.of(where, plans), (axis,), getattr(plans, axis))


def test_one_side_is_a_ring_in_both_directions(torus_of):
    own = found(torus_of(8), "dp", dp=8)

    # two cables of 10 GB/s bring data in; the farthest rank is 4 hops away
    assert own.gather_bytes_per_s[0] == 20e9
    assert own.latency_s[0] == 4e-6
    # 7/8 of 8 GB at 20 GB/s
    assert own.gather_s(np.array([8e9]))[0] == pytest.approx(7 / 8 * 8 / 20 + 4e-6, rel=1e-12)


def test_a_ring_of_one_side_takes_as_long_as_a_switch_with_its_two_cables(torus_of, cluster_of, link):
    ring, switch = torus_of(8), cluster_of(8, link("switch", 8, 20e9))
    payload = np.array([1e9])

    one, other = found(ring, "dp", dp=8), found(switch, "dp", dp=8)

    assert one.gather_s(payload)[0] - one.latency_s[0] == pytest.approx(other.gather_s(payload)[0], rel=1e-12)


def test_without_wrapping_the_last_rank_has_one_cable(torus_of):
    own = found(torus_of(8, wraps=False), "dp", dp=8)

    assert own.gather_bytes_per_s[0] == 10e9
    assert own.latency_s[0] == 7e-6


def test_all_sides_work_at_once(torus_of):
    # 3 sides x 2 cables x 10 GB/s
    assert found(torus_of(4, 4, 4), "dp", dp=64).gather_bytes_per_s[0] == 60e9


@pytest.mark.parametrize("k", [4, 8])
def test_all_to_all_is_limited_by_the_bisection(k: int, torus_of):
    own = found(torus_of(k, k, k), "dp", dp=k**3)

    # half of all data leaves each half: k^3 x 1 GB / 4 over 2 k^2 cables of 10 GB/s
    bisection_s = k**3 / 4 / (2 * k**2 * 10)
    assert own.exchange_s(np.array([1e9]))[0] == pytest.approx(bisection_s + 3 * k / 2 * 1e-6, rel=1e-12)


def test_all_to_all_of_a_ring_costs_a_quarter_of_an_all_gather(torus_of):
    own = found(torus_of(16), "dp", dp=16)
    whole = 1e12
    gather_s = own.gather_s(np.array([whole]))[0]

    # of the same array, each rank holds whole / 16 (scaling book, part 3); 15/16 of the gather is sent
    assert own.exchange_s(np.array([whole / 16]))[0] == pytest.approx(gather_s * 16 / 15 / 4, rel=1e-4)


def test_ranks_in_the_middle_of_a_side_are_a_line(torus_of):
    # 4 of 16 along the first side: one cable
    assert found(torus_of(16, 16), "tp", tp=4, dp=64).gather_bytes_per_s[0] == 10e9


def test_groups_side_by_side_share_the_cables(torus_of):
    # dp: 4 ranks 4 apart on the first side (a quarter of 2 cables), 16 alone on the second (2 cables)
    assert found(torus_of(16, 16), "dp", tp=4, dp=64).gather_bytes_per_s[0] == (0.5 + 2) * 10e9


def test_the_order_of_axes_decides_which_side_they_get(torus_of):
    inside = found(torus_of(4, 16), "tp", tp=4, dp=16)
    outside = found(torus_of(4, 16), "tp", tp=4, dp=16, placement="dp-tp-cp-pp")

    # inside, the whole first side: a ring; outside, 4 ranks 4 apart on the second: four groups on its cables
    assert inside.gather_bytes_per_s[0] == 20e9
    assert outside.gather_bytes_per_s[0] == 2 * 10e9 / 4


def test_stages_side_by_side_share_a_cable(torus_of):
    mesh = Mesh.of(torus_of(16), Plans.of(Plan(dp=4, pp=4)))
    speed, _ = neighbour_wire(mesh, neighbour_level(mesh))

    # stages are 4 apart: four pipelines on each cable
    assert speed[0] == 2.5e9


def test_a_pod_has_the_all_reduce_and_bisection_bandwidth_that_its_maker_prints():
    # Cloud TPU documentation, 2026: v5e 51.2 and 1.6 TB/s, v6e 102.4 and 3.2 TB/s
    for name, all_reduce, bisection in (
        ("tpu-v5e-torus", 51.2e12, 1.6e12),
        ("tpu-v6e-torus", 102.4e12, 3.2e12),
    ):
        pod = cluster(name)
        cables = replace(pod.links[0], gather_efficiency=1.0, reduce_efficiency=1.0, latency_s=0.0)
        own = found(replace(pod, links=(cables,)), "dp", dp=256)

        assert 256 * own.reduce_bytes_per_s[0] == all_reduce
        assert 256 / 4 * 1e9 / own.exchange_s(np.array([1e9]))[0] == pytest.approx(bisection, rel=1e-12)
