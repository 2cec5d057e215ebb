"""Files of one run become one record; files of two are refused; warm-up, ranks and restarts follow rules."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from escala.errors import InvalidInput
from escala.measurement.logs.record import record
from escala.measurement.logs.steptimes import usual_warmup

DATA = Path(__file__).parent / "data"
LINE = (
    " [2025-04-13 23:{m:02d}:{s:02d}] iteration {i:8d}/ 100 | consumed samples: 1 | "
    "elapsed time per iteration (ms): {ms:.1f} | global batch size: {batch:5d} |\n"
)


def megatron(path: Path, ms: Sequence[float], first: int = 1, batch: int = 8) -> str:
    lines = (
        LINE.format(i=i, m=i // 60, s=i % 60, ms=each, batch=batch) for i, each in enumerate(ms, start=first)
    )
    path.write_text("".join(lines))
    return str(path)


@pytest.mark.parametrize(("samples", "dropped"), [(1, 0), (2, 0), (3, 1), (19, 1), (20, 2), (5000, 10)])
def test_warm_up_is_a_tenth_at_least_one_and_at_most_ten(samples: int, dropped: int):
    assert usual_warmup(samples) == dropped


def test_a_given_warm_up_counts(tmp_path: Path):
    log = megatron(tmp_path / "a", [9000, 5000, 1000, 1000, 1000])

    step = record([log], 2).step
    assert step is not None
    assert (step.median_s, step.low_quartile_s, step.warmup_samples) == (1.0, 1.0, 2)
    with pytest.raises(InvalidInput, match="--warmup 5 leaves nothing of 5 samples"):
        record([log], 5)


def test_files_of_ranks_keep_the_slowest_and_name_the_straggler(tmp_path: Path):
    logs = [megatron(tmp_path / f"rank{i}.log", [1000.0 + 100 * (i == 2)] * 5) for i in range(4)]

    found = record(logs)
    assert found.step is not None
    assert found.step.median_s == 1.1
    assert [each.rank for each in found.ranks if each.is_straggler] == ["rank2.log"]
    assert len(found.ranks) == 4


def test_five_percent_is_no_straggler(tmp_path: Path):
    logs = [megatron(tmp_path / "a", [1000.0] * 5), megatron(tmp_path / "b", [1050.0] * 5)]

    assert [each.is_straggler for each in record(logs).ranks] == [False, False]


def test_files_whose_steps_follow_each_other_are_one_run(tmp_path: Path):
    logs = [megatron(tmp_path / "b", [2000.0] * 5, first=6), megatron(tmp_path / "a", [1000.0] * 5)]

    found = record(logs)
    assert found.step is not None
    assert found.step.samples == 9
    assert found.ranks == ()
    assert found.last_step == 10


def test_steps_that_go_back_are_a_restart(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text(Path(megatron(tmp_path / "a", [1000.0] * 5)).read_text() * 2)

    (note,) = record([str(log)]).notes
    assert note == "the steps go back 1 times: the run was restarted, or counts each epoch anew"


def test_batches_that_differ_are_two_runs(tmp_path: Path):
    logs = [megatron(tmp_path / "a", [1000.0] * 3), megatron(tmp_path / "b", [1000.0] * 3, batch=16)]

    with pytest.raises(InvalidInput, match=r"different runs \(8 and 16 samples of a global batch\)"):
        record(logs)


def test_a_batch_that_is_ramped_up_counts_at_its_end(tmp_path: Path):
    log = tmp_path / "log"
    start = Path(megatron(tmp_path / "a", [1000.0] * 3)).read_text()
    log.write_text(start + Path(megatron(tmp_path / "b", [1000.0] * 3, first=4, batch=16)).read_text())

    assert record([str(log)]).global_batch == 16


def test_power_of_another_day_is_refused(tmp_path: Path):
    power = tmp_path / "power.csv"
    power.write_text(
        "timestamp, power.draw [W]\n" + "".join(f"2025/04/14 10:00:0{s}.0, 9\n" for s in range(3))
    )

    with pytest.raises(InvalidInput, match="at another time than the steps"):
        record([str(DATA / "megatron.log"), str(power)])


def power(path: Path, second: int, watts: int) -> str:
    rows = (f"2025/04/13 23:00:{second + each:02d}.0, 0, {watts}\n" for each in range(3))
    path.write_text("timestamp, index, power.draw [W]\n" + "".join(rows))
    return str(path)


def test_power_files_of_the_same_hours_are_nodes(tmp_path: Path):
    found = record([power(tmp_path / "node1", 0, 300), power(tmp_path / "node2", 1, 400)]).power

    assert found is not None
    assert (found.devices, found.mean_w, found.energy_j) == (2, 700.0, (300 + 400) * 2)


def test_power_files_one_after_the_other_are_the_same_devices(tmp_path: Path):
    found = record([power(tmp_path / "b", 10, 400), power(tmp_path / "a", 0, 300)]).power

    # two seconds at 300 W, eight from 300 to 400 W, two at 400 W
    assert found is not None
    assert (found.devices, found.energy_j) == (1, 300 * 2 + 350 * 8 + 400 * 2)


def test_power_of_a_second_tool_is_left_out(tmp_path: Path):
    found = record([power(tmp_path / "a", 0, 300), str(DATA / "dmon.txt")])

    assert found.power is not None
    assert found.power.mean_w == 300.0
    assert "dmon.txt is left out" in found.notes[0]


def test_ranks_without_a_name_are_said(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text("".join(LINE.format(i=i // 2, m=0, s=i, ms=1000.0, batch=8) for i in range(2, 8)))

    assert record([str(log)]).notes == ("3 lines repeat a step: ranks whose lines do not name them are one",)


def test_a_mesh_that_is_left_open_says_no_devices(tmp_path: Path):
    log = tmp_path / "log"
    text = (DATA / "torchtitan.log").read_text()
    log.write_text(text.replace("dp_shard=2", "dp_shard=-1"))

    assert record([str(log)]).devices is None


def test_the_first_tool_with_seconds_tells_the_step(tmp_path: Path):
    found = record([str(DATA / "wandb-history.jsonl"), megatron(tmp_path / "a", [1000.0] * 5)])

    assert found.step is not None
    assert (found.step.how, found.step.median_s) == ("logged", 1.0)


def test_a_folder_is_read_and_what_is_no_log_in_it_left_aside(tmp_path: Path):
    megatron(tmp_path / "a", [1000.0] * 5)
    (tmp_path / "config.yaml").write_text("lr: 1\n")
    (tmp_path / "weights.bin").write_bytes(bytes(1000))

    found = record([str(tmp_path)])
    assert len(found.sources) == 1
    assert found.notes == (f"2 files of {tmp_path} are no log",)


def test_two_runs_of_mlflow_are_refused(tmp_path: Path):
    for run in "ab":
        (tmp_path / run / "metrics").mkdir(parents=True)
        (tmp_path / run / "metrics" / "loss").write_text("1796038353513 1.0 1\n")

    with pytest.raises(InvalidInput, match="2 MLflow runs are named"):
        record([str(tmp_path)])
