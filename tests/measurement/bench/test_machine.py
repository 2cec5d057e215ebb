"""What needs neither torch nor a GPU of the parts that talk to drivers, launchers and counters."""

import shutil
import time
from pathlib import Path

import pytest

from escala.errors import InvalidInput
from escala.measurement.bench.counters import rapl_j, watts
from escala.measurement.bench.levels import members, parts
from escala.measurement.bench.request import (
    checked_folder,
    checked_kind,
    is_first,
    is_launched,
    refuse_both,
    refuse_unwritable_file,
)
from escala.measurement.bench.smi import smi_facts

LAUNCH = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "1"}


def test_ranks_of_a_node_follow_each_other_and_rails_join_the_same_place_of_every_node():
    # two nodes of four
    assert [members("node", rank, 8, 4) for rank in (0, 3, 6)] == [(0, 1, 2, 3), (0, 1, 2, 3), (4, 5, 6, 7)]
    assert [members("network", rank, 8, 4) for rank in (0, 5, 7)] == [(0, 4), (1, 5), (3, 7)]


def test_a_level_is_timed_whole_and_in_blocks_of_two_four_and_so_on():
    assert parts((0, 1, 2, 3)) == ((0, 1, 2, 3), (0, 1), (2, 3))
    assert parts((0, 2, 4, 6, 8, 10)) == ((0, 2, 4, 6, 8, 10), (0, 2), (4, 6), (8, 10))  # 4 do not divide 6
    assert (parts((0, 1)), parts((0,))) == (((0, 1),), ())


def test_a_line_of_nvidia_smi_in_base_units():
    assert smi_facts("550.54.15, 1980, 1980, 700.00, 5, 16") == {
        "driver": "550.54.15",
        "pcie": "gen 5, 16 lanes",
        "clock_hz": 1.98e9,
        "most_clock_hz": 1.98e9,
        "power_cap_w": 700.0,
    }


@pytest.mark.parametrize("line", ["", "no devices were found"])
def test_nvidia_smi_that_says_something_else_says_nothing(line: str):
    assert smi_facts(line) == {}


def test_what_nvidia_smi_does_not_know_is_unknown():
    facts = smi_facts("550.54.15, [N/A], 1980, [Not Supported], 4, [N/A]")

    assert (facts["clock_hz"], facts["power_cap_w"], facts["pcie"]) == (None, None, None)


def test_joules_of_processor_packages_are_added_and_parts_of_them_are_not(tmp_path: Path):
    for name, microjoules in (("intel-rapl:0", 3_000_000), ("intel-rapl:1", 500_000), ("intel-rapl:0:0", 9)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(f"{microjoules}\n")

    assert rapl_j(tmp_path) == pytest.approx(3.5)


def test_no_counter_is_no_number(tmp_path: Path):
    (tmp_path / "intel-rapl:0").mkdir()

    assert rapl_j(tmp_path) is None
    assert rapl_j(tmp_path / "missing") is None
    assert watts(lambda: None, lambda: None) is None


def test_watts_are_joules_over_seconds(monkeypatch: pytest.MonkeyPatch):
    clock, counter = iter((10.0, 12.0)), iter((100.0, 500.0))
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))

    assert watts(lambda: next(counter), lambda: None) == 200.0


def test_a_counter_that_began_again_gives_no_watts():
    counter = iter((500.0, 1.0))

    assert watts(lambda: next(counter), lambda: None) is None


def test_devices_are_cuda_and_cpu():
    assert (checked_kind(None), checked_kind("CPU")) == (None, "cpu")
    with pytest.raises(InvalidInput, match=r"unknown device 'tpu'.*choose cuda or cpu"):
        checked_kind("tpu")


def test_places_that_take_no_files_are_refused_before_anything_is_timed(tmp_path: Path):
    with pytest.raises(InvalidInput, match=r"--folder: .*missing takes no files"):
        checked_folder(str(tmp_path / "missing"))
    with pytest.raises(InvalidInput, match=r"--out: .* takes no files"):
        refuse_unwritable_file(tmp_path / "missing" / "bench.json")
    with pytest.raises(InvalidInput, match="is a folder"):
        refuse_unwritable_file(tmp_path)

    refuse_unwritable_file(tmp_path / "bench.json")
    refuse_unwritable_file(Path("/dev/null"))
    assert list(tmp_path.iterdir()) == []


def test_a_launched_rank_is_known_by_what_torchrun_sets():
    assert not is_launched({})
    assert is_launched(LAUNCH)
    assert (is_first({}), is_first(LAUNCH), is_first(LAUNCH | {"RANK": "0"})) == (True, False, True)
    with pytest.raises(InvalidInput, match="--ranks 2 was given to one of 4 launched ranks"):
        refuse_both(2, LAUNCH)
    refuse_both(1, LAUNCH)
    refuse_both(2, {})


def test_the_usual_folder_takes_files():
    assert shutil.disk_usage(checked_folder(None)).total > 0
