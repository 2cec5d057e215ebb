"""Single operations: rows by hand arithmetic, why others are skipped, how errors are counted."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escala.calibration.collective_rows import (
    SizeClass,
    bus_factor,
    cluster_of,
    collective,
    predicted,
    read_collective,
    size_class,
)
from escala.calibration.failure import Unreadable
from escala.calibration.operation_scores import READERS, score_operations, validate_operations
from escala.calibration.operations import Operation, OperationSkip, read_each, shipped
from escala.calibration.power_rows import read_power, read_power_limit
from escala.calibration.product_rows import fit_factor, read_product
from escala.catalog.accelerators import accelerator
from escala.catalog.engines import assumptions
from escala.catalog.links import link

ALL_REDUCE = {
    "op": "all_reduce",
    "message_bytes": "1000000000",
    "n_devices": "8",
    "devices_per_node": "8",
    "interconnect": "8 A100, NVLink",
    "bus_or_alg_bw_GBps": "bus 175.0",
    "latency_us": "",
    "source": "by hand",
}
PRODUCT = {"accelerator": "H100 SXM", "dtype": "bf16", "mamf_tflops": "800", "source": "by hand"}
POWER = {
    "what": "GPU mean power, LLM",
    "hardware": "H100 SXM 500 W",
    "value": "450",
    "unit": "W",
    "context": "",
    "source": "by hand",
    "read": "direct",
}


def reason(reader, row: Mapping[str, str], **cells: str) -> str:
    with pytest.raises(Unreadable) as failure:
        reader("x", {**row, **cells})
    return str(failure.value)


# Collectives


@pytest.mark.parametrize(
    ("op", "devices", "factor"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 8, 1.75),
        ("all_gather", 8, 0.875),
        ("reduce_scatter", 4, 0.75),
        ("all_to_all", 2, 0.5),
        ("sendrecv", 8, 1.0),
    ],
)
def test_the_bus_factor_is_that_of_nccl_tests(op: str, devices: int, factor: float):
    assert bus_factor(op, devices) == factor


def test_a_bus_bandwidth_is_the_time_of_what_a_ring_sends():
    # 1 GB * 2 * 7 / 8 / 175 GB/s = 10 ms
    assert collective(ALL_REDUCE).published_s == pytest.approx(0.010, rel=1e-12)


def test_an_algorithm_bandwidth_is_size_over_time():
    # 1 GB / 100 GB/s = 10 ms
    row = ALL_REDUCE | {"bus_or_alg_bw_GBps": "alg 100.0"}

    assert collective(row).published_s == pytest.approx(0.010, rel=1e-12)


def test_a_printed_time_goes_before_a_bandwidth():
    assert collective(ALL_REDUCE | {"latency_us": "12.5"}).published_s == pytest.approx(12.5e-6, rel=1e-12)


def test_one_all_reduce_by_hand():
    wires = link("nvlink3", 8)
    seconds = 2 * 3 * wires.latency_s + 1.75 * 1e9 / (wires.bytes_per_s * wires.reduce_efficiency)

    found = read_collective("x", ALL_REDUCE)

    assert found.predicted == pytest.approx(seconds, rel=1e-12)
    assert (found.operation, found.of, found.size) == ("all-reduce", "nvlink3", "from 64 MiB")
    assert found.error == pytest.approx(seconds / 0.010 - 1, rel=1e-12)


@pytest.mark.parametrize(
    ("op", "name"),
    [("all_gather", "all-gather"), ("reduce_scatter", "reduce-scatter"), ("all_to_all", "all-to-all")],
)
def test_gathers_and_exchanges_send_seven_eighths_in_a_node(op: str, name: str):
    wires = link("nvlink3", 8)
    seconds = 3 * wires.latency_s + 0.875 * 1e9 / (wires.bytes_per_s * wires.gather_efficiency)

    found = read_collective("x", ALL_REDUCE | {"op": op})

    assert (found.operation, found.predicted) == (name, pytest.approx(seconds, rel=1e-12))


def test_a_send_is_one_hop_of_a_pipeline():
    wires, known = link("nvlink3", 8), assumptions()
    hop_s = 1e9 / (wires.bytes_per_s * known.transfer_efficiency)

    found = read_collective("x", ALL_REDUCE | {"op": "sendrecv"})

    assert found.operation == "send"
    assert found.predicted == pytest.approx(wires.latency_s + known.transfer_latency_s + hop_s, rel=1e-12)


def test_without_bytes_only_latency_is_left():
    found = read_collective("x", ALL_REDUCE | {"message_bytes": "1", "latency_us": "23"})

    assert found.predicted == pytest.approx(2 * 3 * link("nvlink3", 8).latency_s, rel=1e-4)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1, SizeClass.LATENCY),
        (2**20, SizeClass.LATENCY),
        (2**20 + 1, SizeClass.MIDDLE),
        (2**26 - 1, SizeClass.MIDDLE),
        (2**26, SizeClass.BANDWIDTH),
    ],
)
def test_sizes_end_at_1_and_64_mib(size: int, expected: SizeClass):
    assert size_class(size) is expected


@pytest.mark.parametrize(
    ("text", "per_node", "name", "bytes_per_s"),
    [
        ("2 nodes x 8 H100, NVLink + InfiniBand", 8, "ib-ndr", 50e9),
        ("2 nodes x 8 H100, 8x200 Gb/s TCPXO", 8, "tcpxo", 25e9),
        ("2 nodes of B200, EFA v4 8x400 Gb/s per node", 8, "efa-v4", 50e9),
        ("2 nodes x 8 A100 Omni-Path", 8, "omni-path-100", 6.25e9),  # 4 ports of 12.5 GB/s for 8 devices
        ("4 nodes x 4 V100-32GB Omni-Path", 4, "omni-path-100", 12.5e9),
        ("2 nodes x 8 H100, 8x100 Gb/s", 8, "ib-ndr", 12.5e9),
    ],
)
def test_the_network_is_the_named_one_or_has_the_printed_rate(
    text: str, per_node: int, name: str, bytes_per_s: float
):
    outside = cluster_of(text, 16, per_node).links[-1]

    assert (outside.name, outside.bytes_per_s) == (name, bytes_per_s)


def test_with_nvls_off_switches_do_not_reduce():
    on, off = (
        predicted(collective(ALL_REDUCE | {"interconnect": f"H200 NVLink4{words}"}))
        for words in ("", ", NCCL_NVLS_ENABLE=0 (ring)")
    )
    wires = link("nvlink4", 8)

    assert (on[1], off[1]) == ("nvlink4", "nvlink4 in a ring")
    bytes_s = 1.75 * 1e9 / wires.bytes_per_s
    assert off[0] - on[0] == pytest.approx(
        bytes_s / wires.gather_efficiency - bytes_s / wires.reduce_efficiency, rel=1e-9
    )


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ({"op": "memcpy host to device"}, "a copy between two memories, no collective"),
        ({"op": "p2p_copy_unidirectional"}, "a copy between two memories, no collective"),
        ({"op": "broadcast"}, "operation that the model has no formula for"),
        ({"message_bytes": ""}, "message size not printed"),
        ({"n_devices": "1"}, "fewer than two devices"),
        ({"n_devices": ""}, "fewer than two devices"),
        ({"bus_or_alg_bw_GBps": ""}, "no number printed"),
        ({"bus_or_alg_bw_GBps": "bus 0"}, "no number printed"),
        ({"bus_or_alg_bw_GBps": "fast"}, "no number printed"),
        ({"bus_or_alg_bw_GBps": "bus 0.04"}, "bandwidth printed in too few digits"),
        ({"interconnect": "NVLink"}, "device not in the catalog"),
        ({"n_devices": "9999999"}, "machine not in the catalog"),
    ],
)
def test_a_collective_is_skipped_for_a_reason(cells: dict[str, str], why: str):
    assert reason(read_collective, ALL_REDUCE, **cells) == why


def test_a_digit_that_moves_a_bandwidth_by_a_twentieth_is_enough():
    assert collective(ALL_REDUCE | {"bus_or_alg_bw_GBps": "bus 0.10"}).published_s > 0  # 0.005 / 0.10


# Products of matrices


def test_a_product_is_a_share_of_the_peak():
    chip = accelerator("h100-sxm")
    found = read_product("x", PRODUCT)

    assert found.published == pytest.approx(800e12 / chip.bf16_flop_per_s, rel=1e-12)
    assert found.predicted == chip.gemm_efficiency
    assert found.unfitted == pytest.approx(chip.gemm_efficiency / fit_factor(chip, "bf16"), rel=1e-12)


def test_before_the_fit_the_share_is_that_of_the_record():
    # h100-sxm: 0.75 in the catalog
    assert read_product("x", PRODUCT).unfitted == pytest.approx(0.75, rel=1e-3)


def test_fp8_has_the_share_of_16_bit_times_its_ratio():
    chip = accelerator("h100-sxm")

    found = read_product("x", PRODUCT | {"dtype": "fp8"})

    assert found.predicted == pytest.approx(chip.gemm_efficiency * chip.fp8_efficiency, rel=1e-12)


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ({"accelerator": "Abacus"}, "device not in the catalog"),
        ({"dtype": "int8"}, "number format without a peak in the catalog"),
        ({"accelerator": "A100 SXM", "dtype": "fp8"}, "number format without a peak in the catalog"),
        ({"mamf_tflops": "many"}, "no number printed"),
    ],
)
def test_a_product_is_skipped_for_a_reason(cells: dict[str, str], why: str):
    assert reason(read_product, PRODUCT, **cells) == why


# Power


def test_a_device_that_computes_draws_its_share_of_the_printed_limit():
    found = read_power("x", POWER)

    assert (found.operation, found.published) == ("device that computes", 450.0)
    assert found.predicted == pytest.approx(500 * assumptions().power_compute_share, rel=1e-12)


def test_a_node_draws_its_devices_times_the_node_ratio():
    # 8 * 0.9 * 700 W * 1.5 = 7.56 kW
    row = POWER | {"what": "node power, max observed", "hardware": "8xH100 HGX", "value": "8.4", "unit": "kW"}
    found = read_power("x", row)

    assert found.published == 8400.0
    assert found.predicted == pytest.approx(8 * 700 * 1.5 * assumptions().power_compute_share, rel=1e-12)


def test_a_share_of_a_nameplate_is_power():
    row = POWER | {"what": "node power, compute-intensive workloads / nameplate", "hardware": "8xH100 HGX"}

    found = read_power("x", row | {"value": "0.76", "unit": "ratio", "context": "of 10 kW"})

    assert found.published == pytest.approx(7600.0, rel=1e-12)


def test_a_share_of_the_devices_is_the_inverse_of_the_node_ratio():
    row = POWER | {"what": "GPU share of server power", "hardware": "-", "value": "80", "unit": "%"}

    assert (read_power("x", row).published, read_power("x", row).predicted) == (1.25, 1.5)


def test_a_limit_is_that_of_the_catalog():
    row = POWER | {"what": "power spec", "hardware": "H100/H200 SXM", "value": "700"}

    assert read_power("x", row).error == 0.0


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ({"what": "sampled fraction of runtime"}, "no state of the energy model"),
        ({"read": "second-hand"}, "told at second hand"),
        ({"value": "15-85"}, "no number printed"),
        ({"unit": "% of max"}, "not in watts"),
        ({"hardware": "Abacus"}, "device not in the catalog"),
        ({"what": "node power, max observed"}, "number of devices not printed"),
        ({"what": "power spec", "hardware": "TPU v5p"}, "no power limit in the catalog"),
        (
            {"what": "node power, compute-intensive workloads / nameplate", "hardware": "8xH100"},
            "no number printed",
        ),
    ],
)
def test_a_power_is_skipped_for_a_reason(cells: dict[str, str], why: str):
    assert reason(read_power, POWER, **cells) == why


@pytest.mark.parametrize(
    ("fraction", "why"),
    [
        ("0.5", "power limited below the usual limit, which is no term of the model"),
        ("1.0", "at the usual limit, which the rows of limited power compare with"),
        ("", "no number printed"),
    ],
)
def test_limited_power_is_never_scored(fraction: str, why: str):
    assert reason(read_power_limit, {"limit_frac": fraction}) == why


# Any row, all rows, scores

CELLS = st.text(max_size=12) | st.sampled_from(
    [
        *sorted({cell or "" for name in READERS for row in shipped(name) for cell in row.values()}),
        *("0", "-1", "nan", "inf", "1e308", "1e-320", "9" * 5000, "bus 1", "alg .", "bus 9" + "9" * 400),
    ]
)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=100)
@given(data=st.data())
def test_a_row_of_anything_is_scored_or_skipped(name: str, data: st.DataObject):
    columns = sorted(shipped(name)[0])
    row = dict(data.draw(st.sampled_from(shipped(name))))
    row |= data.draw(st.dictionaries(st.sampled_from(columns), CELLS, min_size=1))

    (found,) = read_each(name, [row], READERS[name])

    assert found.id == f"{name}:2"
    assert found.reason if isinstance(found, OperationSkip) else found.published > 0 < found.predicted


def test_a_row_without_cells_is_skipped():
    assert all(read_each(name, [{}], reader)[0].reason for name, reader in READERS.items())


def test_every_shipped_row_is_scored_or_skipped():
    found = validate_operations()

    assert len(found.operations) + len(found.skips) == sum(len(shipped(name)) for name in READERS)
    assert len(found.operations) >= 249
    assert sum(found.reasons.values()) == len(found.skips)


def operation(name: str, published: float, expected: float, size: str = "", of: str = "a") -> Operation:
    return Operation(
        id=name,
        operation="all-reduce" if size else "power",
        of=of,
        size=size,
        unit="s",
        published=published,
        predicted=expected,
        source="by hand",
    )


def test_errors_are_counted_by_operation_size_and_link():
    big, small = str(SizeClass.BANDWIDTH), str(SizeClass.LATENCY)
    rows = [
        operation("one", 1.0, 1.1, big),
        operation("two", 1.0, 0.7, big, of="b"),
        operation("three", 2.0, 1.0, small),
        operation("four", 100.0, 90.0),
    ]
    found = score_operations(rows)

    assert found.collectives is not None
    # 10, 30 and 50 %, the last two too low
    assert found.collectives.mape == pytest.approx(0.30, rel=1e-12)
    assert found.collectives.bias == pytest.approx(-0.30, rel=1e-12)
    assert found.collectives.median_absolute_error == pytest.approx(0.30, rel=1e-12)
    assert (found.collectives.worst.id, found.collectives.worst.error) == ("three", -0.5)
    assert [(each.name, each.errors.rows) for each in found.by_operation] == [("all-reduce", 3), ("power", 1)]
    assert [each.name for each in found.by_size] == [small, big]
    assert {each.name for each in found.by_link} == {f"a, {big}", f"b, {big}", f"a, {small}"}
    assert score_operations(rows[::-1]) == found


def test_of_nothing_there_are_no_errors():
    found = score_operations([])

    assert (found.collectives, found.products, found.unfitted, found.by_size) == (None, None, None, ())
