import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escala.catalog import cluster_for
from escala.catalog.clusters import MOST_DEVICES
from escala.errors import InvalidInput
from escala.formats.cluster_toml import _LINK_KEYS, _SITE_KEYS, _TOP_KEYS, cluster_from_keys, read_cluster

FULL = """
schema = "escala/cluster@1"
name = "ours"
source = "inventory"
accelerator = "h100-sxm"
devices = 128
devices_per_node = 8

[[links]]
link = "nvlink4"
domain = 8

[[links]]
name = "rail"
bandwidth = "400 Gb/s"
latency = "20 us"
domain = 64
gather_efficiency = 0.7
reduce_efficiency = 0.9

[[links]]
bandwidth = "100 Gb/s"
domain = "all"
oversubscription = 4.0
in_network_reduction = true

[host]
memory = "2 TiB"
pcie = "pcie5"
cores = 112
memory_rate = "600 GB/s"
nvme_read = "25 GB/s"
nvme_write = "10 GB/s"

[storage]
read = "80 GB/s"
write = "40 GB/s"

[site]
country = "ES"
pue = 1.2
node_power_ratio = 1.45
power_limit = "1.2 MW"
rack_power_limit = "40 kW"
devices_per_rack = 32
price_usd_per_device_hour = 2.5
price_date = 2026-11-01
price_source = "our contract"
"""


def base(**more: object) -> dict[str, object]:
    return {"accelerator": "h100", "devices": 64, **more}


def refusal(keys: dict[str, Any]) -> str:
    with pytest.raises(InvalidInput) as caught:
        cluster_from_keys(keys, "mine.toml")
    message = str(caught.value)
    assert message.startswith("mine.toml: ")
    assert "\n" not in message
    return message


def test_a_full_file_is_read(tmp_path: Path):
    file = tmp_path / "cluster.toml"
    file.write_text(FULL)

    found = read_cluster(file)

    nvlink, rail, spine = found.links
    assert (found.name, found.source, found.devices, found.nodes) == ("ours", "inventory", 128, 16)
    assert [link.domain_devices for link in found.links] == [8, 64, MOST_DEVICES]
    assert (nvlink.bytes_per_s, nvlink.name) == (450e9, "nvlink4")
    assert (rail.name, rail.bytes_per_s, rail.latency_s) == ("rail", 50e9, pytest.approx(20e-6))
    assert (rail.gather_efficiency, rail.reduce_efficiency) == (0.7, 0.9)
    assert (spine.oversubscription, spine.reduces_in_network) == (4.0, True)
    assert (found.host.memory_bytes, found.host.pcie_bytes_per_s, found.host.cores) == (
        2 * 2.0**40,
        63e9,
        112,
    )
    assert found.host.memory_bytes_per_s == 600e9
    assert (found.host.nvme_read_bytes_per_s, found.host.nvme_write_bytes_per_s) == (25e9, 10e9)
    assert (found.storage.read_bytes_per_s, found.storage.write_bytes_per_s) == (80e9, 40e9)
    assert (found.site.pue, found.site.node_power_ratio, found.site.country) == (1.2, 1.45, "ES")
    assert (found.site.power_limit_w, found.site.rack_power_limit_w, found.site.devices_per_rack) == (
        1.2e6,
        4e4,
        32,
    )
    assert (found.site.price_usd_per_device_hour, found.site.price_date) == (2.5, "2026-11-01")
    assert found.site.price_source == "our contract"


@pytest.mark.parametrize(
    ("ending", "text"), [(".json", json.dumps(base())), (".yaml", "accelerator: h100\ndevices: 64\n")]
)
def test_yaml_and_json_hold_the_same_keys(tmp_path: Path, ending: str, text: str):
    file = tmp_path / f"cluster{ending}"
    file.write_text(text)

    assert read_cluster(file).links == cluster_for("h100", 64).links


def test_without_links_the_usual_ones_are_taken():
    assert cluster_from_keys(base()).links == cluster_for("h100", 64).links


def test_groups_keep_their_types_and_zones():
    groups = [{"accelerator": "h100", "devices": 32}, {"accelerator": "a100", "devices": 16, "zone": "old"}]

    found = cluster_from_keys({"groups": groups})

    assert [(group.accelerator.name, group.devices, group.zone) for group in found.groups] == [
        ("h100-sxm", 32, "main"),
        ("a100-sxm-80gb", 16, "old"),
    ]
    assert found.links[-1].domain_devices >= 48


