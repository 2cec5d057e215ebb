import pytest

from escala.catalog.links import link, link_quantities, links, network
from escala.errors import InvalidInput


@pytest.mark.parametrize("name", links())
def test_every_link_has_sane_numbers(name: str):
    found = link(name, 8)

    assert 0.1e9 <= found.bytes_per_s <= 1e12
    assert 1e-6 <= found.latency_s <= 1e-4
    assert 0.1 <= found.gather_efficiency <= 1
    assert 0.1 <= found.reduce_efficiency <= (1.1 if found.reduces_in_network else 1)


@pytest.mark.parametrize("name", links())
def test_every_number_of_a_link_has_source_and_condition(name: str):
    numbers = link_quantities(name).values()

    assert all(number.source.title and number.condition for number in numbers)


@pytest.mark.parametrize(
    ("name", "bytes_per_s"),
    [
        ("nvlink2", 150e9),
        ("nvlink3", 300e9),
        ("nvlink4", 450e9),
        ("nvlink5", 900e9),
        ("ib-ndr", 50e9),
        ("eth-1g", 1.25e8),
    ],
)
def test_hand_checked_bandwidths(name: str, bytes_per_s: float):
    assert link(name, 8).bytes_per_s == pytest.approx(bytes_per_s, rel=1e-12)


def test_hand_checked_efficiencies_of_nvlink4():
    # 8 H200, 16 GiB: all-gather 361.4 and all-reduce 482 of 450 GB/s
    numbers = link_quantities("nvlink4")

    assert numbers["gather_efficiency"].value == pytest.approx(361.4 / 450, abs=0.005)
    assert numbers["reduce_efficiency"].value == pytest.approx(482 / 450, abs=0.005)


def test_latency_of_nvlink4_follows_from_the_smallest_all_reduce():
    # 8 H100 need 16 us; an all-reduce of 8 ranks waits 2 * 3 latencies
    assert link("nvlink4", 8).latency_s == pytest.approx(16e-6 / 6, abs=0.05e-6)


def test_latency_of_infiniband_follows_from_two_nodes():
    # 88 us for 1 MiB on 2 x 8 H100, 34.6 in the node, 2.6 for the bytes; one doubling, twice
    assert link("ib-ndr", 16).latency_s == pytest.approx((88 - 34.6 - 2.6) * 1e-6 / 2, abs=0.5e-6)


def test_ports_multiply_the_bandwidth_and_keep_the_rest():
    half = link("ib-hdr", 32, ports_per_device=0.5, oversubscription=2.0)

    assert half.bytes_per_s == pytest.approx(12.5e9, rel=1e-12)
    assert half.oversubscription == 2.0
    assert half.domain_devices == 32


def test_a_network_may_be_a_name_or_a_bandwidth():
    assert network("NDR", 64).bytes_per_s == network("400 Gb/s", 64).bytes_per_s == 50e9


def test_slow_networks_are_taken_for_tcp():
    assert network("10 Gb/s", 16).latency_s == link("eth-10g", 16).latency_s
    assert network("200 Gb/s", 16).latency_s == link("roce-200g", 16).latency_s


@pytest.mark.parametrize(
    "text", ["400 GiB", "0 Gb/s", "4oo Gb/s", "", "infinband", "nan", "1e999 Gb/s", "-4 Gb/s"]
)
def test_a_faulty_network_is_one_clear_line(text: str):
    with pytest.raises(InvalidInput) as caught:
        network(text, 16)

    assert "\n" not in str(caught.value)
    assert "400 Gb/s" in str(caught.value)


def test_an_unknown_link_suggests_near_ones():
    with pytest.raises(InvalidInput, match="did you mean nvlink"):
        link("nvlnk4", 8)
