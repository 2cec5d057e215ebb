"""`escala federate run` as people see it: rounds at 80 columns, and what is missing said in one line."""

import io
from math import nan

import pytest
from rich.console import Console

from escala.cli.output import progressing
from escala.federated.flowerversion import installed
from escala.federated.roundrecord import Round
from escala.report.federated_run_text import print_run
from escala.report.federated_run_view import RunDocument


def a_round(number: int) -> Round:
    return Round(
        round=number,
        cohort=tuple(range(12)),
        returned=tuple(range(10)),
        lost={"late": 1, "not-finite": 1},
        down_bytes=836064,
        up_bytes=696720,
        start_s=0.0,
        round_s=8.25,
        metrics={"accuracy": 0.8123},
        weights_digest="ab" * 32,
    )


def test_rounds_fit_80_columns_and_say_who_was_lost():
    document = RunDocument(
        name="hospitals",
        folder="/data/run",
        learns="digits",
        nodes=12,
        clients=20,
        flower_run=1,
        submissions=2,
        restarted=("node-1", "superlink"),
        rounds_s=115.5,
        sent_bytes=21459264,
        rounds=tuple(a_round(number) for number in range(1, 15)),
        notes=("a cohort is 12 clients, where the scenario says 15",),
    )
    out = io.StringIO()

    print_run(Console(file=out, width=80), document)

    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert "1 late, 1 not-finite" in text
    assert "0.8123" in text
    assert "12 nodes of 20 clients" in text
    assert "the last 12 of 14 rounds" in text
    assert "submitted 2 times" in text
    assert "a cohort is 12 clients, where the scenario says 15" in text
    assert "started again: node-1, superlink" in text


def test_a_line_of_progress_is_not_said_twice(capsys, monkeypatch):
    monkeypatch.setattr("escala.cli.output.LINE_EVERY_S", 0.0)

    with progressing() as progress:
        for what, left_s in (("waiting", nan), ("waiting", nan), ("round 1", 4.0), ("round 1", 3.0)):
            progress(what, left_s)

    assert capsys.readouterr().err.splitlines() == ["waiting", "round 1; 4 s left", "round 1; 3 s left"]


@pytest.mark.skipif(installed() is not None, reason="Flower is here")
def test_without_flower_the_command_to_install_it_is_told(run):
    result = run("federate", "run", "scenario.toml")

    assert result.code == 3
    assert "pip install 'escala[federated]'" in result.err
