import importlib.util
import json
import shutil
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from escala.formats.bench_record import Bench
from escala.measurement.bench import ladder
from escala.report.bench_text import print_bench

FILE = Path(__file__).parents[1] / "formats" / "data" / "bench.json"
SMALL = ("llama-3.2-1b", "--precision", "fp32", "--seq", "512", "--global-batch", "8")


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    return Path(shutil.copy(FILE, tmp_path / "bench.json"))


def is_refused(result, said: str, code: int = 2) -> bool:
    return result.code == code and result.out == "" and result.err.count("\n") == 1 and said in result.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--device", "tpu"), "unknown device 'tpu'"),
        (("--budget", "0"), "'0' is no number from 5 to 3600"),
        (("--budget", "4.9"), "from 5 to 3600"),
        (("--ranks", "0"), "from 1 to 64"),
        (("--out", "missing/bench.json"), "takes no files (no such file or directory)"),
        (("--out", "."), "is a folder; name a file in it"),
        (("--folder", "missing"), "--folder: missing takes no files"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_timed(run, options: tuple[str, ...], said: str):
    assert is_refused(run("bench", *options), said)


@pytest.mark.parametrize("options", [("--device", "cuda"), ("--ranks", "2")])
def test_what_needs_torch_says_the_command_that_installs_it(
    run, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    assert is_refused(run("bench", *options), f"{' '.join(options)} needs PyTorch", code=3)
    assert is_refused(run("bench", *options), "pip install 'escala[torch]'", code=3)


def test_without_torch_numpy_is_timed_and_makes_a_cluster(run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = run("bench", "--budget", "5")

    assert result.code == 0
    assert "numpy, 1 rank in a node" in result.out
    assert "pip install 'escala[torch]' adds attention" in " ".join(result.out.split())
    assert result.longest <= 80
    document = json.loads(Path("bench.json").read_text())
    assert {each["part"] for each in document["timed"]} >= {"gemm", "memory"}
    assert document["backend"] == "numpy"
    assert "timed with NumPy, not with PyTorch" in run("plan", *SMALL, "--cluster", "bench.json").out


def test_a_plan_says_which_numbers_were_measured(run, bench: Path):
    result = run("plan", *SMALL, "--cluster", "bench.json")

    assert result.code == 0
    said = " ".join(result.out.split())
    assert "measured (bench.json, 2026-11-30): fp32 products 1.00 TFLOP/s" in said
    assert "memory 20.0 GB/s · measured node 4.00 GB/s, 20.0 µs" in said
    assert "not in bench.json, 2026-11-30: attention, convolutions, passes, launches and AdamW by" in said
    assert result.longest <= 80


def test_explain_says_so_too_also_from_a_plan_file(run, bench: Path):
    assert run("plan", *SMALL, "--cluster", "bench.json", "-o", "plan.json").code == 0

    document = json.loads(run("explain", "plan.json", "--json").out)
    assert document["cluster"]["source"] == "bench.json, 2026-11-30"
    assert document["cluster"]["measured"][1] == "bf16 products 4.00 TFLOP/s"
    assert "by constants of GPUs" in document["cluster"]["unmeasured"][0]
    said = run("explain", "1").out
    assert "measured (bench.json, 2026-11-30)" in said
    assert "not in bench.json, 2026-11-30: attention" in said


def test_a_part_of_what_was_measured_can_be_planned_and_no_more(run, bench: Path):
    document = json.loads(run("plan", *SMALL, "--cluster", "bench.json", "--gpus", "2", "--json").out)
    assert document["cluster"]["devices"] == 2

    refused = run("plan", *SMALL, "--cluster", "bench.json", "--gpus", "8")
    assert is_refused(refused, "measured 4 devices of one node and holds no network for 8")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("escala/bench@1", "escala/bench@2", "this escala reads 'escala/bench@1'"),
        ("escala/fingerprint@1", "escala/fingerprint@2", "this escala reads 'escala/fingerprint@1'"),
        ("escala/bench@1", "escala/plan@1", "this escala reads 'escala/cluster@1' and bench files"),
        ('"ranks": 4,', '"ranks": "4",', "is no whole bench file (Expected `int`, got `str` - at `$"),
    ],
)
def test_other_files_are_refused(run, bench: Path, old: str, new: str, said: str):
    bench.write_text(bench.read_text().replace(old, new))

    assert is_refused(run("plan", "gpt2", "--cluster", "bench.json"), said)


@pytest.mark.parametrize(("backend", "shown"), [("none", "torch"), ("gloo", "gloo"), ("numpy", "numpy")])
def test_the_header_of_one_rank_names_the_software_that_was_timed(
    bench: Path, capsys: pytest.CaptureFixture[str], backend: str, shown: str
):
    document = msgspec.convert(json.loads(bench.read_text()) | {"backend": backend}, Bench)
    print_bench(Console(), document)

    assert f" {shown}, " in " ".join(capsys.readouterr().out.split())


def test_an_empty_file_is_called_empty(run, bench: Path):
    bench.write_text("\n")

    assert is_refused(run("plan", "gpt2", "--cluster", "bench.json"), "bench.json is empty; check the path")


def test_half_a_file_is_refused(run, bench: Path):
    bench.write_text(bench.read_text()[:1500])

    assert is_refused(
        run("plan", "gpt2", "--cluster", "bench.json"), "is not JSON (Input data was truncated)"
    )


def test_the_ladder_climbs_from_plain_python(run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ladder, "WINDOW_S", 0.0)
    monkeypatch.setattr(ladder, "SIDE", {"python": 8, "library": 64})
    result = run("bench", "--ladder")

    assert result.code == 0
    assert "plain Python, fp64" in result.out
    assert result.longest <= 80
    rungs = json.loads(run("bench", "--ladder", "--json").out)["rungs"]
    assert rungs[0]["times_first"] == 1.0
    assert rungs[1]["name"] == "NumPy, fp32"
