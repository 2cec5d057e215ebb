"""From a log and a plan to a corrected plan, on the command line; wrong input is one clear line."""

import json
import os
import shutil
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from escala.cli.app import main
from escala.cli.output import json_bytes
from escala.report.calibrate_view import calibration_answer, save_calibration

WORK = ("llama-3.1-8b", "--gpus", "8", "--gpu", "h100-sxm", "--seq", "4096", "--global-batch", "128")
LINE = (
    " [2025-04-13 23:41:{second:02d}] iteration {step:8d}/      20 | consumed samples: {samples:12d} |"
    " elapsed time per iteration (ms): {ms:.1f} | global batch size:   128 | lm loss: 1.17E+01 |\n"
)
HEAD = "using world size: 8, data-parallel size: 8, context-parallel size: 1, tensor-model-parallel size: 1\n"


def ran(folder: Path, ratio: float) -> None:
    """A log of the plan in the folder that took so many times as long as predicted, and its record."""
    step_s = json.loads((folder / "plan.json").read_text())["estimate"]["step_s"]["value"]
    lines = [
        LINE.format(second=step, step=step, samples=128 * step, ms=1e3 * ratio * step_s)
        for step in range(1, 20)
    ]
    (folder / "train.log").write_text(HEAD + "".join(lines))
    assert main(["record", str(folder / "train.log"), "--out", str(folder / "run.json"), "--json"]) == 0


