"""`escala profile`: text in 80 and 40 columns, documents, files, the prediction beside it, wrong input."""

import json
from pathlib import Path

import msgspec
import pytest

from escala.errors import InvalidInput
from escala.measurement.profile.record import Profile
from escala.report.profile_view import read_profile

TRACES = Path(__file__).parents[1] / "measurement" / "profile" / "data"


@pytest.mark.parametrize("columns", ["40", "80"])
def test_the_text_fits_the_terminal(run, planned: Path, traces: Path, columns: str, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)

    for arguments in ((str(TRACES),), (str(traces), "--plan", str(planned))):
        result = run("profile", *arguments)

        assert result.code == 0
        assert result.longest <= int(columns)


def test_the_text_has_verdict_phases_messages_and_ranks(run):
    text = " ".join(run("profile", str(TRACES)).out.split())

    assert text.startswith("2 ranks over gloo · 2 steps of")
    assert "rank 1, which waits least, decides" in text
    assert "of the step is exposed communication" in text
    assert "all_reduce (default_pg, 2 ranks) 2 times: 1.51 MiB in" in text
    assert "1. hide or shrink all_reduce of default_pg" in text
    assert "rank 1 2.2 ms late a step" in text


def test_a_profile_is_one_document_and_the_same_in_its_file(run, tmp_path: Path):
    result = run("profile", str(TRACES), "--json", "--out", "profile.json")

    found = msgspec.json.decode(result.out, type=Profile)
    assert found.schema == "escala/profile@1"
    assert (tmp_path / "profile.json").read_text() == result.out
    assert result.err.endswith("wrote profile.json\n")
    assert read_profile("profile.json") == found


def test_terms_of_the_plan_stand_beside_the_measured_parts(run, planned: Path, traces: Path):
    explained = json.loads(run("explain", str(planned), "--json").out)

    document = run("profile", str(traces), "--plan", str(planned), "--json").out
    found = msgspec.json.decode(document, type=Profile)

    assert found.predicted is not None
    beside = {term.name: term.predicted_s for part in found.predicted.parts for term in part.terms}
    terms = {term["name"]: term["value_s"] for term in explained["terms"] if term["value_s"] > 0}
    assert beside == terms
    measured_s = sum(part.measured_s or 0 for part in found.predicted.parts)
    assert measured_s == pytest.approx(found.critical.step_s, rel=1e-9)


def test_the_device_of_the_trace_gives_the_peak(run, traces: Path):
    found = msgspec.json.decode(run("profile", str(traces), "--json").out, type=Profile)

    assert found.device == "h100-sxm"
    assert found.speed is not None
    # 67 TFLOP/s in fp32, the format of its products
    assert found.speed.hfu == pytest.approx(found.speed.flop_per_s / 67e12, rel=1e-3)


def test_a_timeline_that_explain_wrote_is_refused_by_name(run, planned: Path):
    assert run("explain", str(planned), "--timeline", "planned.json").code == 0

    result = run("profile", "planned.json")

    assert result.code == 2
    assert "a planned timeline that `escala explain` wrote" in result.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "missing argument"),
        (("missing.json",), "missing.json does not exist"),
        (("",), "a name is empty"),
        ((str(TRACES), "--gpu", "h1000"), "unknown accelerator"),
        ((str(TRACES), "--gpu", "h100-sxm", "--cluster", "x.toml"), "give one of them"),
        ((str(TRACES), "--cluster", "missing.toml"), "missing.toml does not exist"),
        ((str(TRACES), "--out", "missing/profile.json"), "cannot be written"),
        ((str(TRACES), "--out", str(TRACES / "rank0.json.gz")), "is a trace that was read"),
        ((str(TRACES / "README.md"),), "is no JSON"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(
    run, tmp_path: Path, arguments: tuple[str, ...], said: str
):
    result = run("profile", *arguments)

    assert result.code == 2
    assert said in result.err
    assert result.err.count("\n") == 1
    assert result.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_plan_of_another_run_is_refused(run, planned: Path):
    result = run("profile", str(TRACES), "--plan", str(planned))

    assert result.code == 2
    assert "the traced run has 2 ranks and the plan 8 devices" in result.err


def test_a_device_beside_the_plan_has_to_be_the_same(run, planned: Path, traces: Path):
    result = run("profile", str(traces), "--plan", str(planned), "--gpu", "a100-sxm-80gb")

    assert result.code == 2
    assert "the plan is for h100-sxm" in result.err


def test_another_document_is_no_profile(run, tmp_path: Path):
    (tmp_path / "other.json").write_text('{"schema": "escala/run@1"}')

    with pytest.raises(InvalidInput, match="escala/profile@1"):
        read_profile("other.json")