def test_an_accelerator_may_be_changed():
    own = {"base": "h100", "name": "ours", "power": "500 W", "memory": "90 GiB", "gemm_efficiency": 0.6}

    device = cluster_from_keys(base(accelerator=own)).accelerator

    assert (device.name, device.power_w, device.memory_bytes, device.gemm_efficiency) == (
        "ours",
        500.0,
        90 * 2.0**30,
        0.6,
    )


def test_carbon_may_be_given_for_a_place_the_catalog_lacks():
    found = cluster_from_keys(base(site={"country": "Atlantis", "carbon": "36 gCO2e/kWh"})).site

    assert found.carbon_kg_per_j == pytest.approx(1e-8, rel=1e-12)
    assert found.country == "Atlantis"


def test_an_unknown_key_is_refused_with_a_suggestion():
    assert "did you mean devices" in refusal(base(device=8))
    assert "did you mean bandwidth" in refusal(base(links=[{"bandwith": "400 Gb/s", "domain": "all"}]))
    assert "did you mean memory" in refusal(base(host={"memry": "2 TB"}))


def test_an_unknown_accelerator_is_refused_with_a_suggestion():
    assert "did you mean h100-sxm" in refusal(base(accelerator="h100-smx"))


@pytest.mark.parametrize("bandwidth", ["400 GiB", "400", 400, "fast", "", "400 Gb/s/s", None, ["400 Gb/s"]])
def test_wrong_units_are_refused(bandwidth: object):
    message = refusal(base(links=[{"bandwidth": bandwidth, "domain": "all"}]))

    assert "[[links]] 1: bandwidth" in message
    assert "400 Gb/s" in message


@pytest.mark.parametrize("bandwidth", ["0 Gb/s", "-400 Gb/s", "1e999 Gb/s", "nan Gb/s", "inf Gb/s"])
def test_bandwidths_that_are_no_positive_number_are_refused(bandwidth: str):
    assert "above zero" in refusal(base(links=[{"bandwidth": bandwidth, "domain": "all"}]))


@pytest.mark.parametrize("ratio", [float("nan"), float("inf"), -1.0, 0.5, "1.5", True, 10**400])
def test_ratios_out_of_range_are_refused(ratio: object):
    assert "give a number from 1 to 5" in refusal(base(site={"pue": ratio}))


@pytest.mark.parametrize("devices", [0, -8, 1.5, "8", True, 10**9, float("nan")])
def test_counts_out_of_range_are_refused(devices: object):
    assert "whole number from 1 to 1,000,000" in refusal(base(devices=devices))


def test_an_empty_file_is_refused(tmp_path: Path):
    file = tmp_path / "cluster.toml"
    file.write_text("")

    with pytest.raises(InvalidInput, match="lacks accelerator"):
        read_cluster(file)


@pytest.mark.parametrize("links", [[], {}, "nvlink4", [8]])
def test_links_that_are_no_list_of_tables_are_refused(links: object):
    assert "links" in refusal(base(links=links))


def test_domains_have_to_grow():
    links = [
        {"link": "nvlink4", "domain": 8},
        {"link": "ib-ndr", "domain": 8},
        {"link": "ib-ndr", "domain": "all"},
    ]

    assert "domain 8 is not above the 8 of the link before" in refusal(base(links=links))


def test_the_last_link_has_to_reach_all():
    assert "leaves some of the 64 devices unreached" in refusal(
        base(links=[{"link": "nvlink4", "domain": 8}])
    )


def test_a_link_needs_a_name_or_a_bandwidth():
    assert "needs link" in refusal(base(links=[{"domain": "all"}]))


def torus(**keys: object) -> dict[str, object]:
    return {"accelerator": "tpu-v5e", "devices": 32, "links": [{"link": "ici-torus-v5e", **keys}]}


def test_a_torus_joins_as_many_devices_as_its_sides_have():
    found = cluster_from_keys(torus(torus=[4, 8], wraps=[False, True])).links[0]

    assert (found.domain_devices, found.torus.shape, found.torus.wraps) == (32, (4, 8), (False, True))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"torus": [4, 0]}, "give the number of devices along each side"),
        ({"torus": "4x8"}, "give the number of devices along each side"),
        ({"torus": [4, 8], "wraps": [True]}, "one of them for each side"),
        ({"torus": [4, 8], "domain": 16}, "the torus has 32 devices"),
    ],
)
def test_a_torus_that_is_none_is_refused(keys: dict[str, object], message: str):
    with pytest.raises(InvalidInput, match=message):
        cluster_from_keys(torus(**keys))


