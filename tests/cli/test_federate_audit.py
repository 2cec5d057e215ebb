"""`federate audit` and `federate privacy`: verdicts, exit codes, 80 columns, a page, clear refusals."""

import json

import msgspec
import numpy as np
import pytest

from escala.federated.clientdata import client_data
from escala.federated.manifest import Notary, manifest_of
from escala.federated.ranges import exactly
from escala.federated.reading import example_text
from escala.federated.roundrecord import Round
from escala.federated.training import Privacy, Selection, Training

NOISE = Privacy(place="central", noise_ratio=1.0, clip=1.0, delta=1e-5)
TRAINING = Training(
    rounds=exactly(3), clients_per_round=2, selection=Selection.POISSON, privacy=NOISE, least_clients=1
)


@pytest.fixture
def folder(tmp_path):
    """A run of three rounds of digits at 14 clients, of which one was kept out for its data."""
    made = tmp_path / "digits"
    made.mkdir()
    draw = np.random.default_rng(1)
    data = [client_data(each, draw.integers(0, 17, (40, 64)), draw.integers(0, 10, 40)) for each in range(14)]
    manifest = manifest_of(
        "digits",
        TRAINING,
        14,
        code={"app": "c0de" * 16},
        data=data,
        refused={13: "3 samples, 10 are needed"},
        start_digest="0" * 64,
    )
    notary = Notary(made, manifest)
    for number in range(1, 4):
        line = msgspec.json.encode(
            Round(
                round=number,
                cohort=(0, number, 7),
                returned=(0, number),
                lost={"late": 1},
                down_bytes=209_000,
                up_bytes=139_000,
                start_s=10.0 * number,
                round_s=9.0,
                epsilon=1.0 + number / 7,
                weights_digest=str(number) * 64,
            )
        )
        with (made / "rounds.jsonl").open("ab") as file:
            file.write(line + b"\n")
        notary.add(line)
    return made


def test_a_whole_run_is_told_in_eighty_columns(run, folder):
    result = run("federate", "audit", str(folder))

    assert (result.code, result.err) == (0, "")
    assert "The records are whole" in result.out
    assert "epsilon 1.43 at delta 1e-05" in result.out
    assert "central noise 1.0 × clip 1.0" in result.out
    assert "4 of 14 clients counted at least once" in result.out
    assert "client 13: 3 samples, 10 are needed" in result.out
    assert "3 late" in result.out
    assert result.longest <= 80


def test_its_document_names_schema_head_and_every_client(run, folder):
    document = json.loads(run("federate", "audit", str(folder), "--json").out)

    assert document["schema"] == "escala/federate-audit@1"
    assert document["is_sound"]
    assert (document["rounds"], document["up_bytes"], len(document["data"])) == (3, 417_000, 14)
    assert len(document["head"]) == 64
    assert run("federate", "audit", str(folder), "--head", document["head"]).code == 0
    assert run("federate", "audit", str(folder), "--head", "0" * 64).code == 1


def test_a_changed_round_ends_with_one_and_is_named(run, folder):
    path = folder / "rounds.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"up_bytes":139000', b'"up_bytes":138999', 1))

    result = run("federate", "audit", str(folder))

    assert result.code == 1
    assert "The records are not whole" in result.out
    assert "line 1 of rounds.jsonl was changed" in result.out


def test_its_page_stands_alone(run, folder, tmp_path):
    page = tmp_path / "audit.html"

    assert run("federate", "audit", str(folder), "-o", str(page)).code == 0
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert text.count("<svg") == 2
    assert "http" not in text
    assert all(each in text for each in ("Data by client", "Privacy spent", "end of the chain"))


def test_a_folder_without_a_run_is_refused(run, tmp_path):
    result = run("federate", "audit", str(tmp_path))

    assert (result.code, result.out) == (2, "")
    assert "name the folder of a federated run" in result.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "give a scenario, or --clients and --rounds"),
        (("--clients", "10", "--rounds", "5"), "give --noise to see the epsilon, or --epsilon"),
        (("--noise", "1", "--epsilon", "2", "--clients", "10", "--rounds", "5"), "give --noise"),
        (("--noise", "1", "--clients", "10", "--per-round", "11", "--rounds", "5"), "choose from 1 to 10"),
        (("scenario.toml", "--noise", "1"), "a scenario says noise and clients itself"),
    ],
)
def test_privacy_refuses_what_it_cannot_answer(run, arguments, told):
    result = run("federate", "privacy", *arguments)

    assert result.code == 2
    assert told in result.err


@pytest.mark.optional
def test_privacy_tells_epsilon_and_the_other_ways_to_draw(run):
    pytest.importorskip("dp_accounting")
    numbers = ("--clients", "1000", "--per-round", "100", "--rounds", "100")

    result = run("federate", "privacy", "--noise", "1", *numbers)
    document = json.loads(run("federate", "privacy", "--epsilon", "7.9", *numbers, "--json").out)

    assert (result.code, result.err) == (0, "")
    assert "Noise of 1 × clip costs epsilon 7.9" in result.out
    assert "96.1" in result.out
    assert result.longest <= 80
    assert document["noise_ratio"] == pytest.approx(1.0, abs=0.01)
    assert document["epsilon"] <= 7.9


@pytest.mark.optional
def test_a_scenario_whose_clients_are_chosen_by_loss_has_no_epsilon(run, tmp_path):
    pytest.importorskip("dp_accounting")
    text = example_text("hospitals")
    privacy = '[training.privacy]\nplace = "central"\nnoise_ratio = 1.0\nclip = 1.0\ndelta = 1e-5\n'
    at = text.index("[[clients]]")
    path = tmp_path / "s.toml"
    path.write_text(text[:at] + privacy + "\n" + text[at:])
    chosen = tmp_path / "chosen.toml"
    chosen.write_text(path.read_text().replace("[training]\n", '[training]\nselection = "utility"\n', 1))

    assert run("federate", "privacy", str(path)).code == 0
    result = run("federate", "privacy", str(chosen))
    assert result.code == 1
    assert "No epsilon: utility selection chooses clients" in result.out
