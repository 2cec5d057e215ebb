"""Means are over time, peaks of what lasted, rates from sums; nodes stay apart."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import pytest

from escala.measurement.sampling.sample import (
    SAMPLE_SCHEMA,
    CommandUse,
    ContainerUse,
    GpuUse,
    InterfaceUse,
    MachineUse,
    PackageUse,
    Sample,
)
from escala.measurement.sampling.totals import summed
from escala.measurement.sampling.usage import Level, NodeUsage

COMMAND = CommandUse(
    processes=1,
    cpu_s=0.0,
    busy_cores=0.0,
    resident_bytes=100.0,
    proportional_bytes=None,
    read_bytes=0.0,
    written_bytes=None,
)
MACHINE = MachineUse(
    cores=4,
    usable_cores=4,
    busy_s=0.0,
    busy_cores=0.0,
    waiting_cores=0.0,
    stolen_cores=0.0,
    context_switches=0,
    memory_bytes=1000.0,
    used_bytes=500.0,
    swap_used_bytes=0.0,
    disk_read_bytes=None,
    disk_written_bytes=None,
)
GPU = GpuUse(
    index=0,
    uuid="GPU-0",
    name="H100",
    busy_share=0.5,
    memory_busy_share=None,
    used_bytes=1.0,
    memory_bytes=2.0,
    power_w=300.0,
    power_cap_w=700.0,
    energy_j=0.0,
    sm_clock_hz=None,
    memory_clock_hz=None,
    temperature_celsius=None,
    held_back_by=(),
)


def sample(interval_s: float, command: CommandUse = COMMAND, **parts) -> Sample:
    """A sample so long after the one before; `totals` counts the time together."""
    base = Sample(
        schema=SAMPLE_SCHEMA,
        time="2026-01-01T00:00:00.000Z",
        node="a",
        rank=None,
        elapsed_s=0.0,
        interval_s=interval_s,
        command=command,
        machine=MACHINE,
        interfaces=(),
        container=ContainerUse(used_bytes=None, limit_bytes=None, throttled_s=None),
        gpus=(),
        packages=(),
    )
    return replace(base, **parts)


def totals(samples: Sequence[Sample]) -> tuple[NodeUsage, ...]:
    """The usage of samples whose intervals follow each other."""
    ends_s = accumulate(each.interval_s for each in samples)
    return summed(replace(each, elapsed_s=end_s) for each, end_s in zip(samples, ends_s, strict=True))


def test_a_mean_is_weighted_by_time():
    held = [replace(COMMAND, resident_bytes=each) for each in (100.0, 200.0, 400.0)]

    (usage,) = totals([sample(0.0, held[0]), sample(3.0, held[1]), sample(1.0, held[2])])
    # (200 * 3 s + 400 * 1 s) / 4 s
    assert usage.resident_bytes == Level(mean=250.0, peak=400.0)
    assert (usage.duration_s, usage.samples) == (4.0, 3)


def test_a_short_interval_makes_no_peak():
    busy = [replace(COMMAND, busy_cores=each) for each in (0.0, 1.0, 9.0)]

    (usage,) = totals([sample(0.0, busy[0]), sample(1.0, busy[1]), sample(0.1, busy[2])])
    assert usage.busy_cores is not None
    assert usage.busy_cores.mean == pytest.approx((1.0 + 0.9) / 1.1)
    assert usage.busy_cores.peak == usage.busy_cores.mean


def test_a_rate_is_what_a_sum_grew_by():
    read = [replace(COMMAND, read_bytes=each) for each in (1000.0, 1000.0, 4000.0)]

    (usage,) = totals([sample(0.0, read[0]), sample(1.0, read[1]), sample(2.0, read[2])])
    # 3,000 bytes in 3 s, all of them in the last 2
    assert usage.read_bytes_per_s == Level(mean=1000.0, peak=1500.0)
    assert usage.written_bytes_per_s is None


def test_interfaces_and_gpus_are_summed_up_one_by_one():
    def link(received_bytes: float) -> InterfaceUse:
        return InterfaceUse(name="ib0", received_bytes=received_bytes, sent_bytes=0.0, link_bytes_per_s=5e10)

    held = replace(GPU, power_w=500.0, energy_j=400.0, held_back_by=("power cap",))
    (usage,) = totals(
        [
            sample(0.0, interfaces=(link(0.0),), gpus=(GPU,)),
            sample(3.0, interfaces=(link(6e9),), gpus=(held,)),
            sample(1.0, interfaces=(link(6e9),), gpus=(replace(GPU, energy_j=800.0),)),
        ]
    )

    (interface,), (gpu,) = usage.interfaces, usage.gpus
    assert interface.received_bytes_per_s == Level(mean=1.5e9, peak=2e9)
    # 500 W for 3 s, 300 W for 1 s
    assert gpu.power_w == Level(mean=450.0, peak=500.0)
    assert gpu.energy_j == 800.0
    assert [(each.reason, each.share) for each in gpu.held_back] == [("power cap", 0.75)]


def test_packages_are_added_and_nodes_stay_apart():
    two = (PackageUse(name="0", energy_j=3.0), PackageUse(name="1", energy_j=4.0))
    found = totals([sample(1.0, packages=two), sample(1.0, node="b"), sample(1.0, rank=1)])

    assert [(each.node, each.rank, each.packages_energy_j) for each in found] == [
        ("a", None, 7.0),
        ("b", None, None),
        ("a", 1, None),
    ]


def test_a_sum_that_begins_again_is_no_negative_rate():
    read = [replace(COMMAND, read_bytes=each) for each in (1000.0, 0.0)]

    assert totals([sample(0.0, read[0]), sample(1.0, read[1])])[0].read_bytes_per_s is None


def test_a_lost_sample_makes_no_higher_rate():
    read = [replace(COMMAND, read_bytes=each) for each in (0.0, 1000.0, 2000.0, 3000.0)]
    every = [replace(sample(1.0, each), elapsed_s=float(i)) for i, each in enumerate(read)]

    (whole,), (cut,) = summed(every), summed([every[0], every[3]])
    assert whole.read_bytes_per_s == cut.read_bytes_per_s == Level(mean=1000.0, peak=1000.0)
    assert cut.duration_s == 3.0
