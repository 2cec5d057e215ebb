import json
import re
from pathlib import Path

import msgspec
import pytest

from escala.report.explain_view import Explained


@pytest.fixture
def story(run, planned: Path) -> Explained:
    return msgspec.json.decode(run("explain", "--json").out, type=Explained)


def test_without_a_plan_the_recommended_one_is_explained(run, eight):
    answer = json.loads(run("plan", *eight, "--json").out)

    story = msgspec.json.decode(run("explain", "--json").out, type=Explained)

    assert story.schema == "escala/explain@1"
    assert story.plan.plan == answer["plans"][answer["recommended"]]["plan"]
    assert story.plan.why == "recommended"


def test_a_number_is_a_plan_of_the_last_run(run, eight):
    answer = json.loads(run("plan", *eight, "--json").out)

    story = msgspec.json.decode(run("explain", "2", "--json").out, type=Explained)

    assert story.plan.plan == answer["plans"][1]["plan"]
    assert story.plan.step_s.value == answer["plans"][1]["step_s"]["value"]


def test_a_file_is_explained_as_the_number_is(run, planned: Path):
    assert run("explain", "plan.json").out == run("explain").out


def test_terms_add_up_to_the_step_and_the_waterfall_to_the_utilisation(story: Explained):
    lost = sum(fall.share for fall in story.waterfall)

    assert sum(term.value_s for term in story.terms) == pytest.approx(story.plan.step_s.value, rel=1e-12)
    assert 1 - lost == pytest.approx(story.plan.mfu, abs=0.002)


def test_every_term_has_a_formula(story: Explained):
    assert [term.name for term in story.terms if len(term.formula) < 10] == []


def test_a_timeline_is_a_chrome_trace(run, planned: Path, tmp_path: Path):
    result = run("explain", "--timeline", "timeline.json")

    assert result.err == "wrote timeline.json\n"
    assert json.loads((tmp_path / "timeline.json").read_text())["traceEvents"] != []


def test_a_trace_without_its_libraries_says_how_to_install_them(run, planned: Path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    result = run("explain", "--trace")

    assert result.code == 3
    assert "lacks torch and transformers: pip install 'escala[torch,hf]'" in result.err


def test_what_cannot_be_traced_is_refused_before_anything_is_printed(run):
    plan = ("llama-3.1-8b", "--gpus", "8", "--gpu", "h100-sxm", "--engine", "megatron-core")
    run("plan", *plan)

    result = run("explain", "--trace")

    assert (result.code, result.out) == (2, "")
    assert "its engine is megatron-core, and only pytorch is traced" in result.err


def test_without_a_last_run_the_error_says_what_to_do(run):
    result = run("explain")

    assert result.code == 2
    assert "run `escala plan` first" in result.err


def test_a_plan_that_cannot_run_has_reasons_and_repairs_and_no_numbers(run, planned: Path, tmp_path: Path):
    document = json.loads(planned.read_text())
    document["plan"]["dp"] = 7
    (tmp_path / "odd.json").write_text(json.dumps(document))

    result = run("explain", "odd.json")

    assert result.code == 1
    assert "cannot be run: dp x tp x pp x cp is not the number of devices" in result.out
    assert "Change dp x tp x pp x cp is 7; let it be the 8 devices" in result.out
    assert "Or use" in result.out
    assert "From peak to achieved" not in result.out
    assert "Where the seconds go" not in result.out
    assert json.loads(run("explain", "odd.json", "--json").out)["terms"] == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tp": 3}, "tp=3 does not divide the 8 devices, 32 heads, 8 key-value heads, 14,336 feed-forward"),
        ({"sp": True}, "set sp to false"),
        ({"micro_batches": 3}, "dp x micro_batch x micro_batches is 24; let it be the batch of 128"),
        ({"ep": 2}, "set ep and etp to 1"),
        ({"schedule": "1f1b"}, "schedule none goes with pp 1"),
        ({"shard": 3}, "shard is 1 with zero 0"),
        ({"offload_params": "cpu"}, "the engine pytorch lacks offload-apart"),
    ],
)
def test_what_to_change_in_a_plan_that_cannot_run(run, planned: Path, changes: dict, said: str):
    document = json.loads(planned.read_text())
    document["plan"].update(changes)
    planned.write_text(json.dumps(document))

    result = run("explain", "plan.json")

    assert (result.code, result.longest <= 80) == (1, True)
    assert said in " ".join(result.out.split())


