"""Samples as Prometheus text: names and units by its conventions, labels, nothing for what nobody says."""

from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from escala.errors import InvalidInput
from escala.measurement.sampling.gpus import find_gpus
from escala.measurement.sampling.sample import (
    SAMPLE_SCHEMA,
    CommandUse,
    ContainerUse,
    InterfaceUse,
    MachineUse,
    PackageUse,
    Sample,
)
from escala.measurement.watch.exposition import Exposition, refuse_taken

SAMPLE = Sample(
    schema=SAMPLE_SCHEMA,
    time="2026-01-01T00:00:00.000Z",
    node="n07",
    rank=3,
    elapsed_s=9.0,
    interval_s=1.0,
    command=CommandUse(
        processes=2,
        cpu_s=12.5,
        busy_cores=1.5,
        resident_bytes=2e9,
        proportional_bytes=None,
        read_bytes=5.0,
        written_bytes=6.0,
    ),
    machine=MachineUse(
        cores=8,
        usable_cores=4,
        busy_s=20.0,
        busy_cores=2.0,
        waiting_cores=0.0,
        stolen_cores=0.0,
        context_switches=70,
        memory_bytes=6.4e10,
        used_bytes=1e9,
        swap_used_bytes=0.0,
        disk_read_bytes=None,
        disk_written_bytes=None,
    ),
    interfaces=(InterfaceUse(name="eth0", received_bytes=7.0, sent_bytes=8.0, link_bytes_per_s=None),),
    container=ContainerUse(used_bytes=None, limit_bytes=None, throttled_s=1.5),
    gpus=(),
    packages=(PackageUse(name="intel-rapl:0", energy_j=33.0),),
)


def exposed(sample: Sample, folder: Path) -> dict[tuple[str, str], float]:
    """Number by name and label that is not node or rank."""
    Exposition().update(sample, folder / "metrics.prom")
    found = {}
    for family in text_string_to_metric_families((folder / "metrics.prom").read_text()):
        for each in family.samples:
            assert (each.labels.pop("node"), each.labels.pop("rank")) == ("n07", "3")
            found[each.name, ",".join(each.labels.values())] = each.value
    return found


def test_numbers_of_a_sample_have_the_names_of_prometheus(tmp_path: Path):
    found = exposed(SAMPLE, tmp_path)

    assert found["escala_cpu_seconds_total", ""] == 12.5
    assert found["escala_resident_bytes", ""] == 2e9
    assert found["escala_node_context_switches_total", ""] == 70
    assert found["escala_network_sent_bytes_total", "eth0"] == 8.0
    assert found["escala_container_throttled_seconds_total", ""] == 1.5
    assert found["escala_package_energy_joules_total", "intel-rapl:0"] == 33.0


def test_what_nobody_says_is_left_out(tmp_path: Path):
    names = {name for name, _ in exposed(SAMPLE, tmp_path)}

    assert "escala_proportional_bytes" not in names
    assert "escala_container_limit_bytes" not in names
    assert not any(name.startswith("escala_gpu") for name in names)


def test_gpus_have_their_own_labels(nvml, tmp_path: Path):
    gpus, _ = find_gpus(nvml(), {})
    assert gpus is not None
    found = exposed(replace(SAMPLE, gpus=gpus.use()), tmp_path)

    one = "0,NVIDIA H100 80GB HBM3,GPU-0"
    assert found["escala_gpu_power_watts", one] == 350.0
    assert found["escala_gpu_busy_ratio", one] == 0.8
    assert found["escala_gpu_energy_joules_total", one] == 0.0
    assert found["escala_gpu_held_back", "0,NVIDIA H100 80GB HBM3,power cap,GPU-0"] == 1.0


def test_a_file_that_cannot_be_written_does_not_end_the_watch(tmp_path: Path):
    Exposition().update(SAMPLE, tmp_path / "missing" / "metrics.prom")

    assert list(tmp_path.iterdir()) == []


def test_a_port_that_may_not_be_used_is_refused(monkeypatch: pytest.MonkeyPatch):
    def refuse(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("socket.socket.bind", refuse)
    with pytest.raises(InvalidInput, match="--prometheus 80: the port cannot be used"):
        refuse_taken(80)
