"""`escala record` and `escala verify`: text in 80 columns, documents, files, exit codes, wrong input."""

import json
from pathlib import Path

import msgspec
import pytest

from escala.measurement.logs.record import record
from escala.measurement.runrecord import RunRecord
from escala.measurement.verify import Verified
from escala.report.runfile import read_run

DATA = Path(__file__).parents[1] / "measurement" / "data"
MEGATRON, POWER = str(DATA / "megatron.log"), str(DATA / "nvidia-smi.csv")
SAMPLES = sorted(str(path) for path in DATA.iterdir() if path.name not in ("README.md", "zeus-no-gpu.csv"))


@pytest.mark.parametrize("name", SAMPLES, ids=lambda name: Path(name).name)
@pytest.mark.parametrize("columns", ["40", "80"])
def test_every_sample_fits_the_terminal(run, name: str, columns: str, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)

    result = run("record", name)
    assert (result.code, result.err) == (0, "")
    assert result.longest <= int(columns)


def test_the_text_has_what_was_read_and_what_the_logs_do_not_say(run):
    text = run("record", MEGATRON, POWER).out

    assert "median 4 s" in text
    assert "10 samples after 1 of warm-up (logged)" in " ".join(text.split())
    assert "131,000 tok/s (derived)" in text
    assert "50 GiB allocated (rank 0)" in text
    assert "mean 5,080 W of 8 devices together" in text
    assert "Unsaid" not in text
    assert "power or energy" in run("record", MEGATRON).out


def test_what_a_watch_used_is_shown_and_kept_in_the_record(run, tmp_path: Path):
    text = run("record", str(DATA / "watch-samples.jsonl"), "--out", "run.json").out

    assert "vm: 13.2 s in 15 samples" in " ".join(text.split())
    for word in ("of 2 cores busy", "resident", "Net    lo in", "no counter"):
        assert word in text
    assert read_run("run.json") == record([str(DATA / "watch-samples.jsonl")])


def test_a_record_is_one_document_and_the_same_in_its_file(run, tmp_path: Path):
    result = run("record", MEGATRON, POWER, "--json", "--out", "run.json")

    found = msgspec.json.decode(result.out, type=RunRecord)
    assert found.schema == "escala/run@1"
    assert (tmp_path / "run.json").read_text() == result.out
    assert result.err == "wrote run.json\n"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "missing argument"),
        (("missing.log",), "missing.log does not exist"),
        (("",), "a name is empty"),
        ((MEGATRON, MEGATRON), "named twice"),
        ((MEGATRON, "--warmup", "11"), "--warmup 11 leaves nothing of 11 samples"),
        ((MEGATRON, "--warmup", "-1"), "no whole number"),
        ((MEGATRON, "--out", "missing/run.json"), "cannot be written"),
        ((MEGATRON, "--out", ""), "names no file"),
        ((str(DATA / "README.md"),), "in no format that can be read"),
        ((str(DATA / "zeus-no-gpu.csv"),), "has no number of a run"),
    ],
)
def test_wrong_logs_are_one_line_and_exit_2(run, arguments: tuple[str, ...], said: str):
    result = run("record", *arguments)

    assert (result.code, result.out) == (2, "")
    assert said in result.err.lower() or said in result.err
    assert result.err.count("\n") == 1


def test_a_log_is_never_overwritten(run, tmp_path: Path):
    log = tmp_path / "a.log"
    log.write_bytes(Path(MEGATRON).read_bytes())

    result = run("record", "a.log", "--out", str(log))
    assert result.code == 2
    assert "is a log that was read" in result.err
    assert log.read_bytes() == Path(MEGATRON).read_bytes()


def test_verify_compares_with_the_plan_of_a_file_or_the_last_run(run, planned: Path, logs: Path):
    by_file, by_number = run("verify", "run.json", "plan.json"), run("verify", "run.json")

    assert (by_file.code, by_file.err) == (0, "")
    assert by_file.out == by_number.out
    assert by_file.longest <= 80
    text = " ".join(by_file.out.split())
    assert "of 6 recorded quantities in the 80 % interval" in text
    assert "recorded 4 s (logged)" in text
    assert "the logs do not say global batch" in text


def test_verify_in_json_agrees_with_explain(run, planned: Path, logs: Path):
    found = msgspec.json.decode(run("verify", "run.json", "plan.json", "--json").out, type=Verified)
    explained = json.loads(run("explain", "plan.json", "--json").out)["plan"]

    assert found.schema == "escala/verify@1"
    step = found.compared[0]
    assert {"value": step.predicted, "low": step.low, "high": step.high} == explained["step_s"]
    assert step.recorded == pytest.approx(4.0015)


def test_nothing_to_compare_is_exit_1(run, planned: Path):
    assert run("record", str(DATA / "emissions.csv"), "--out", "run.json").code == 0

    result = run("verify", "run.json", "plan.json")
    assert result.code == 1
    assert "Nothing of this run can be compared" in result.out
    assert "energy: the logs have no step time" in " ".join(result.out.split())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": "escala/run@2"}, "this escala reads 'escala/run@1'"),
        ({"devices": -8}, "finite and not negative"),
        ({"devices": 16}, "the run has 16 devices and the plan 8"),
        ({"step": None, "stepp": 1}, "did you mean step"),
        ({"memory": [{"counter": "host", "peak_bytes": 1.0, "lane": ""}]}, "counter 'host' is unknown"),
    ],
)
def test_a_record_that_is_wrong_is_one_line(
    run, planned: Path, logs: Path, change: dict[str, object], said: str
):
    logs.write_text(json.dumps(json.loads(logs.read_text()) | change))

    result = run("verify", "run.json", "plan.json")
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("",), "no run is named"),
        (("missing.json",), "does not exist"),
        (("train.log",), "is no run record; write one with `escala record train.log --out run.json`"),
        (("bin.dat", "plan.json"), "is no run record; give the run.json that `escala record LOGS"),
        (("empty.json", "plan.json"), "is no run record; give the run.json"),
        (("run.json", "empty.json"), "empty.json is empty; check the path"),
        (("plan.json",), "this escala reads 'escala/run@1'"),
        (("run.json", "run.json"), "is the record of a run; set it beside its plan"),
        (("run.json", "99"), "there is no plan 99"),
    ],
)
def test_wrong_names_of_verify(run, planned: Path, logs: Path, arguments: tuple[str, ...], said: str):
    Path("bin.dat").write_bytes(b"\0\1")
    Path("empty.json").write_bytes(b"")
    result = run("verify", *arguments)

    assert (result.code, result.out) == (2, "")
    assert said in result.err