def test_a_plan_that_only_does_not_fit_is_explained(run, planned: Path):
    document = json.loads(planned.read_text())
    document["plan"].update({"micro_batch": 16, "micro_batches": 1})
    planned.write_text(json.dumps(document))

    result = run("explain", "plan.json")

    assert result.code == 1
    assert "cannot be run: does not fit in device memory" in result.out
    assert "Memory of the fullest device" in result.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["llama-3.1-8b", "--gpus", "8", "--gpu", "h100-sxm"],
        ["llama-3.1-405b", "--gpus", "16384", "--gpu", "h100-sxm"],
        ["mixtral-8x22b", "--gpus", "64", "--gpu", "h200-sxm"],
        ["resnet-50", "--gpus", "8", "--gpu", "a100-sxm-80gb"],
    ],
)
def test_no_line_is_longer_than_80_columns(run, arguments: list[str]):
    run("plan", *arguments)

    result = run("explain")

    assert result.code == 0
    assert result.longest <= 80


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("llama-3.2-1b", None),
        ("mamba2-2.7b", "Kind of layer state space 64 ×"),
        ("falcon-h1-0.5b", "Kind of layer attention beside state space 36 ×"),
        ("nemotron-h-8b", "Kinds of layers"),
    ],
)
def test_the_kind_of_layer_is_named_unless_it_is_that_of_a_dense_transformer(run, name, said):
    run("plan", name, "--gpus", "8", "--gpu", "h100-sxm", "--fix", "tp=1,pp=1,cp=1")

    shown = " ".join(run("explain").out.split())

    assert said in shown if said else "Kind of layer" not in shown


def test_a_host_that_makes_a_plan_risky_is_named_with_both_memories(run):
    run("plan", "glm-5", "--gpus", "64", "--gpu", "h100-sxm", "--fix", "tp=1,pp=8,cp=1")

    result = run("explain")
    said = " ".join(result.out.split())

    assert re.search(r"of 79 GiB, risky \(host: [\d,]+ of 1,863 GiB\) device out of memory", said)
    assert re.search(r"Memory of the fullest device: \d+ of 79 GiB, fits", said)
    assert re.search(r"Host [\d,]+ GiB of 1,863 a node, risky · with buffers up to [\d,]+ GiB", said)
    assert result.longest <= 80


def test_the_figures_stand_with_their_intervals(run, planned: Path, story: Explained):
    said = " ".join(run("explain").out.split())
    memory, mfu = story.plan.memory_bytes, story.plan.intervals.mfu

    assert f"MFU {mfu.value * 100:.0f} % ({mfu.low * 100:.0f} to {mfu.high * 100:.0f} %)" in said
    assert f"80 % interval {memory.low / 2**30:.0f} to {memory.high / 2**30:.0f} GiB, out of memory" in said
    assert f"({story.plan.regime})" in said


def test_a_tie_with_the_first_is_said(run, planned: Path, story: Explained):
    assert story.plan.is_tied
    assert "tied with the first: within 5 %" in run("explain").out
    assert "tied with the first" not in run("explain", "1").out


def test_an_engine_without_published_runs_is_named(run):
    run("plan", "llama-3.1-8b", "--gpus", "8", "--gpu", "h100-sxm", "--engine", "deepspeed")

    said = " ".join(run("explain").out.split())
    assert "engine deepspeed: fewer than 5 published runs; class prior" in said
