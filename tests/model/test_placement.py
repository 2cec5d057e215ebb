from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escala.model.placement import Mesh, members, neighbour_level, neighbour_wire, strides, wire
from escala.model.plan import AXES, PLACEMENTS, Plan, Plans

DEGREES = {"tp": 2, "cp": 3, "dp": 5, "pp": 7}


def one(**degrees) -> Plans:
    return Plans.of(Plan(**degrees))


def neighbours(order: str, axis: str) -> int:
    """Devices between two neighbours of an axis, from a numbered mesh of 2 x 3 x 5 x 7 devices."""
    names = order.split("-")
    shape = [DEGREES[name] for name in reversed(names)]
    mesh = np.arange(2 * 3 * 5 * 7).reshape(shape)
    return int(np.diff(mesh, axis=len(names) - 1 - names.index(axis)).flat[0])


def test_strides_of_the_usual_order():
    reach = strides(one(tp=8, cp=2, dp=4, pp=16))

    # tp innermost; cp skips 8 devices, dp 8 * 2, pp 8 * 2 * 4
    assert {axis: int(reach[axis][0]) for axis in AXES} == {"tp": 1, "cp": 8, "dp": 16, "pp": 64}


@pytest.mark.parametrize("order", PLACEMENTS)
def test_strides_are_those_of_a_numbered_mesh(order):
    reach = strides(one(**DEGREES, placement=order))

    assert {axis: int(reach[axis][0]) for axis in AXES} == {axis: neighbours(order, axis) for axis in AXES}


def test_there_are_24_orders_and_the_first_has_tp_inside_and_pp_outside():
    assert len(PLACEMENTS) == len(set(PLACEMENTS)) == 24
    assert set(PLACEMENTS) == {"-".join(order) for order in permutations(AXES)}
    assert PLACEMENTS[0] == "tp-cp-dp-pp"


@given(
    degrees=st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=4, max_size=4),
    order=st.sampled_from(PLACEMENTS),
)
def test_the_outermost_stride_times_its_degree_is_all_devices(degrees, order):
    plan = Plan(**dict(zip(AXES, degrees, strict=True)), placement=order)
    reach = strides(Plans.of(plan))

    spans = {axis: int(reach[axis][0]) * getattr(plan, axis) for axis in AXES}

    assert max(spans.values()) == plan.devices
    assert spans[order.split("-")[-1]] == plan.devices


@pytest.mark.parametrize(
    ("axes", "inside"),
    [(("tp",), 4), (("cp",), 2), (("tp", "cp"), 8), (("dp",), 1), (("cp", "dp"), 2), (("pp",), 1)],
)
def test_members_inside_a_node_of_eight(axes, inside, cluster_of):
    # tp 4 neighbours, cp 2 at stride 4 fill the node of 8; dp has stride 8, pp stride 16
    assert members(Mesh.of(cluster_of(8), one(tp=4, cp=2, dp=2, pp=2)), axes, 8)[0] == inside


def test_with_pp_innermost_tp_leaves_the_node(cluster_of):
    # pp 8 fills the node; tp has stride 8
    assert members(Mesh.of(cluster_of(8), one(tp=4, pp=8, placement="pp-tp-cp-dp")), ("tp",), 8)[0] == 1


def test_data_parallel_ranks_share_the_node_that_tp_leaves_free(cluster_of):
    # stride of dp = tp = 2: 8 / 2 = 4 ranks of 16
    assert members(Mesh.of(cluster_of(8), one(tp=2, dp=16)), ("dp",), 8)[0] == 4


def test_wire_inside_one_node_has_the_speed_of_one_port(cluster_of):
    found = wire(Mesh.of(cluster_of(16), one(tp=8, dp=2)), ("tp",), np.array([8]))

    assert found.gather_bytes_per_s[0] == pytest.approx(100e9, rel=1e-12)
    assert found.inside[0] == 8


def test_wire_between_nodes_adds_the_ports_of_the_ranks_inside(cluster_of):
    # 8 ranks of each node share the way out: 8 * 10 GB/s, slower than the 100 GB/s inside
    found = wire(Mesh.of(cluster_of(32), one(dp=32)), ("dp",), np.array([32]))

    assert found.gather_bytes_per_s[0] == pytest.approx(80e9, rel=1e-12)


def test_wire_of_a_group_with_one_rank_a_node_has_one_port(cluster_of):
    found = wire(Mesh.of(cluster_of(32), one(tp=8, dp=4)), ("dp",), np.array([4]))

    assert found.gather_bytes_per_s[0] == pytest.approx(10e9, rel=1e-12)
    assert found.inside[0] == 1


def test_three_levels_take_the_slowest_that_is_crossed(cluster_of, link):
    levels = (link("node", 8, 100e9), link("rack", 32, 20e9), link("spine", 128, 1e9))
    cluster = cluster_of(128, *levels)

    # tp stays in the node; dp 4 at stride 8 fills the rack with one port a node; pp 4 crosses the spine
    plan = one(tp=8, dp=4, pp=4)

    assert wire(Mesh.of(cluster, plan), ("tp",), np.array([8])).gather_bytes_per_s[0] == pytest.approx(
        100e9, rel=1e-12
    )
    assert wire(Mesh.of(cluster, plan), ("dp",), np.array([4])).gather_bytes_per_s[0] == pytest.approx(
        20e9, rel=1e-12
    )
    assert wire(Mesh.of(cluster, plan), ("pp",), np.array([4])).gather_bytes_per_s[0] == pytest.approx(
        1e9, rel=1e-12
    )


def test_three_levels_with_one_group_over_all(cluster_of, link):
    levels = (link("node", 8, 100e9), link("rack", 32, 20e9), link("spine", 128, 1e9))

    # node 100 GB/s; rack 8 ports * 20 = 160; spine 32 ports * 1 = 32: the spine is the slowest
    found = wire(Mesh.of(cluster_of(128, *levels), one(dp=128)), ("dp",), np.array([128]))

    assert found.gather_bytes_per_s[0] == pytest.approx(32e9, rel=1e-12)


def test_oversubscription_divides_the_speed(cluster_of, link):
    levels = (link("node", 8, 100e9), link("network", 32, 10e9, 4.0))

    found = wire(Mesh.of(cluster_of(32, *levels), one(tp=8, dp=4)), ("dp",), np.array([4]))

    assert found.gather_bytes_per_s[0] == pytest.approx(10e9 / 4, rel=1e-12)


def test_latency_grows_with_the_logarithm_of_the_domains_joined(cluster_of, link):
    levels = (replace(link("node", 8, 100e9), latency_s=1e-6), replace(link("net", 64, 10e9), latency_s=1e-5))

    # 8 ranks in a node: 3 doublings of 1 us; 8 nodes: 3 doublings of 10 us
    found = wire(Mesh.of(cluster_of(64, *levels), one(dp=64)), ("dp",), np.array([64]))

    assert found.latency_s[0] == pytest.approx(3 * 1e-6 + 3 * 1e-5, rel=1e-12)


def test_neighbouring_stages_inside_a_node_use_its_link(cluster_of):
    mesh = Mesh.of(cluster_of(8), one(tp=2, pp=4))
    speed, _ = neighbour_wire(mesh, neighbour_level(mesh))

    assert speed[0] == pytest.approx(100e9, rel=1e-12)


def test_neighbouring_stages_in_two_nodes_use_the_network(cluster_of):
    mesh = Mesh.of(cluster_of(16), one(tp=8, pp=2))
    speed, _ = neighbour_wire(mesh, neighbour_level(mesh))

    assert speed[0] == pytest.approx(10e9, rel=1e-12)