@pytest.fixture(scope="session")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders one, two and four with a plan of that micro-batch and a run of it, 20, 15 and 10 % slow."""
    base = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ESCALA_CACHE_DIR", str(base / "cache"))
        for name, size, ratio in (("one", 1, 1.2), ("two", 2, 1.15), ("four", 4, 1.1)):
            folder = base / name
            folder.mkdir()
            fixed = f"tp=1,pp=1,cp=1,zero=3,micro_batch={size}"
            assert main(["plan", *WORK, "--fix", fixed, "-o", str(folder / "plan.json"), "--json"]) == 0
            ran(folder, ratio)
    with chdir(base):
        found = calibration_answer(("one", "two", "four"), lambda what, left_s: None)
        save_calibration(found, "c.toml")
    (base / "c.json").write_bytes(json_bytes(found))
    return base


@pytest.fixture
def runs(run, three: Path, tmp_path: Path) -> Path:
    """The three runs in the current folder."""
    shutil.copytree(three, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def calibrated(runs: Path) -> dict[str, Any]:
    """The document of a calibration with all three, which also stands in c.toml."""
    return json.loads((runs / "c.json").read_text())


def test_errors_fall_and_the_file_is_written(run, runs: Path):
    result = run("calibrate", "one", "two", "four", "-o", "new.toml", "--json")
    calibrated = json.loads(result.out)
    errors = calibrated["errors"]

    assert calibrated["schema"] == "escala/calibrate@1"
    assert errors["after"] < errors["left_out"] < errors["before"]
    assert [each["name"] for each in calibrated["runs"]] == ["one", "two", "four"]
    assert calibrated["runs"][0]["error_before"] == pytest.approx(1 / 1.2 - 1, rel=1e-3)
    assert (runs / "new.toml").read_text() == (runs / "c.toml").read_text()
    assert (runs / "c.toml").read_text().count("[[factor]]") == len(calibrated["calibration"]["factor"])


def test_people_see_what_moved_and_who_pulled_it(run, runs: Path):
    result = run("calibrate", "one", "two/run.json:two/plan.json", "four")

    assert result.code == 0
    assert result.longest <= 80
    assert "3 runs: mean error 12.9 % before" in result.out
    assert "pytorch gemm_level" in result.out
    assert "pulled by one" in result.out
    assert "would be informed by" in result.out


def test_a_plan_with_the_file_is_predicted_as_calibrated(run, calibrated):
    for each in calibrated["runs"]:
        document = run(
            "verify",
            f"{each['name']}/run.json",
            f"{each['name']}/plan.json",
            "--calibration",
            "c.toml",
            "--json",
        )
        step = next(row for row in json.loads(document.out)["compared"] if row["quantity"] == "step time")

        assert step["predicted"] == pytest.approx(each["after_s"], rel=1e-9)
        assert step["error"] == pytest.approx(each["error_after"], rel=1e-6)


def test_the_width_of_a_calibrated_plan_is_the_one_that_was_told(run, calibrated):
    (width,) = calibrated["widths"]

    document = json.loads(run("explain", "one/plan.json", "--calibration", "c.toml", "--json").out)

    assert document["plan"]["interval_ratio"] == pytest.approx(width["ratio"], rel=1e-12)
    assert "and 3 own" in document["doubt"]
    assert any("gemm_level" in words for words in document["calibration"]["own"])


def test_a_calibrated_plan_remembers_its_calibration(run, calibrated, runs: Path):
    planned = json.loads(run("plan", *WORK, "--calibration", "c.toml", "-o", "p.json", "--json").out)
    chosen = planned["plans"][planned["recommended"]]

    file = json.loads((runs / "p.json").read_text())
    explained = json.loads(run("explain", "p.json", "--json").out)
    recalled = json.loads(run("explain", "--json").out)

    assert file["calibration"]["digest"] == calibrated["calibration"]["digest"]
    assert file["cluster"] == json.loads((runs / "one" / "plan.json").read_text())["cluster"]
    assert explained["plan"]["step_s"] == recalled["plan"]["step_s"] == chosen["step_s"]
    assert explained["calibration"]["own"] == planned["calibration"]["own"] != []


def test_the_file_may_stand_in_the_settings(run, calibrated, runs: Path):
    (runs / "escala.toml").write_text('[explain]\ncalibration = "c.toml"\n')

    assert json.loads(run("explain", "one/plan.json", "--json").out)["calibration"]["own"] != []


def test_without_the_file_plans_are_as_before(run, calibrated, runs: Path):
    before = json.loads((runs / "one" / "plan.json").read_text())["estimate"]["step_s"]["value"]

    document = json.loads(run("explain", "one/plan.json", "--json").out)

    assert document["plan"]["step_s"]["value"] == before
    assert document["calibration"]["own"] == []


def test_how_many_devices_is_answered_under_a_calibration(run, calibrated):
    asked = ("plan", "llama-3.2-1b", "--gpu", "h100-sxm", "--max-gpus", "8", "--json")

    plain, own = (json.loads(run(*asked, *more).out) for more in ((), ("--calibration", "c.toml")))

    slower = [
        b["step_s"] / a["step_s"]
        for a, b in zip(plain["scaling"]["points"], own["scaling"]["points"], strict=True)
    ]
    assert all(1.0 < ratio < 1.2 for ratio in slower)
    assert own["plans"][0]["step_s"]["value"] > plain["plans"][0]["step_s"]["value"]


def test_what_verify_wrote_is_a_pair(run, runs: Path):
    assert run("verify", "one/run.json", "one/plan.json", "-o", "pair.json").code == 0

    pair, folder = (json.loads(run("calibrate", name, "--json").out) for name in ("pair.json", "one"))

    assert pair["numbers"] != []
    assert [e["factor"] for e in pair["numbers"]] == [e["factor"] for e in folder["numbers"]]
    assert pair["calibration"]["digest"] == folder["calibration"]["digest"]


RANK = {
    "rank": 0,
    "path": "trace.json",
    "step_s": 9.0,
    "phases": dict(
        data_s=0.5, forward_s=2.5, backward_s=5.0, communication_s=0.5, optimizer_s=0.2, idle_s=0.3
    ),
    "waits": dict(compute_s=7.0, memory_s=0.5, launch_s=0.2, communication_s=0.5, input_s=0.5, idle_s=0.3),
    "message_s": 1.0,
    "hidden_s": 0.5,
    "traffic": [],
    "launches": {"count": 1000.0, "mean_s": 0.007, "gap_s": 0.0002},
    "memory": [],
    "flop": None,
}
PROFILE = {
    "schema": "escala/profile@1",
    "escala": "0",
    "device": "NVIDIA H100 80GB HBM3",
    "has_device": True,
    "backend": "nccl",
    "run_ranks": 8,
    "steps": {"how": "marked", "count": 1, "each_s": [9.0]},
    "critical_rank": 0,
    "ranks": [RANK],
    "arrivals": [],
    "speed": None,
    "verdict": {"kind": "compute", "told": "", "changes": []},
    "predicted": None,
    "unsaid": [],
    "notes": [],
}


def test_a_profile_stands_in_place_of_a_run(run, runs: Path):
    (runs / "one" / "profile.json").write_text(json.dumps(PROFILE))

    document = json.loads(run("calibrate", "one/profile.json:one/plan.json", "--json").out)
    text = run("calibrate", "one/profile.json:one/plan.json", "two").out

    assert [each["part"] for each in document["runs"]][:2] == ["", "forward and backward"]
    assert document["runs"][0]["measured_s"] == pytest.approx(
        8.4, rel=1e-12
    )  # 9.0 - 0.5 - 0.3 + 0.2 of launches
    assert "2 runs: mean error" in text
    assert "\n    forward and backward" in text


def test_a_folder_with_a_run_and_a_profile_is_refused(run, runs: Path):
    (runs / "one" / "profile.json").write_text(json.dumps(PROFILE))

    assert (
        "one has to hold one run or profile and holds profile.json, run.json" in run("calibrate", "one").err
    )


def test_the_plan_of_the_last_run_may_be_meant_by_number(run, runs: Path):
    run("explain", "one/plan.json")
    assert run("plan", *WORK, "--fix", "tp=1,pp=1,zero=3,micro_batch=1").code == 0

    assert run("calibrate", "one/run.json:1", "--json").code == 0


def test_repeats_are_told_from_configurations(run, runs: Path):
    result = run("calibrate", "one", "one/run.json:one/plan.json", "two")

    assert "3 runs of 2 configurations" in result.out
    assert "fewer than 3" in " ".join(result.out.split())


def test_two_engines_have_each_their_numbers(run, runs: Path):
    keys = json.loads((runs / "two" / "plan.json").read_text())
    (runs / "two" / "plan.json").write_text(json.dumps({**keys, "engine": "torchtune"}))

    document = json.loads(run("calibrate", "one", "two", "--json").out)

    engines = {each["name"] for each in document["numbers"] if each["of"] == "engine"}
    assert engines == {"pytorch", "torchtune"}
    assert len([each for each in document["numbers"] if each["field"] == "gemm_efficiency"]) == 1


def test_a_run_that_fits_badly_is_pointed_at(run, runs: Path, capsys: pytest.CaptureFixture[str]):
    ran(runs / "two", 6.0)
    capsys.readouterr()

    document = json.loads(run("calibrate", "one", "two", "four", "--json").out)

    assert [each["is_odd"] for each in document["runs"]] == [False, True, False]
    assert any(text.startswith("two fits badly") for text in document["warnings"])


def test_memory_is_checked_and_moves_nothing(run, runs: Path):
    log = (runs / "one" / "train.log").read_text()
    peak = (
        "[Rank 0] (after 2 iterations) memory (MB) | allocated: 21000.0 | max allocated: 30720.0"
        " | reserved: 67000.0 | max reserved: 67584.0\n"
    )
    plain = json.loads(run("calibrate", "one", "--json").out)
    (runs / "one" / "train.log").write_text(log + peak)
    run("record", "one/train.log", "--out", "one/run.json")

    document = json.loads(run("calibrate", "one", "--json").out)
    text = run("calibrate", "one").out

    assert [each["compared"]["is_inside"] for each in document["memory"]] == [False, True]
    assert document["numbers"] == plain["numbers"]
    assert "memory is only checked" in text
    assert "allocated recorded 30 GiB" in text


def change(path: Path, **given: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **given}))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("absent", "absent does not exist; give RUN:PLAN"),
        ("one/run.json", "one/run.json is a run without its plan; write one/run.json:plan.json"),
        ("one/plan.json", "schema is 'escala/plan-file@1', which is no run"),
        ("one/run.json:absent.json", "absent.json does not exist"),
        ("one/train.log:one/plan.json", "is no run record"),
        ("one/plan.json:one/plan.json", "this escala reads 'escala/run@1'"),
        (".", "has to hold one run or profile and holds none"),
    ],
)
def test_what_is_no_run_with_a_plan_is_said(run, runs: Path, name: str, said: str):
    result = run("calibrate", name, "-o", "new.toml")

    assert result.code == 2
    assert said in result.err
    assert not (runs / "new.toml").exists()


def test_a_folder_with_two_runs_is_refused(run, runs: Path):
    shutil.copy(runs / "one" / "run.json", runs / "one" / "again.json")

    assert "holds again.json, run.json; write RUN:PLAN instead" in run("calibrate", "one").err


def test_a_plan_of_other_devices_is_refused(run, runs: Path):
    change(runs / "one" / "run.json", devices=16)

    result = run("calibrate", "one")

    assert result.code == 2
    assert "the run has 16 devices and the plan 8" in result.err


def test_a_run_without_step_time_is_refused(run, runs: Path):
    change(runs / "one" / "run.json", step=None)

    assert "one has no step time" in run("calibrate", "one").err


def test_a_place_that_takes_no_file_is_refused_before_anything_is_computed(
    run, runs: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("escala.report.calibrate_view.calibration_answer", lambda *given: pytest.fail("ran"))

    result = run("calibrate", "one", "-o", "absent/own.toml")
    assert (result.code, result.out) == (2, "")
    assert "--output: " in result.err
    assert "takes no files (no such file or directory)" in result.err


@pytest.mark.parametrize("verb", ["record", "calibrate", "profile"])
def test_a_folder_that_may_not_be_read_is_named_and_not_called_empty(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
):
    (tmp_path / "priv").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "priv")

    result = run(verb, "priv")
    assert (result.code, result.out) == (2, "")
    assert "priv may not be read by this user; change its permissions" in result.err


def test_a_run_is_never_written_over(run, runs: Path):
    before = (runs / "one" / "run.json").read_text()

    result = run("calibrate", "one/run.json:one/plan.json", "-o", "one/run.json")

    assert result.code == 2
    assert "is a file that was read" in result.err
    assert (runs / "one" / "run.json").read_text() == before


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("escala/calibration@1", "escala/calibration@2", "a calibration has 'escala/calibration@1'"),
        ('escala = "', 'escala = "9', "calibrate again from the same runs"),
        ('fit = "', 'fit = "9', "stands on the published fit"),
        ("factor = ", "factr = ", "unknown key 'factr': did you mean factor"),
        ('of = "engine"', 'of = "motor"', "unknown owner 'motor'"),
        ('regime = "sharded"', 'regime = "sharted"', "unknown regime 'sharted': did you mean sharded"),
        ("factor = ", "factor = 0.0 #", "is 0, not above 0"),
        ("factor = ", 'factor = "x" #', "it has to be a number"),
        ("[[factor]]", "[[factor", "is not TOML"),
    ],
)
def test_a_broken_calibration_is_refused(run, calibrated, runs: Path, old: str, new: str, said: str):
    text = (runs / "c.toml").read_text()
    assert old in text
    (runs / "broken.toml").write_text(text.replace(old, new))

    result = run("explain", "one/plan.json", "--calibration", "broken.toml")

    assert result.code == 2
    assert said in result.err
    assert result.err.count("\n") == 1


def test_a_foreign_file_is_no_calibration(run, runs: Path):
    result = run("plan", *WORK, "--calibration", "one/plan.json")

    assert result.code == 2
    assert "schema is 'escala/plan-file@1'; a calibration has" in result.err


def test_a_calibration_beside_other_device_numbers_is_refused(run, calibrated, runs: Path):
    keys = json.loads((runs / "one" / "plan.json").read_text())
    keys["cluster"]["groups"][0]["accelerator"]["gemm_efficiency"] = 0.5
    change(runs / "one" / "plan.json", cluster=keys["cluster"])

    result = run("explain", "one/plan.json", "--calibration", "c.toml")

    assert result.code == 2
    assert "calibrate again with runs planned on this cluster" in result.err
