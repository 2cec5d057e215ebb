import json
import os
from pathlib import Path

import msgspec
import pytest

from emitting.fakes import FAKES
from escala.emitting import targets
from escala.report.emit_view import EmitAnswer

FSDP = ("--fix", "zero=3,reshard=true,compile=true,fused_loss=false")


@pytest.fixture
def faked(run, eight, monkeypatch: pytest.MonkeyPatch):
    """Plans of the last run are FSDP on eight devices; the targets are fakes."""
    monkeypatch.setattr(targets, "writers", lambda: FAKES)
    assert run("plan", *eight, *FSDP, "-o", "plan.json").code == 0
    return run


def answer(result) -> EmitAnswer:
    return msgspec.json.decode(result.out, type=EmitAnswer)


def test_without_a_target_all_are_ranked(faked):
    found = answer(faked("emit", "--json"))

    assert found.schema == "escala/emit@1"
    assert [each.name for each in found.targets if each.is_expressed] == ["sharding"]
    assert {each.name for each in found.targets} == set(FAKES)
    assert all(bool(each.reasons) != each.is_expressed for each in found.targets)


def test_the_engine_of_a_target_is_asked_what_it_makes_of_the_plan(faked):
    ranked = {each.name: each for each in answer(faked("emit", "--json")).targets}
    own, other = ranked["sharding"], ranked["piped"]
    story = json.loads(faked("explain", "--json").out)

    assert (own.engine, other.engine) == ("pytorch", "hf-trainer")
    assert own.engine_step_s == story["plan"]["step_s"]["value"]
    assert own.engine_verdict == story["plan"]["verdict"]
    assert other.nearest is not None
    assert other.engine_step_s != other.nearest.step_s


def test_files_are_written_with_the_plan_and_its_hash(faked, tmp_path: Path):
    found = answer(faked("emit", "--to", "sharding", "--json"))

    assert found.written is not None
    assert found.written.files == ("sharding.sh", "plan.json")
    text = (tmp_path / "sharding" / "sharding.sh").read_text()
    assert f"written by escala from plan {found.digest}" in text
    assert "learning rate 0.0003, 1000 steps, data allenai/c4" in text
    assert answer(faked("emit", "sharding/plan.json", "--json")).digest == found.digest


def test_the_same_plan_gives_the_same_bytes(faked, tmp_path: Path):
    assert faked("emit", "--to", "sharding", "-o", "a").code == 0
    assert faked("emit", "plan.json", "--to", "sharding", "-o", "b").code == 0

    first, second = ((tmp_path / name / "sharding.sh").read_bytes() for name in "ab")
    assert first == second


def test_what_a_target_lacks_is_refused_with_the_nearest_plan_and_its_command(faked, tmp_path: Path):
    refused = faked("emit", "1", "--to", "piped")

    assert refused.code == 1
    assert "cannot express this plan" in refused.out
    assert "ZeRO stage 3: it has 0, 1" in refused.out
    assert "escala emit 1 --to piped --nearest" in refused.out
    assert not (tmp_path / "piped").exists()


def test_the_nearest_plan_is_written_as_a_plan_of_its_own(faked):
    asked, written = (
        answer(faked("emit", "--json")),
        answer(faked("emit", "--to", "piped", "--nearest", "--json")),
    )

    assert written.written is not None
    assert written.digest != asked.digest
    assert written.in_place_of == asked.title
    assert written.title != asked.title
    assert answer(faked("emit", "piped/plan.json", "--json")).digest == written.digest


def test_a_scheduler_starts_the_files_of_another_target(faked, tmp_path: Path):
    found = answer(faked("emit", "--to", "sharding", "--launch", "scheduler", "--json"))

    assert found.written is not None
    assert found.written.files == ("sharding.sh", "scheduler.sh", "plan.json")
    job = tmp_path / "sharding" / "scheduler.sh"
    assert job.read_text().endswith("\nrun --ranks 8\n")
    assert os.access(job, os.X_OK)


def test_another_file_is_not_replaced_unasked(faked, tmp_path: Path):
    assert faked("emit", "--to", "sharding").code == 0
    assert faked("emit", "--to", "sharding").code == 0  # the same files
    refused = faked("emit", "--to", "sharding", "--lr", "1e-4")

    assert refused.code == 2
    assert "sharding/sharding.sh exists and would change" in refused.err
    assert faked("emit", "--to", "sharding", "--lr", "1e-4", "--force").code == 0
    assert "learning rate 0.0001" in (tmp_path / "sharding" / "sharding.sh").read_text()


def test_nothing_is_half_written(faked, tmp_path: Path):
    (tmp_path / "place" / "plan.json").mkdir(parents=True)

    refused = faked("emit", "--to", "sharding", "-o", "place", "--force")

    assert refused.code == 2
    assert [each.name for each in (tmp_path / "place").iterdir()] == ["plan.json"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--to", "shard"), "unknown target 'shard': did you mean sharding"),
        (("--to", "sharding", "--launch", "piped"), "unknown scheduler 'piped'"),
        (("-o", "x"), "-o goes with --to"),
        (("9",), "there is no plan 9"),
        (("--lr", "0"), "no number from"),
        (("--data", "a\nb"), "the name of the data is 'a\\nb'"),
        (("--model-path", " "), "the name of the model is ' '"),
        (("--to", "sharding", "-o", "plan.json"), "plan.json"),
    ],
)
def test_wrong_input_is_one_line(faked, arguments: tuple[str, ...], said: str):
    refused = faked("emit", *arguments)

    assert refused.code == 2
    assert said in refused.err
    assert refused.err.count("\n") == 1


def test_a_plan_that_breaks_a_rule_is_not_written(faked, tmp_path: Path):
    keys = json.loads((tmp_path / "plan.json").read_text())
    keys["plan"]["tp"] = 3
    (tmp_path / "broken.json").write_text(json.dumps(keys))

    refused = faked("emit", "broken.json", "--to", "sharding")

    assert refused.code == 2
    assert "the plan cannot be run" in refused.err


def test_steps_are_the_tokens_of_the_plan_over_those_of_a_step(faked, eight):
    # 10 steps of 128 sequences of 8,192 tokens
    assert faked("plan", *eight, *FSDP, "--global-batch", "128", "--tokens", "10485760").code == 0

    found = answer(faked("emit", "--json"))

    assert found.steps == 10
    assert {each.option for each in found.assumptions} == {"--model-path", "--data", "--lr", "--steps"}


def test_lines_fit_the_terminal(faked):
    shown = [
        faked("emit"),
        faked("emit", "--to", "piped"),
        faked("emit", "--to", "sharding"),
        faked("emit", "--to", "piped", "--nearest"),
    ]

    assert max(each.longest for each in shown) <= 80


def test_a_scheduler_is_started_by_no_scheduler(run, eight):
    assert run("plan", *eight, "-o", "plan.json").code == 0
    schedulers = sorted(targets.wrappers())

    codes = {
        (to, launch): run("emit", "plan.json", "--to", to, "--launch", launch, "-o", "out").code
        for to in schedulers
        for launch in schedulers
    }

    assert set(codes.values()) == {2}
    assert not Path("out").exists()
