"""Single operations of a bench file: all of a processor's, or none."""

from typing import Any

import pytest

from escala.formats.bench_operations import operations_of
from escala.formats.bench_record import (
    BENCH_SCHEMA,
    FINGERPRINT_SCHEMA,
    Bench,
    DeviceFacts,
    Fingerprint,
    HostFacts,
    Power,
    Timed,
)


def timed(part: str, best_s: float, **given: Any) -> Timed:
    flop, moved = given.get("flop"), given.get("payload_bytes")
    return Timed(
        part=part,
        name=f"{part}, {best_s:g} s",
        best_s=best_s,
        median_s=best_s,
        repeats=1,
        samples_s=(best_s,),
        dtype="fp32",
        flop_per_s=None if flop is None else flop / best_s,
        bytes_per_s=None if moved is None else moved / best_s,
        **given,
    )


EVERY = (
    timed("attention", 1e-3, flop=1e8),
    timed("attention backward", 5e-3, flop=2.5e8),
    # 5 ps a FLOP and 100 ps a byte; backward 10 and 200
    timed("convolution", 1e-3 + 1e-3, flop=2e8, payload_bytes=1e7),
    timed("convolution", 5e-4 + 2e-3, flop=1e8, payload_bytes=2e7),
    timed("convolution backward", 4e-3 + 4e-3, flop=4e8, payload_bytes=2e7),
    timed("convolution backward", 2e-3 + 8e-3, flop=2e8, payload_bytes=4e7),
    timed("passes", 1e-2, payload_bytes=1e8),
    timed("pooling", 1e-3, shape=(2, 50, 10, 10)),
    timed("optimizer", 0.02, shape=(10, 1_000_000)),
    timed("launch", 2e-6),
)


def bench(*every: Timed, kind: str = "cpu") -> Bench:
    return Bench(
        schema=BENCH_SCHEMA,
        escala="0.1.0",
        date="2026-11-30T10:00:00+00:00",
        fingerprint=Fingerprint(schema=FINGERPRINT_SCHEMA, hash="0" * 16),
        device=DeviceFacts(kind=kind, name="a device", memory_bytes=8e9, devices_in_node=1),
        host=HostFacts(system="Linux", processor="a processor", cores=8, numa_nodes=1),
        versions={},
        backend="none",
        ranks=1,
        ranks_per_node=1,
        budget_s=120.0,
        elapsed_s=118.0,
        rounds=3,
        is_interrupted=False,
        load=None,
        timed=every,
        lines=(),
        overlaps=(),
        power=Power(counter="no counter"),
    )


def test_rates_are_work_over_the_best_time():
    found = operations_of(bench(*EVERY))

    assert found is not None
    assert found.attention_flop_per_s == pytest.approx(1e11)
    assert found.attention_backward_flop_per_s == pytest.approx(5e10)
    assert found.convolution_s_per_flop == pytest.approx(5e-12, rel=1e-12)
    assert found.convolution_s_per_byte == pytest.approx(1e-10, rel=1e-12)
    assert found.convolution_backward_s_per_flop == pytest.approx(1e-11, rel=1e-12)
    assert found.convolution_backward_s_per_byte == pytest.approx(2e-10, rel=1e-12)
    assert found.pass_bytes_per_s == pytest.approx(1e10)
    assert found.update_s == pytest.approx(2e-9)  # 20 ms / 10 tensors / 1 M parameters
    assert found.pooled_s == pytest.approx(1e-7)  # 1 ms / 10,000 outputs
    assert found.launch_s == 2e-6


@pytest.mark.parametrize("missing", range(len(EVERY)))
def test_without_one_part_the_constants_of_gpus_stay(missing: int):
    """Of convolutions two shapes are wanted: one cannot tell work from bytes."""
    some = [each for i, each in enumerate(EVERY) if i != missing]

    assert operations_of(bench(*some)) is None


def test_convolutions_of_as_many_bytes_a_flop_tell_nothing():
    alike = timed("convolution", 1e-3, flop=1e8, payload_bytes=5e6)  # 2 bytes for 40 FLOP, as the first
    some = [each for each in EVERY if each.flop != 1e8 or each.part != "convolution"]

    assert operations_of(bench(*some, alike)) is None


def test_a_gpu_keeps_the_engine_records():
    assert operations_of(bench(*EVERY, kind="cuda")) is None


def test_a_launch_on_distributed_tensors_is_one_of_those_that_were_timed_together():
    several = timed("distributed launch", 1.2e-3, shape=(40, 16))

    found = operations_of(bench(*EVERY, several))

    assert found is not None
    assert found.distributed_launch_s == pytest.approx(30e-6)


def test_a_bench_of_one_rank_knows_no_launches_on_distributed_tensors():
    found = operations_of(bench(*EVERY))

    assert found is not None
    assert found.distributed_launch_s is None
