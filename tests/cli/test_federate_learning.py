"""`escala federate simulate --engine learning` as a person runs it."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import Run

SCENARIO = """
schema = "escala/scenario@1"
name = "Boards and phones"
[model]
name = "net"
weights = 1000
forward_flop_per_sample = "2 kFLOP"
[training]
rounds = [2, 4, 8]
clients_per_round = 3
learning_rate = 0.5
[[clients]]
name = "boards"
count = 4
device = "raspberry-pi-4"
access = "wifi"
samples = 60
sample_size = "64 B"
skew = "dirichlet"
concentration = 0.5
[[clients]]
name = "phones"
count = 3
device = "phone-mid"
access = "4g"
samples = 40
sample_size = "64 B"
[rules]
movement = "no"
[central]
device = "v100"
access = "datacentre"
country = "ES"
operator = "google"
epochs = [3, 5, 10]
"""
LEARN = ("federate", "simulate", "some.toml", "--engine", "learning", "--task", "digits")


@pytest.fixture(autouse=True)
def scenario(tmp_path: Path) -> None:
    (tmp_path / "some.toml").write_text(SCENARIO)


@pytest.mark.optional
def test_a_run_that_stopped_goes_on_to_the_same_end(run: Run, tmp_path: Path):
    pytest.importorskip("torch")

    whole = run(*LEARN, "--rounds", "4", "-o", "whole", "--json")
    first = run(*LEARN, "--rounds", "2", "-o", "parts")
    rest = run(*LEARN, "--rounds", "4", "-o", "parts")

    assert (whole.code, first.code, rest.code) == (0, 0, 0), whole.err + first.err + rest.err
    assert "going on after round 2" in rest.err
    parts, once = ((tmp_path / each / "rounds.jsonl").read_bytes() for each in ("parts", "whole"))
    assert parts == once
    assert rest.longest <= 80
    (only,) = json.loads(whole.out)["runs"]
    assert only["engine"] == "learning"
    assert {"accuracy", "loss", "accuracy_worst_tenth", "accuracy_spread"} <= only["metrics"].keys()
    assert "in place of the scenario's net (1,000)" in json.loads(whole.out)["notes"][1]
    assert "Accuracy against hours" in (tmp_path / "whole" / "simulation.html").read_text()


KILLED = """
import os, signal, sys
from escala.cli.app import main
from escala.federated import simulate_learning
from escala.federated.learning import Learning
learnt = Learning._learnt
def killed(self, record, arrivals):
    if record.round == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return learnt(self, record, arrivals)
Learning._learnt, simulate_learning.SAVE_EVERY_S = killed, 0.0
main(sys.argv[1:])
"""
"""Is killed in round 4, after a state of each round."""


@pytest.mark.optional
def test_a_run_that_is_killed_and_then_terminated_goes_on_to_the_same_end(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("torch")
    from escala.federated.learning import Learning

    parts = ("--rounds", "6", "-o", "parts")
    written = tmp_path / "parts" / "rounds.jsonl"
    metrics = Learning._metrics

    def terminated(self: Learning) -> dict[str, float]:
        """The state has the round by then, the file not yet."""
        if self.state.done == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return metrics(self)

    whole = run(*LEARN, "--rounds", "6", "-o", "whole")
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *LEARN, *parts], capture_output=True, text=True, timeout=120
    )
    left = written.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(Learning, "_metrics", terminated)
        ended = run(*LEARN, *parts)
    left_then = written.read_bytes()
    written.write_bytes(left_then + left_then.splitlines()[0][:40])  # a line that was cut off
    rest = run(*LEARN, *parts)

    once = (tmp_path / "whole" / "rounds.jsonl").read_bytes()
    assert (whole.code, killed.returncode, ended.code, rest.code) == (0, -signal.SIGKILL, 130, 0), (
        killed.stderr
    )
    assert left == b"".join(once.splitlines(keepends=True)[:3])
    assert left_then == b"".join(once.splitlines(keepends=True)[:4])
    assert "going on after round 3" in ended.err
    assert "going on after round 4" in rest.err
    assert "round 5 of 6" in rest.err
    assert written.read_bytes() == once


def test_what_is_missing_or_too_much_is_said(run: Run):
    without = run(*LEARN[:5])
    events = run(*LEARN[:3], "--task", "digits")
    unknown = run(*LEARN[:6], "nowhere.parquet")

    assert (without.code, events.code, unknown.code) == (2, 2, 2)
    assert "needs --task" in without.err
    assert "is for --engine learning" in events.err
    assert "neither digits nor a file" in unknown.err


@pytest.mark.optional
@pytest.mark.slow
def test_the_example_of_the_page_gives_what_the_page_shows(run: Run, tmp_path: Path):
    pytest.importorskip("torch")
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "simulate-learning.md").read_text()
    block = re.search(r"<!-- file: digits.toml -->\n```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "digits.toml").write_text(block[1])
    shown = re.search(r"```console\n\$ escala (.*?)\n(.*?)\n  \.\.\.\n```", page, re.DOTALL)

    told = run(*shlex.split(shown[1]))

    def split(text: str) -> tuple[list[str], list[float]]:
        """Lines that hold nothing learnt, and the last accuracies; others may differ by rounding."""
        lines = text.splitlines()
        plain = [
            line for line in lines[: lines.index("", 2)] if "accuracy" not in line and "loss" not in line
        ]
        return plain, [float(each) for each in re.findall(r"accuracy (?:boards |phones )?(0\.\d+)", text)]

    page_plain, page_accuracies = split(shown[2])
    plain, accuracies = split(told.out)
    assert plain == page_plain
    assert accuracies == pytest.approx(page_accuracies, abs=0.03)
