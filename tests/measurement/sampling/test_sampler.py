"""The sampler's thread takes samples at even times, and their sums are what was used."""

import os
import time
from pathlib import Path

import msgspec
import pytest

from escala.errors import MissingExtra
from escala.measurement.sampling.extra import require_libraries
from escala.measurement.sampling.packages import Packages
from escala.measurement.sampling.place import node, rank, ranks
from escala.measurement.sampling.sample import SAMPLE_SCHEMA, Sample
from escala.measurement.sampling.sampler import Sampler
from escala.measurement.sampling.totals import summed


def burnt(cpu_s: float, every_s: float) -> tuple[list[Sample], Sampler]:
    """Samples while this process uses so much processor time."""
    samples: list[Sample] = []
    with Sampler(os.getpid(), every_s, samples.append) as sampler:
        end_s = time.process_time() + cpu_s
        while time.process_time() < end_s:
            pass
    return samples, sampler


def test_the_samples_of_a_busy_process_add_up_to_its_time():
    began_s = time.process_time()
    samples, sampler = burnt(cpu_s=0.6, every_s=0.1)
    used_s = time.process_time() - began_s

    assert len(samples) >= 3
    assert 0.5 < samples[-1].command.cpu_s <= used_s + 0.02
    means = sum(each.command.busy_cores * each.interval_s for each in samples)
    # what the first sample found was used before any interval
    assert abs(means - samples[-1].command.cpu_s) <= samples[0].command.cpu_s + 1e-6
    assert 0 < sampler.cpu_s < used_s


def test_a_sample_is_one_line_of_json_that_can_be_read_back():
    samples, _ = burnt(cpu_s=0.01, every_s=10.0)
    line = msgspec.json.encode(samples[-1])

    assert b"\n" not in line
    assert msgspec.json.decode(line, type=Sample) == samples[-1]
    assert samples[-1].schema == SAMPLE_SCHEMA
    assert samples[-1].time.endswith("Z")
    # one at the beginning and one at the end, however short
    assert [each.interval_s > 0 for each in samples] == [False, True]


def test_what_cannot_be_sampled_is_said():
    _, sampler = burnt(cpu_s=0.0, every_s=10.0)

    has_gpu, has_counter = Path("/dev/nvidiactl").exists(), Path("/sys/class/powercap/intel-rapl:0").exists()
    assert has_gpu or any("no GPU" in gap for gap in sampler.gaps)
    assert has_counter or any("no energy of processors" in gap for gap in sampler.gaps)


def test_the_usage_of_a_process_has_mean_and_peak():
    samples, _ = burnt(cpu_s=0.6, every_s=0.25)

    (usage,) = summed(samples)
    assert usage.samples == len(samples)
    assert usage.busy_cores is not None
    assert 0.1 < usage.busy_cores.mean <= usage.busy_cores.peak
    assert usage.resident_bytes is not None
    assert 1e6 < usage.resident_bytes.mean <= usage.resident_bytes.peak < usage.machine_memory_bytes


def rapl(folder: Path, count_uj: int) -> None:
    (folder / "intel-rapl:0").mkdir(exist_ok=True)
    (folder / "intel-rapl:0" / "energy_uj").write_text(f"{count_uj}\n")
    (folder / "intel-rapl:0" / "max_energy_range_uj").write_text("1000000\n")


def test_joules_of_a_package_go_on_where_its_counter_starts_again(tmp_path: Path):
    rapl(tmp_path, 900_000)
    packages = Packages(tmp_path)

    rapl(tmp_path, 950_000)
    before = packages.use()[0].energy_j
    rapl(tmp_path, 30_000)
    after = packages.use()[0].energy_j

    # 50,000 µJ; then 50,000 up to the highest count of 1,000,000 and 30,000 after it
    assert (packages.gap, round(before, 9), round(after, 9)) == ("", 0.05, 0.13)


def test_no_counter_of_a_package_is_a_gap(tmp_path: Path):
    assert "there is no RAPL counter" in Packages(tmp_path / "missing").gap
    (tmp_path / "intel-rapl:0").mkdir()
    assert "root only" in Packages(tmp_path).gap
    assert Packages(tmp_path).use() == ()


def test_node_and_rank_are_those_of_the_launcher():
    assert node({"SLURMD_NODENAME": "n07"}) == "n07"
    assert node({}) == os.uname().nodename
    assert [rank({name: "3"}) for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")] == [
        3
    ] * 4
    assert (rank({}), rank({"RANK": "x"}), ranks({}), ranks({"SLURM_NTASKS": "16"})) == (None, None, 1, 16)


def test_without_its_libraries_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(MissingExtra, match=r"pip install 'escala\[watch\]'"):
        require_libraries("watch")


def test_what_a_container_hides_is_none(monkeypatch: pytest.MonkeyPatch):
    def hidden(**_: bool) -> None:
        raise FileNotFoundError("/proc/diskstats")

    for name in ("disk_io_counters", "net_io_counters", "net_if_stats"):
        monkeypatch.setattr(f"psutil.{name}", hidden)
    samples, _ = burnt(cpu_s=0.0, every_s=10.0)

    assert samples[-1].machine.disk_read_bytes is None
    assert samples[-1].interfaces == ()
    assert samples[-1].machine.memory_bytes > 0
