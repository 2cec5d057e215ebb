"""Where options come from: flag, variable, ./escala.toml, the user's file, default."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from escala.errors import InvalidInput

LOCAL = "escala.toml"


@pytest.fixture
def given(run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """The options as `escala plan` gets them; nothing is searched."""
    seen: dict[str, Any] = {}

    def stop(model: str, options: dict[str, Any]) -> None:
        seen.update(options)
        raise InvalidInput("stop")

    def parse(*arguments: str) -> dict[str, Any]:
        seen.clear()
        assert run("plan", "gpt2", *arguments).err.startswith("error: stop")
        return dict(seen)

    monkeypatch.setattr("escala.cli.plan.ask", stop)
    return parse


@pytest.fixture
def user(run, tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    return tmp_path / "config" / "config.toml"


@pytest.mark.parametrize(
    ("levels", "top"),
    [
        ((), 6),
        (("user",), 2),
        (("user", "local"), 3),
        (("user", "local", "variable"), 4),
        (("user", "local", "variable", "flag"), 5),
        (("user", "flag"), 5),
        (("user", "variable"), 4),
    ],
)
def test_the_most_direct_level_wins(given, user: Path, monkeypatch, levels: tuple[str, ...], top: int):
    user.write_text("[plan]\ntop = 2\n" if "user" in levels else "")
    Path(LOCAL).write_text("[plan]\ntop = 3\n" if "local" in levels else "")
    monkeypatch.setenv("ESCALA_PLAN_TOP", "4" if "variable" in levels else "")

    assert given(*(["--top", "5"] if "flag" in levels else []))["top"] == top


def test_a_variable_names_another_file_of_the_user(given, user: Path, tmp_path: Path, monkeypatch):
    user.write_text("[plan]\ntop = 2\n")
    (tmp_path / "other.toml").write_text("[plan]\nseq = 128\n")
    monkeypatch.setenv("ESCALA_CONFIG", "other.toml")

    assert (given()["top"], given()["seq"]) == (6, 128)


def test_every_kind_of_value_is_taken(given):
    Path(LOCAL).write_text(
        'schema = "escala/settings@1"\n[plan]\ngpus = 8\ngpu = "h100-sxm"\ntokens = "15B"\nprice = 2.5\n'
        'global-batch = 64\nmin_gpus = 2\npareto = true\nfix = ["tp=2", "pp=1,2"]\n[explain]\njson = true\n'
    )

    found = given("--max-gpus", "4")

    assert (found["gpu"], found["tokens"], found["price"]) == ("h100-sxm", 15e9, 2.5)
    assert (found["global_batch"], found["pareto"], found["fix"]) == (64, True, ("tp=2", "pp=1,2"))


@pytest.mark.parametrize("text", ['fix = "tp=2"', 'fix = ["tp=2"]'])
def test_one_value_of_a_repeated_option_needs_no_list(given, text: str):
    Path(LOCAL).write_text(f"[plan]\n{text}\n")

    assert given()["fix"] == ("tp=2",)


def test_variables_give_lists_and_switches(given, monkeypatch):
    monkeypatch.setenv("ESCALA_PLAN_FIX", "tp=2 pp=1,2")
    monkeypatch.setenv("ESCALA_PLAN_ALL_PLACEMENTS", "1")

    assert (given()["fix"], given()["all_placements"]) == (("tp=2", "pp=1,2"), True)


def test_a_flag_undoes_a_switch(given):
    Path(LOCAL).write_text("[plan]\npareto = true\n")

    assert (given()["pareto"], given("--no-pareto")["pareto"]) == (True, False)


def test_json_can_be_set_for_every_verb(run, monkeypatch):
    monkeypatch.setenv("ESCALA_CATALOG_JSON", "1")

    assert json.loads(run("catalog").out)["schema"] == "escala/catalog@1"
    assert "{" not in run("catalog", "--no-json").out


@pytest.mark.parametrize(
    ("text", "flags", "kept", "dropped"),
    [
        ('cluster = "eos"', ["--gpu", "t4"], "gpu", "cluster"),
        ('gpu = "t4"\nnetwork = "ib-ndr"', ["--cluster", "eos"], "cluster", "gpu"),
        ('gpu = "t4"\nnetwork = "ib-ndr"', ["--cluster", "eos"], "cluster", "network"),
        ("gpus = 8", ["--max-gpus", "64"], "max_gpus", "gpus"),
        ("min-gpus = 8", ["--gpus", "4"], "gpus", "min_gpus"),
        ('method = "lora"\nlora-rank = 8', ["--method", "full"], "method", "lora_rank"),
    ],
)
def test_a_flag_wins_over_a_setting_that_says_the_same_in_another_way(given, text, flags, kept, dropped):
    Path(LOCAL).write_text(f"[plan]\n{text}\n")

    assert given(*flags)[kept] is not None
    assert given(*flags)[dropped] is None


def test_the_demo_takes_no_setting_of_plan(run, measured: None):
    Path(LOCAL).write_text('[plan]\ngpu = "t4"\ngpus = 1\n')

    assert "8 × h100-sxm" in run("demo").out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpus = 0", "'0' is no whole number from 1 to 1,000,000; gpus is set in escala.toml"),
        ("gpus = 2.5", "'2.5' is no whole number"),
        ("gpus = true", "'true' is no whole number"),
        ("gpus = -8", "'-8' is no whole number"),
        ("seq = 2020-01-01", "'2020-01-01' is no whole number"),
        ("tokens = nan", "'nan' is no number from 1 to 1e+18"),
        ("price = inf", "'inf' is no number"),
        ("pareto = 3", "'3' is not a valid boolean"),
        ('gpu = "h100sxx"', "did you mean h100-sxm"),
        ('gpu = "h100sxx"', "; gpu is set in escala.toml"),
        ('precision = "bf61"', "did you mean bf16? "),
        ('fix = ["tensor=2"]', "unknown field to fix 'tensor'"),
        ('cluster = "eos"\ngpu = "t4"', "; gpu is set in escala.toml; cluster is set in escala.toml"),
        ("lora-rank = 8", "--lora-rank goes with --method lora"),
        ("gpu = ['t4']", "escala.toml: gpu in [plan] is no single value"),
        ("gpus = {a = 1}", "escala.toml: gpus in [plan] is no single value"),
        ("gpuz = 8", "escala.toml: unknown key 'gpuz' in [plan]: did you mean gpu or gpus?"),
        ("zzz = 8", "unknown key 'zzz' in [plan]: there are gpus, gpu,"),
        ('model = "gpt2"', "escala.toml: model in [plan] can only be given on the command line"),
        ('output = "x"', "escala.toml: output in [plan] can only be given on the command line"),
        (
            "seq = 8\n[explain]\nnumber = 3",
            "unknown key 'number' in [explain]: there are trace, calibration, json",
        ),
        ("global-batch = 8\nglobal_batch = 9", "global-batch stands twice in [plan]"),
        ("[plna]\ngpus = 8", "escala.toml: unknown table 'plna': did you mean plan?"),
        ("gpus = 8 9", "escala.toml is not TOML (expected newline or end of document after a statement at"),
    ],
)
def test_a_wrong_setting_is_one_line_with_its_place(run, text: str, said: str):
    Path(LOCAL).write_text(f"[plan]\n{text}\n")

    result = run("plan", "gpt2", *([] if "gpu" in text or "cluster" in text else ["--gpu", "h100-sxm"]))

    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert said in result.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpus = 8", "escala.toml: 'gpus' stands outside a table; write it below [plan]"),
        ("plan = 8", "escala.toml: plan is no table; write [plan]"),
        ('schema = "escala/settings@9"', "unknown table 'schema'"),
    ],
)
def test_keys_outside_a_table_are_refused(run, text: str, said: str):
    Path(LOCAL).write_text(text)

    assert said in run("catalog").err


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "ESCALA_PLAN_GPUS",
            "0",
            "'0' is no whole number from 1 to 1,000,000; gpus is set in ESCALA_PLAN_GPUS",
        ),
        ("ESCALA_PLAN_GPU", "h100sxx", "; gpu is set in ESCALA_PLAN_GPU"),
        ("ESCALA_PLAN_GPUZ", "8", "unknown variable 'ESCALA_PLAN_GPUZ': did you mean ESCALA_PLAN_GPU"),
        ("ESCALA_PLAN_OUTPUT", "plan.json", "unknown variable 'ESCALA_PLAN_OUTPUT'"),
        ("ESCALA_PLAN_PARETO", "maybe", "'maybe' is not a valid boolean"),
        ("ESCALA_CONFIG", "none.toml", "none.toml does not exist"),
    ],
)
def test_a_wrong_variable_is_one_line_with_its_name(run, monkeypatch, name: str, value: str, said: str):
    monkeypatch.setenv(name, value)

    result = run("plan", "gpt2", *([] if "GPU" in name else ["--gpu", "h100-sxm"]))

    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert said in result.err


@pytest.mark.parametrize("name", ["ESCALA_HELP", "ESCALA_VERSION", "ESCALA_OTHER", "ESCALA_PLAN_TOP"])
def test_other_and_empty_variables_do_nothing(run, monkeypatch, name: str):
    plain = run("catalog").out
    monkeypatch.setenv(name, "" if name == "ESCALA_PLAN_TOP" else "1")

    assert run("catalog").out == plain


def folder(path: Path) -> None:
    path.mkdir()


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def dangling(path: Path) -> None:
    path.symlink_to("nowhere.toml")


def forbidden(path: Path) -> None:
    path.write_text("")
    path.chmod(0)


def large(path: Path) -> None:
    path.touch()
    os.truncate(path, 100_000_000)


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "not TOML": (lambda path: path.write_text("[plan"), "escala.toml is not TOML (expected ']'"),
    "nested": (lambda path: path.write_text("a = " + "[" * 100_000), "is not TOML"),
    "UTF-16": (lambda path: path.write_bytes("[plan]".encode("utf-16")), "is encoded in UTF-16"),
    "Latin-1": (lambda path: path.write_bytes(b"[plan]\ngpu = '\xe9'"), "is not UTF-8 at byte"),
    "zeros": (lambda path: path.write_bytes(b"\x00" * 9), "is not TOML"),
    "folder": (folder, "escala.toml is a folder"),
    "loop": (loop, "cannot be read (too many levels of symbolic links)"),
    "dangling": (dangling, "escala.toml does not exist"),
    "no rights": (forbidden, "may not be read by this user"),
    "large": (large, "is larger than 20 MB"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_one_line_and_help_version_and_doctor_work(run, kind: str):
    if kind == "no rights" and os.geteuid() == 0:
        pytest.skip("root may read everything")
    make, said = BROKEN[kind]
    make(Path(LOCAL))

    refused, report = run("catalog"), run("doctor", "--json")

    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert said in refused.err
    assert [run(*words).code for words in (["--help"], ["--version"], ["plan", "--help"])] == [0, 0, 0]
    assert report.code == 0
    assert said in json.loads(report.out)["config"]["faults"][0]
    assert said in " ".join(run("doctor").out.split())


def test_doctor_shows_every_setting_with_its_origin(run, user: Path, monkeypatch):
    user.write_text("[plan]\ntop = 2\nseq = 64\n")
    Path(LOCAL).write_text("[plan]\ntop = 3\nfix = ['tp=2', 'pp=1']\n[explain]\njson = true\n")
    monkeypatch.setenv("ESCALA_PLAN_GPUS", "8")

    config = json.loads(run("doctor", "--json").out)["config"]

    assert {(each["option"], str(each["value"]), each["origin"]) for each in config["options"]} == {
        ("--gpus", "8", "ESCALA_PLAN_GPUS"),
        ("--top", "3", LOCAL),
        ("--fix", "['tp=2', 'pp=1']", LOCAL),
        ("--json", "true", LOCAL),
        ("--seq", "64", str(user)),
    }
    assert config["files"] == {LOCAL: "3 set", str(user): "2 set"}
    assert f"plan --top 3 ({LOCAL})" in run("doctor").out


def test_doctor_says_which_value_is_wrong(run):
    Path(LOCAL).write_text("[plan]\ngpus = 0\n")

    assert "(escala.toml): '0' is no whole number" in " ".join(run("doctor").out.split())
