"""What a command seems to wait for, one case for each resource; nothing where none was full."""

from dataclasses import replace

import pytest

from escala.measurement.sampling.usage import GpuUsage, HeldBack, InterfaceUsage, Level, NodeUsage
from escala.measurement.watch.findings import findings


def level(mean: float) -> Level:
    return Level(mean=mean, peak=mean)


IDLE = NodeUsage(
    node="n",
    rank=None,
    began="",
    ended="",
    duration_s=10.0,
    samples=10,
    cores=16,
    usable_cores=16,
    cpu_s=1.0,
    busy_cores=level(0.1),
    machine_busy_cores=level(0.5),
    waiting_cores=level(0.0),
    stolen_cores=level(0.0),
    context_switches_per_s=None,
    throttled_share=0.0,
    resident_bytes=None,
    proportional_bytes=None,
    machine_used_bytes=level(1e9),
    machine_memory_bytes=1e11,
    swap_used_bytes=None,
    container_used_bytes=None,
    container_limit_bytes=None,
    read_bytes_per_s=None,
    written_bytes_per_s=None,
    disk_read_bytes_per_s=None,
    disk_written_bytes_per_s=None,
    interfaces=(),
    gpus=(),
    packages_energy_j=None,
)
GPU = GpuUsage(
    index=0,
    uuid="GPU-0",
    name="H100",
    busy_share=level(0.97),
    memory_busy_share=None,
    used_bytes=None,
    memory_bytes=None,
    power_w=None,
    power_cap_w=None,
    energy_j=None,
    sm_clock_hz=None,
    memory_clock_hz=None,
    temperature_celsius=None,
    held_back=(),
)
LINK = InterfaceUsage(
    name="eth0", received_bytes_per_s=level(1e6), sent_bytes_per_s=level(1.0e9), link_bytes_per_s=1.25e9
)


@pytest.mark.parametrize(
    ("change", "resource", "said"),
    [
        ({"busy_cores": level(15.0)}, "CPU", "kept 15 of 16 cores busy: CPU-bound"),
        ({"busy_cores": level(1.0)}, "CPU", "one of 16 cores was busy"),
        ({"machine_busy_cores": level(15.5)}, "CPU", "others took the rest"),
        ({"throttled_share": 0.3}, "CPU quota", "quota held it back 30 % of the time"),
        ({"stolen_cores": level(4.0)}, "CPU stolen", "gave 4 of 16 cores to others"),
        ({"waiting_cores": level(2.0)}, "disk", "2 of 16 cores had nothing to do but wait for a disk"),
        ({"interfaces": (LINK,)}, "network", "eth0 sent 1.00 GB/s of 1.25 GB/s"),
        ({"gpus": (GPU,)}, "GPU", "busy 97 % of the time"),
        ({"gpus": (replace(GPU, busy_share=level(0.4)),)}, "GPU idle", "idle 60 % of the time"),
        ({"machine_used_bytes": level(0.97e11)}, "memory", "97 % of the machine's memory was in use"),
        (
            {"container_used_bytes": level(9.9e9), "container_limit_bytes": 1e10},
            *("memory", "99 % of the container's limit"),
        ),
    ],
)
def test_a_resource_that_is_full_is_named(change: dict[str, object], resource: str, said: str):
    (found,) = findings(replace(IDLE, **change))

    assert found.resource == resource
    assert said in found.text


def test_a_gpu_that_is_held_back_is_named_unless_somebody_chose_it():
    held = (HeldBack(reason="power cap", share=0.8), HeldBack(reason="set clocks", share=1.0))

    found = findings(replace(IDLE, gpus=(replace(GPU, held_back=held),)))
    assert [each.text for each in found[1:]] == ["GPU 0 was held back 80 % of the time by power cap"]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"busy_cores": level(14.0)},
        {"interfaces": (replace(LINK, link_bytes_per_s=None),)},
        {"interfaces": (replace(LINK, name="lo"),)},
        {"waiting_cores": level(0.5)},
    ],
)
def test_where_nothing_is_full_nothing_is_said(change: dict[str, object]):
    assert findings(replace(IDLE, **change)) == ()
