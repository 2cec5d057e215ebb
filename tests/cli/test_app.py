import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from escala.cli import app
from escala.cli.app import VERBS, cli, main
from escala.cli.verb import commands_of
from escala.federated.reading import example_text

SCRIPT = "import sys; from escala.__main__ import main; sys.exit(main())"
COMMANDS = commands_of(click.Context(cli))  # those of a group by both names
HEAVY = {"numpy", "rich", "msgspec", "yaml", "torch"}


def escala(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_help_lists_every_verb(run):
    result = run("--help")

    assert result.code == 0
    assert all(re.search(rf"^  {verb} ", result.out, re.MULTILINE) for verb in VERBS)


def test_no_argument_shows_the_help(run):
    assert run().out == run("--help").out


def test_version_is_one_line(run):
    assert re.fullmatch(r"escala \d+\.\d+\.\d+\n", run("--version").out)


def test_help_imports_nothing_heavy():
    script = f"{SCRIPT.replace('sys.exit(main())', 'main()')}; print(*sorted(set(sys.modules) & {HEAVY!r}))"

    done = subprocess.run(
        [sys.executable, "-c", script, "--help"], capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines()[-1] == ""


@pytest.mark.parametrize("verb", COMMANDS)
def test_help_of_a_verb_fits_80_columns_and_has_examples(run, verb: str):
    result = run(*verb.split(), "--help")

    assert result.code == 0
    assert result.longest <= 80
    assert 2 <= len(re.findall(r"^    escala ", result.out, re.MULTILINE)) <= 4


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_verb_has_json(verb: str):
    assert "--json" in [name for option in COMMANDS[verb].params for name in option.opts]


def examples(verb: str) -> list[str]:
    lines = [line.strip() for line in (COMMANDS[verb].epilog or "").splitlines()]
    return [line for line in lines if line.startswith("escala ")]


# Flower, dp-accounting, or what a run of it left.
OPTIONAL = tuple(f"escala federate {verb}" for verb in ("run", "privacy", "audit", "forecast"))


def is_short(example: str) -> bool:
    """Whether an example neither measures this machine for minutes nor runs an optional library."""
    measures = example.startswith("escala bench") and "--ladder" not in example
    runs = example.startswith(("escala profile train:", "escala profile llama")) or "--trace" in example
    runs = (
        runs
        or "--tokenizer" in example
        or "--layouts" in example
        or "--engine learning" in example
        or example.startswith(("escala train", "escala trace", "escala export", "escala scale", *OPTIONAL))
    )
    return not measures and not runs


@pytest.mark.parametrize("verb", COMMANDS)
def test_examples_of_the_help_run(run, planned: Path, logs: Path, traces: Path, verb: str):
    short = [line for line in examples(verb) if is_short(line)]
    Path("books").mkdir()
    Path("books", "one.txt").write_text("Call me Ishmael.")
    Path("texts.jsonl").write_text('{"content": "Call me Ishmael."}')
    Path("scenario.toml").write_text(example_text("factory-sensors"))
    script = Path("train.sh")
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    batch = '"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4'
    Path("ds_config.json").write_text(
        f'{{{batch}, "bf16": {{"enabled": true}}, "zero_optimization": {{"stage": 3}}}}'
    )
    codes = {line: run(*shlex.split(line)[1:]).code for line in short}

    assert codes == dict.fromkeys(short, 0)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["plna"], "unknown verb 'plna': did you mean plan?"),
        (["zzz"], "there are plan, explain, emit, check, catalog, "),
        (["plan", "llama-3.1-8b", "--gpuz", "8"], "did you mean --gpu or --gpus?"),
        (["doctor", "--jsn"], "did you mean --json?"),
        (["plan"], "missing argument 'MODEL'"),
        (["doctor", "more"], "unexpected extra argument"),
    ],
)
def test_a_wrong_command_line_is_one_line_with_a_hint(run, arguments: list[str], hint: str):
    result = run(*arguments)

    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert hint in result.err
    assert result.err.count("\n") == 1


def test_interrupt_ends_with_130(run, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("escala.report.doctor.doctor_view", interrupt)

    result = run("doctor")

    assert (result.code, result.err.strip()) == (130, "error: interrupted")


EARLY = """
import os, signal, sys
class Slow:
    def find_spec(self, name, path, target=None):
        if name == "escala.cli.app":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Slow())
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_interrupt_while_the_command_line_loads_is_quiet():
    done = subprocess.run([sys.executable, "-c", EARLY + SCRIPT, "catalog"], capture_output=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.skipif(os.name != "posix", reason="shells of POSIX")
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("words", "code"), [("catalog", 0), ("catalog --json", 0), ("--help", 0), ("x", 2)])
def test_a_closed_stream_swallows_and_keeps_the_exit_code(closed: str, words: str, code: int):
    line = f"{shlex.quote(sys.executable)} -m escala {words} {closed}"

    done = subprocess.run(["sh", "-c", line], capture_output=True, check=False)

    assert done.returncode == code
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("columns", ["0", "1", "5", "30", "39"])
def test_less_than_40_columns_are_taken_for_40(columns: str):
    narrow = escala("catalog", "h100-sxm", env={**os.environ, "COLUMNS": columns})
    forty = escala("catalog", "h100-sxm", env={**os.environ, "COLUMNS": "40"})

    assert narrow.stdout == forty.stdout
    assert len(narrow.stdout) > 500


def test_an_os_error_is_one_line(run, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "some/file")

    monkeypatch.setattr("escala.report.doctor.doctor_view", fail)

    result = run("doctor")

    assert (result.code, result.err) == (2, "error: some/file: no space left on device\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_behind_stdout_is_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, "catalog"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 2
    assert done.stderr == "error: no space left on device\n"


@pytest.mark.parametrize("words", [["catalog", "networks"], ["catalog", "networks", "--json"], ["--help"]])
def test_a_closed_pipe_is_silent(words: list[str]):
    reader, writer = os.pipe()
    os.close(reader)

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)

    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("name", ["NO_COLOR", "TERM"])
def test_no_colours_where_they_are_not_wanted(name: str):
    environment = {**os.environ, "NO_COLOR": "1"} if name == "NO_COLOR" else {**os.environ, "TERM": "dumb"}

    assert "\x1b" not in escala("catalog", "h100-sxm", env=environment).stdout


def test_an_encoding_without_bars_does_not_fail():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}

    done = escala("catalog", "h100-sxm", env=environment)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.name != "posix", reason="terminals of POSIX")
def test_a_long_search_says_so_on_a_terminal_and_can_be_interrupted(tmp_path: Path):
    import pty

    ours, theirs = pty.openpty()
    words = ["plan", "deepseek-v3", "--pareto", "--gpus", "2048", "--gpu", "h100-sxm"]
    environment = {**os.environ, "TERM": "xterm", "ESCALA_CACHE_DIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *words],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=environment,
    ) as search:
        os.close(theirs)
        said = b""
        while b"ranking 60 plans" not in said:
            said += os.read(ours, 4096)
        search.send_signal(signal.SIGINT)
        said += os.read(ours, 4096)
        out = search.communicate()[0]
    os.close(ours)

    assert (search.returncode, out) == (130, b"")


def test_nothing_is_said_where_stderr_is_no_terminal(run, eight):
    assert run("plan", *eight).err == ""


def test_main_returns_the_exit_code():
    assert main(["--version"]) == 0
    assert app.NO == 1
