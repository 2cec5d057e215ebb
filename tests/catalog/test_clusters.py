import pytest

from escala.catalog.accelerators import accelerators
from escala.catalog.clusters import cluster, cluster_for, clusters
from escala.errors import InvalidInput


def test_there_are_at_least_20_clusters():
    assert len(clusters()) >= 20


@pytest.mark.parametrize("name", clusters())
def test_link_levels_grow_and_the_last_joins_all(name: str):
    found = cluster(name)
    joined = [link.domain_devices for link in found.links]

    assert joined == sorted(set(joined))
    assert joined[-1] == found.devices
    assert found.source


def test_oversubscription_between_pods_of_meta():
    links = cluster("meta-24k-roce").links

    assert [(link.domain_devices, link.oversubscription) for link in links] == [(8, 1), (3072, 1), (24576, 7)]


def test_a_part_of_a_cluster_crosses_only_the_levels_it_needs():
    part = cluster("Meta RoCE", 2048)

    assert part.devices == 2048
    assert [link.domain_devices for link in part.crossed_links] == [8, 3072]
    assert len(cluster("Meta RoCE").crossed_links) == 3
    assert part.name == "meta-24k-roce, 2048 of 24576 devices"


def test_asking_for_more_than_there_is_is_refused():
    with pytest.raises(InvalidInput, match="has 256 devices and 512 were asked for"):
        cluster("dgx-h100-superpod-su", 512)


def test_an_unknown_cluster_suggests_near_ones():
    with pytest.raises(InvalidInput, match=r"unknown cluster 'leonrdo': did you mean leonardo"):
        cluster("leonrdo")


def test_place_and_operator_give_carbon_and_pue():
    found = cluster("marenostrum-5").site

    assert found.country == "ES"
    assert found.pue == 1.08
    # Spain 2023: 174.1 g/kWh
    assert found.carbon_kg_per_j == pytest.approx(0.1741 / 3.6e6, rel=1e-12)


@pytest.mark.parametrize("name", accelerators())
@pytest.mark.parametrize("gpus", [1, 7, 64, 100_000])
def test_every_accelerator_makes_a_cluster_of_any_size(name: str, gpus: int):
    found = cluster_for(name, gpus)
    joined = [link.domain_devices for link in found.links]

    assert found.devices == gpus <= joined[-1]
    assert joined == sorted(set(joined))


def test_eight_h100_are_one_node_with_one_level():
    found = cluster_for("h100", 8)

    assert (found.nodes, [link.name for link in found.crossed_links]) == (1, ["nvlink4"])
    assert [link.name for link in found.links] == ["nvlink4", "ib-ndr"]
    assert found.name == "8 x h100-sxm, 1 node"
    assert found.host.memory_bytes == pytest.approx(2e12, rel=1e-12)


def test_a_last_node_that_is_not_full_is_named():
    found = cluster_for("h100", 20)

    assert found.nodes == 3
    assert found.name == "20 x h100-sxm, 2 nodes of 8 and one of 4"


def test_another_node_size_changes_the_fast_domain_and_forgets_the_host():
    found = cluster_for("a100", 64, devices_per_node=4)

    assert [link.domain_devices for link in found.links[:-1]] == [4]
    assert found.host.memory_bytes is None


def test_a_rack_wide_domain_survives_another_tray_size():
    assert cluster_for("gb200", 288).links[0].domain_devices == 72
    assert cluster_for("gb200", 288, devices_per_node=72).links[0].domain_devices == 72


def test_the_network_may_be_given():
    outer = cluster_for("h100", 64, network="100 Gb/s").links[-1]

    assert outer.bytes_per_s == pytest.approx(12.5e9, rel=1e-12)


@pytest.mark.parametrize("gpus", [0, -8, 10**9, 1.5, True, "8", None])
def test_counts_that_make_no_sense_are_one_clear_line(gpus: object):
    with pytest.raises(InvalidInput, match="give a whole number from 1 to 1,000,000") as caught:
        cluster_for("h100", gpus)

    assert "\n" not in str(caught.value)


def test_the_node_ratio_of_racks_is_theirs():
    assert cluster_for("gb300", 72).site.node_power_ratio == 1.34
    assert cluster_for("rtx-4090", 8).site.node_power_ratio == 1.5


@pytest.mark.parametrize(
    ("name", "gpus", "shape", "wraps"),
    [
        ("tpu-v5e-torus", 256, (16, 16), (True, True)),
        ("tpu-v5e-torus", 128, (8, 16), (False, True)),
        ("tpu-v5p-torus", 128, (4, 4, 8), (True, True, True)),
        ("tpu-v5p-torus", 8, (2, 2, 2), (False, False, False)),
    ],
)
def test_part_of_a_torus_is_the_block_that_a_cloud_rents(name, gpus, shape, wraps):
    found = cluster(name, gpus).links[0]

    assert (found.torus.shape, found.torus.wraps, found.domain_devices) == (shape, wraps, gpus)


def test_devices_that_are_no_block_of_a_torus_are_refused():
    with pytest.raises(InvalidInput, match="17 devices are no block of a torus of 16 x 16"):
        cluster("tpu-v5e-torus", 17)
