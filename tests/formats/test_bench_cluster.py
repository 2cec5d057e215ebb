import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from escala import read_cluster
from escala.catalog.accelerators import accelerator
from escala.errors import InvalidInput
from escala.formats.bench_cluster import bench_cluster, bench_of, is_bench
from escala.formats.bench_record import (
    BENCH_SCHEMA,
    FINGERPRINT_SCHEMA,
    Bench,
    DeviceFacts,
    Fingerprint,
    Fit,
    HostFacts,
    LineFit,
    Overlap,
    Power,
    Timed,
)
from escala.model.collectives import all_reduce_s, gather_s, send_s

# 1 GB/s of all-reduce and 2 GB/s of gathers for 4 ranks, 4 GB/s alone: beta = wire bytes a byte / speed
BETAS = {
    "all-reduce": 1.5 / 1e9,
    "all-gather": 0.75 / 2e9,
    "reduce-scatter": 0.75 / 2e9,
    "all-to-all": 0.75 / 2e9,
    "send": 1 / 4e9,
}


def timed(part: str, name: str, best_s: float, **given: Any) -> Timed:
    return Timed(
        part=part,
        name=name,
        best_s=best_s,
        median_s=best_s,
        repeats=1,
        samples_s=(best_s,),
        **given,
    )


def product(dtype: str, layout: str, best_s: float, side: int = 1000) -> Timed:
    flop = 2.0 * side**3
    return timed(
        "gemm", f"{dtype} {side}, {layout}", best_s, dtype=dtype, flop=flop, flop_per_s=flop / best_s
    )


def level(name: str, ranks: int = 4, alpha_s: float = 80e-6) -> tuple[LineFit, ...]:
    return tuple(
        LineFit(
            level=name,
            operation=operation,
            ranks=ranks,
            sizes=10,
            alpha_s=Fit(value=alpha_s, low=alpha_s, high=alpha_s),
            beta_s_per_byte=Fit(value=beta, low=beta, high=beta),
            worst_error=0.1,
        )
        for operation, beta in BETAS.items()
    )


def example(**given: Any) -> Bench:
    """Four ranks of one node: fp32 at 1 TFLOP/s, bf16 at 4, memory at 20 GB/s."""
    fields: dict[str, Any] = {
        "schema": BENCH_SCHEMA,
        "escala": "0.1.0",
        "date": "2026-11-30T10:00:00+00:00",
        "fingerprint": Fingerprint(schema=FINGERPRINT_SCHEMA, hash="0" * 16),
        "device": DeviceFacts(
            kind="cpu", name="2 threads of a processor", memory_bytes=8e9, devices_in_node=1
        ),
        "host": HostFacts(system="Linux", processor="a processor", cores=8, numa_nodes=1, memory_bytes=64e9),
        "versions": {"torch": "2.13"},
        "backend": "gloo",
        "ranks": 4,
        "ranks_per_node": 4,
        "budget_s": 120.0,
        "elapsed_s": 118.0,
        "rounds": 3,
        "is_interrupted": False,
        "load": 0.0,
        "timed": (
            # a small product in cache does not count; three layouts: 3 x 2e9 FLOP in 1 + 2 + 3 ms
            product("fp32", "forward", 1e-6, side=100),
            *(product("fp32", str(ms), ms * 1e-3) for ms in (1, 2, 3)),
            product("bf16", "forward", 0.5e-3),
            timed("attention", "bf16 attention, forward", 1e-3, dtype="bf16", flop=2e9, flop_per_s=2e12),
            timed("memory", "copy", 0.1, payload_bytes=1e9, bytes_per_s=1e10),
            timed("memory", "triad", 0.1, payload_bytes=2e9, bytes_per_s=2e10),
        ),
        "lines": level("node"),
        "overlaps": (),
        "power": Power(counter="no counter"),
    }
    return Bench(**(fields | given))


