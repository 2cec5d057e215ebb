"""`escala federate simulate` as a person runs it."""

import json
from pathlib import Path

import msgspec
import pytest

from cli.conftest import Run
from escala.federated.reading import example_text
from escala.federated.roundrecord import Round
from escala.report.federated_view import PAGE, RESULT


@pytest.fixture
def vehicles(tmp_path: Path) -> str:
    (tmp_path / "vehicles.toml").write_text(example_text("vehicles"))
    return "vehicles.toml"


def test_rounds_document_and_page_say_the_same(run: Run, vehicles: str, tmp_path: Path):
    shown = run("federate", "simulate", vehicles, "--rounds", "5", "-o", "out", "--json")

    assert shown.code == 0, shown.err
    document = json.loads(shown.out)
    (only,) = document["runs"]
    lines = (tmp_path / "out" / "rounds.jsonl").read_bytes().splitlines()
    rounds = [msgspec.json.decode(line, type=Round) for line in lines]
    assert document["schema"] == "escala/federate-simulate@1"
    assert [each.round for each in rounds] == [1, 2, 3, 4, 5]
    assert sum(each.up_bytes for each in rounds) == only["up_bytes"]
    assert sum(len(each.returned) for each in rounds) == only["returned"]
    assert json.loads((tmp_path / "out" / RESULT).read_text()) == document
    assert "<svg" in (tmp_path / "out" / PAGE).read_text()


def test_a_shipped_example_is_found_by_its_name_and_its_table_fits_a_terminal(run: Run):
    shown = run("federate", "simulate", "vehicles", "--rounds", "3")

    assert shown.code == 0, shown.err
    assert shown.longest <= 80
    assert "Energy" in shown.out
    assert "parked at home" in shown.out


def test_policies_are_compared_on_one_fleet(run: Run, vehicles: str, tmp_path: Path):
    shown = run(
        "federate", "simulate", vehicles, "--rounds", "3", "--compare", "uniform,energy", "-o", "both"
    )

    assert shown.code == 0, shown.err
    assert shown.longest <= 80
    assert [name.name for name in sorted((tmp_path / "both").iterdir())] == [
        *("energy", "simulation.html", "simulation.json", "uniform")
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--policy", "fastest"), "unknown policy 'fastest'"),
        (("--policy", "energy", "--compare", "uniform,energy"), "--compare alone"),
        (("--compare", "energy"), "two policies or more"),
        (("--rounds", "0"), "no whole number from 1"),
        (("--engine", "magic"), "magic"),
    ],
)
def test_wrong_input_is_one_line(run: Run, vehicles: str, arguments: tuple[str, ...], said: str):
    shown = run("federate", "simulate", vehicles, *arguments)

    assert shown.code == 2
    assert said in shown.err
    assert shown.err.count("\n") == 1


def test_ctrl_c_keeps_the_rounds_that_are_done(
    run: Run, vehicles: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from escala.report import federated_view

    def two_rounds(case, count):
        rounds = federated_view_rounds(case, count)
        yield next(rounds)
        yield next(rounds)
        raise KeyboardInterrupt

    federated_view_rounds = federated_view.event_rounds
    monkeypatch.setattr(federated_view, "event_rounds", two_rounds)

    shown = run("federate", "simulate", vehicles, "--rounds", "9", "-o", "out", "--json")

    assert shown.code == 130
    document = json.loads(shown.out)
    assert document["is_interrupted"]
    assert document["runs"][0]["rounds"] == 2
    assert len((tmp_path / "out" / "rounds.jsonl").read_text().splitlines()) == 2