def test_only_the_first_link_is_a_torus():
    two = {
        "accelerator": "tpu-v5e",
        "devices": 64,
        "links": [{"link": "ici-v5e", "domain": 4}, {"torus": [4, 4]}],
    }
    with pytest.raises(InvalidInput, match="only the first link can be a torus"):
        cluster_from_keys(two)


def sited(**sites: object) -> dict[str, object]:
    given = {"count": 2, "bandwidth": "8 Gb/s", "latency": "30 ms", **sites}
    keys = {name: value for name, value in given.items() if value is not None}
    return {"accelerator": "h100-sxm", "devices": 64, "devices_per_node": 8, "sites": keys}


def test_the_devices_of_a_site_share_what_it_sends():
    found = cluster_from_keys(sited()).links

    # 8 Gb/s = 1 GB/s among 32 devices
    assert [link.domain_devices for link in found] == [8, 32, MOST_DEVICES]
    assert (found[-1].bytes_per_s, found[-1].latency_s, found[-1].joins_sites) == (1e9 / 32, 0.03, True)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"count": 1}, "at least 2 equal sites"),
        ({"count": 3}, "does not deal whole nodes"),
        ({"count": 16}, "does not deal whole nodes"),
        ({"latency": None}, "lacks latency"),
        ({"bandwidth": "fast"}, "give a quantity above zero"),
    ],
)
def test_sites_that_are_none_are_refused(keys: dict[str, object], message: str):
    with pytest.raises(InvalidInput, match=message):
        cluster_from_keys(sited(**keys))


def test_a_price_without_a_day_is_refused():
    assert "has no price_date" in refusal(base(site={"price_usd_per_device_hour": 2.0}))


def test_a_day_without_a_price_is_refused():
    assert "without price_usd_per_device_hour" in refusal(base(site={"price_date": "2026-01-01"}))


@pytest.mark.parametrize("day", ["yesterday", "2026-13-01", 20260101.5, "", None])
def test_a_day_that_is_none_is_refused(day: object):
    site = {"price_usd_per_device_hour": 2.0, "price_date": day}

    assert "write a day such as" in refusal(base(site=site))


def test_devices_and_groups_together_are_refused():
    assert "keep one" in refusal(base(groups=[{"accelerator": "h100", "devices": 8}]))


def test_another_schema_is_refused():
    assert "this escala reads 'escala/cluster@1'" in refusal(base(schema="escala/cluster@9"))


def test_a_missing_file_is_refused(tmp_path: Path):
    with pytest.raises(InvalidInput, match="does not exist"):
        read_cluster(tmp_path / "none.toml")


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["h100", "nvlink4", "all", "400 Gb/s", "2 TiB", "ES", "2026-01-01", "1 MW"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(st.text(max_size=8), st.sampled_from((*_LINK_KEYS, *_SITE_KEYS))), inner, max_size=4
        ),
    ),
    max_leaves=12,
)
TABLES = st.dictionaries(st.one_of(st.text(max_size=8), st.sampled_from(_TOP_KEYS)), VALUES, max_size=8)
NEARLY_RIGHT = st.fixed_dictionaries(
    {"accelerator": st.sampled_from(["h100", "gb200", "tpu-v5p"]), "devices": st.integers(1, 300)},
    optional={
        "links": st.lists(st.dictionaries(st.sampled_from(_LINK_KEYS), SCALARS, max_size=5), max_size=3),
        "site": st.dictionaries(st.sampled_from(_SITE_KEYS), SCALARS, max_size=5),
        "host": st.dictionaries(
            st.sampled_from(["memory", "pcie", "cores", "memory_rate", "nvme_read"]), SCALARS, max_size=3
        ),
    },
)


@given(st.one_of(TABLES, NEARLY_RIGHT))
def test_any_keys_give_a_cluster_or_one_clear_line(keys: dict[str, object]):
    try:
        outcome = str(cluster_from_keys(keys, "mine.toml").devices)
    except InvalidInput as error:
        outcome = str(error)

    assert "\n" not in outcome