def keys(bench: Bench) -> dict[str, Any]:
    """The bench as a file holds it."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(bench))
    return found


def refusal(bench: Bench, gpus: int | None = None) -> str:
    with pytest.raises(InvalidInput) as error:
        bench_cluster(bench_of(keys(bench)), "bench.json", gpus)
    return str(error.value)


def test_a_bench_file_survives_the_way_to_a_file_and_back():
    assert bench_of(keys(example())) == example()


def test_the_schema_names_every_field_with_its_type():
    schema = msgspec.json.schema(Bench)["$defs"]["Bench"]

    assert set(schema["properties"]) == set(keys(example()))
    assert set(schema["required"]) == set(keys(example())) - {"skips"}


def test_an_unknown_device_has_what_it_reached_as_its_peak():
    device = bench_cluster(example()).accelerator

    # 6e9 FLOP in 6 ms forward and backward; bf16 2e9 in 0.5 ms; attention half of that
    assert (device.fp32_flop_per_s, device.bf16_flop_per_s) == (pytest.approx(1e12), pytest.approx(4e12))
    assert (device.gemm_efficiency, device.fp32_efficiency, device.memory_efficiency) == (1.0, 1.0, 1.0)
    assert (device.memory_bytes_per_s, device.memory_bytes) == (2e10, 8e9)
    assert device.flash2_efficiency == pytest.approx(0.5)
    assert (device.fp16_flop_per_s, device.fp8_flop_per_s, device.power_w) == (None, None, None)


def test_a_device_of_the_catalog_keeps_its_peaks_and_gets_measured_shares():
    known = accelerator("h100-sxm")
    assert known.bf16_flop_per_s is not None
    facts = replace(example().device, kind="cuda", name="NVIDIA H100 80GB HBM3", memory_bytes=80e9)
    bench = example(
        device=replace(facts, power_cap_w=500.0),
        timed=(
            product("fp32", "forward", 2e9 / (known.fp32_flop_per_s * 0.5)),
            product("bf16", "forward", 2e9 / (known.bf16_flop_per_s * 0.75)),
            timed("memory", "triad", 1.0, payload_bytes=known.memory_bytes_per_s * 0.9),
        ),
    )
    device = bench_cluster(bench).accelerator

    assert (device.name, device.bf16_flop_per_s) == ("h100-sxm", known.bf16_flop_per_s)
    assert (device.fp32_efficiency, device.gemm_efficiency) == (pytest.approx(0.5), pytest.approx(0.75))
    assert (device.memory_efficiency, device.memory_bytes, device.power_w) == (
        pytest.approx(0.9),
        80e9,
        500.0,
    )


def test_a_link_is_what_a_send_reached_and_collectives_are_shares_of_it():
    (link,) = bench_cluster(example()).links

    assert (link.bytes_per_s, link.domain_devices) == (pytest.approx(4e9), 4)
    assert (link.reduce_efficiency, link.gather_efficiency) == (pytest.approx(0.25), pytest.approx(0.5))
    assert link.latency_s == pytest.approx(80e-6 / (2 * 2))  # alpha of all-reduce over 2 log2 of 4 ranks


def test_the_model_gives_the_measured_lines_back():
    (link,) = bench_cluster(example()).links
    payload, ranks, latency = 1e6, 4.0, 2 * link.latency_s
    reduce, gather = (link.bytes_per_s * share for share in (link.reduce_efficiency, link.gather_efficiency))

    assert all_reduce_s(payload, ranks, reduce, latency) == pytest.approx(80e-6 + 1.5e-3)
    assert gather_s(payload, ranks, gather, 0.0) == pytest.approx(0.75 * 1e6 / 2e9)
    assert send_s(payload, link.bytes_per_s, 0.0) == pytest.approx(1e6 / 4e9)


def test_lines_are_kept_for_every_number_of_ranks_and_the_typical_one_counts():
    typical = replace(level("node")[0], typical_alpha_s=90e-6, typical_beta_s_per_byte=2e-9)
    flat = replace(typical, ranks=2, typical_beta_s_per_byte=0.0)
    (link,) = bench_cluster(example(lines=(typical, *level("node")[1:], *level("node", ranks=2), flat))).links
    reduced, gathered = link.lines[:2]

    assert [line.ranks for line in link.lines] == [4] * 5 + [2] * 5  # one without slope says nothing
    assert link.latency_s == pytest.approx(90e-6 / (2 * 2))  # of all four ranks, not of two
    # 90 and 80 us beside 22.5; 2 ns a byte and 0.75 / 2 at 4 GB/s
    assert (reduced.operation, reduced.latency_ratio) == ("all-reduce", pytest.approx(4.0))
    assert (gathered.operation, gathered.latency_ratio) == ("all-gather", pytest.approx(80 / 22.5))
    assert (reduced.wire_ratio, gathered.wire_ratio) == (pytest.approx(8.0), pytest.approx(1.5))


def test_the_backend_and_what_it_hides_are_kept():
    hidden = Overlap(
        level="node",
        payload_bytes=4e6,
        compute_s=1.0,
        communication_s=1.0,
        both_s=1.25,
        hidden_share=0.75,
    )
    cluster = bench_cluster(example(overlaps=(hidden,)))

    assert (cluster.backend, cluster.links[0].hidden_share) == ("gloo", 0.75)
    assert bench_cluster(example()).links[0].hidden_share is None


def test_a_network_joins_more_nodes_than_were_measured():
    bench = example(ranks=8, lines=(*level("node"), *level("network", ranks=2)))
    cluster = bench_cluster(bench, gpus=64)

    assert (cluster.devices, cluster.devices_per_node, cluster.nodes) == (64, 4, 16)
    assert [link.name for link in cluster.links] == ["measured node", "measured network"]
    assert [link.name for link in cluster.crossed_links] == ["measured node", "measured network"]


def test_what_was_measured_is_said_with_file_and_date():
    cluster = bench_cluster(example(), "folder/mine.json")

    assert cluster.source == "mine.json, 2026-11-30"
    assert cluster.measured == (
        "measured (mine.json, 2026-11-30): fp32 products 1.00 TFLOP/s",
        "bf16 products 4.00 TFLOP/s",
        "memory 20.0 GB/s",
        "measured node 4.00 GB/s, 20.0 µs",
    )


def test_one_device_needs_no_network():
    cluster = bench_cluster(example(ranks=1, ranks_per_node=1, lines=()))

    assert (cluster.devices, cluster.crossed_links) == (1, ())


def test_more_devices_than_were_measured_are_refused():
    assert "measured 4 devices of one node and holds no network for 8" in refusal(example(), 8)
    alone = example(ranks=1, ranks_per_node=1, lines=())
    assert "holds no network, so it cannot describe 2 devices" in refusal(alone, 2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"schema": "escala/bench@2"}, "schema is 'escala/bench@2'; this escala reads 'escala/bench@1'"),
        ({"fingerprint": {"schema": "other@1", "hash": ""}}, "fingerprint.schema is 'other@1'"),
        ({"fingerprint": None}, "fingerprint.schema is nothing (null)"),
        ({"lines": 3}, "is no whole bench file"),
        ({"ranks_per_node": 8}, "4 ranks, 8 in a node, which cannot be"),
        ({"timed": []}, "holds no fp32 matrix product"),
        ({"lines": keys(example())["lines"][:2]}, "holds no reduce-scatter of its node link"),
    ],
)
def test_wrong_files_are_refused_in_one_line(given: dict[str, Any], said: str, tmp_path: Path):
    file = tmp_path / "bench.json"
    file.write_text(json.dumps(keys(example()) | given))

    with pytest.raises(InvalidInput) as error:
        read_cluster(file)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_rates_that_no_machine_has_are_refused():
    wrong = keys(example())
    wrong["timed"][0]["best_s"] = 0.0

    with pytest.raises(InvalidInput, match="not a number above 0"):
        bench_of(wrong)


def test_a_bench_is_known_by_its_schema():
    assert is_bench({"schema": "escala/bench@7"})
    assert not is_bench({"schema": "escala/cluster@1"})
    assert not is_bench({})
