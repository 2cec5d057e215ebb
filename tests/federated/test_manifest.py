"""A chain over the rounds of a run: whatever was changed, dropped, repeated or added is found."""

import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from escala.errors import InvalidInput
from escala.federated.clientdata import client_data, faults, refused
from escala.federated.manifest import Notary, audit, folder_digest, head_of, manifest_of
from escala.federated.ranges import exactly
from escala.federated.roundrecord import Round
from escala.federated.scenario import Gate
from escala.federated.training import Training

TRAINING = Training(rounds=exactly(5), clients_per_round=2, seed=3)


def a_round(number, **changed):
    given = {
        "round": number,
        "cohort": (0, 1),
        "returned": (0, 1),
        "down_bytes": 10,
        "up_bytes": 5,
        "start_s": 0.0,
        "round_s": 1.0,
        "epsilon": float(number),
        "weights_digest": f"{number:064d}",
    }
    return Round(**(given | changed))


def a_manifest(**changed):
    return manifest_of("run", changed.pop("training", TRAINING), 3, code={"app": "abc"}, **changed)


def a_run(folder, rounds=5, **changed):
    notary = Notary(folder, a_manifest(**changed))
    with (folder / "rounds.jsonl").open("ab") as file:
        for number in range(1, rounds + 1):
            line = msgspec.json.encode(a_round(number))
            file.write(line + b"\n")
            file.flush()
            notary.add(line)
    return notary


def rewrite(folder, change):
    path = folder / "rounds.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in change(path.read_bytes().splitlines())))


def test_an_untouched_run_is_sound_and_says_what_it_was(tmp_path):
    notary = a_run(tmp_path)

    found = audit(tmp_path, head=notary.manifest.links[-1].chain)

    assert found.faults == ()
    assert [each.round for each in found.rounds] == [1, 2, 3, 4, 5]
    assert found.manifest.training["seed"] == 3
    assert found.manifest.packages["numpy"] == np.__version__
    assert set(found.manifest.code) == {"escala", "app"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda lines: [lines[0].replace(b'"up_bytes":5', b'"up_bytes":4'), *lines[1:]],
            "line 1 of rounds.jsonl",
        ),
        (lambda lines: lines[:-1], "has 4 rounds and the chain 5"),
        (lambda lines: [*lines, lines[-1]], "round 5 stands 2 times"),
        (lambda lines: lines[:1] + lines[2:], "round 2 is missing"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "not in order"),
        (lambda lines: [*lines, msgspec.json.encode(a_round(6, epsilon=1.0))], "epsilon falls"),
        (lambda lines: [*lines, msgspec.json.encode(a_round(6, cohort=(0, 7)))], "do not exist"),
        (lambda lines: [*lines, msgspec.json.encode(a_round(6, cohort=(0,)))], "were not asked"),
        (lambda lines: [*lines, msgspec.json.encode(a_round(6, returned=(1, 1)))], "a client twice"),
        (lambda lines: [*lines, msgspec.json.encode(a_round(6, up_bytes=-1))], "bytes below zero"),
    ],
)
def test_what_was_done_to_rounds_is_found(tmp_path, change, told):
    a_run(tmp_path)
    rewrite(tmp_path, change)

    assert any(told in fault for fault in audit(tmp_path).faults)


def test_a_changed_manifest_breaks_the_chain(tmp_path):
    a_run(tmp_path)
    path = tmp_path / "manifest.json"
    path.write_text(path.read_text().replace('"seed": 3', '"seed": 4'))

    assert audit(tmp_path).faults[0] == "link 1 of the chain does not follow from the one before"


def test_a_run_that_was_made_up_anew_is_told_by_the_head_kept_elsewhere(tmp_path):
    kept = a_run(tmp_path).manifest.links[-1].chain
    for path in tmp_path.iterdir():
        path.unlink()
    a_run(tmp_path, training=replace(TRAINING, seed=4))

    assert audit(tmp_path).faults == ()
    assert "rounds were changed, added or dropped" in audit(tmp_path, head=kept).faults[0]


def test_a_killed_run_goes_on_where_its_rounds_end(tmp_path):
    # killed after the line of round 4 was written and before it was chained; then after going back to round 3
    a_run(tmp_path, rounds=3)
    with (tmp_path / "rounds.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(a_round(4)) + b"\n")

    assert len(Notary(tmp_path, a_manifest()).manifest.links) == 4
    assert audit(tmp_path).faults == ()
    rewrite(tmp_path, lambda lines: lines[:2])
    assert len(Notary(tmp_path, a_manifest()).manifest.links) == 2
    assert audit(tmp_path).faults == ()


def test_another_run_in_the_same_folder_is_refused(tmp_path):
    a_run(tmp_path)

    with pytest.raises(InvalidInput, match=r"of another run \(training\)"):
        Notary(tmp_path, a_manifest(training=replace(TRAINING, seed=9)))


def test_files_that_are_no_run_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match="does not exist"):
        audit(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(InvalidInput, match="no manifest"):
        audit(tmp_path)
    a_run_folder = tmp_path / "run"
    a_run_folder.mkdir()
    a_run(a_run_folder)
    with (a_run_folder / "rounds.jsonl").open("ab") as file:
        file.write(b'{"round": 6, "coh')
    with pytest.raises(InvalidInput, match="the file is damaged"):
        audit(a_run_folder)


def test_the_head_covers_everything_but_the_rounds():
    given = a_manifest()

    for field, value in {"name": "x", "clients": 4, "code": {}, "start_digest": "1"}.items():
        assert head_of(msgspec.structs.replace(given, **{field: value})) != head_of(given)
    assert head_of(msgspec.structs.replace(given, links=())) == head_of(given)


def test_the_digest_of_code_sees_every_file_and_its_place(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.py").write_text("1")
    (tmp_path / "two.py").write_text("2")
    before = folder_digest(tmp_path)

    (tmp_path / "notes.txt").write_text("not code")
    assert folder_digest(tmp_path) == before
    (tmp_path / "a" / "one.py").rename(tmp_path / "one.py")
    assert folder_digest(tmp_path) != before


def test_data_of_a_client_are_counted_by_hand():
    # five samples of three columns: the last column never changes, one sample repeats, one has NaN
    inputs = np.array([[1, 2, 0], [1, 2, 0], [3, 4, 0], [5, np.nan, 0], [7, 8, 0]], np.float32)

    data = client_data(4, inputs, np.array([0, 0, 1, 1, 1]))

    assert (data.client, data.samples, data.columns) == (4, 5, 3)
    assert data.labels == {"0": 2, "1": 3}
    assert data.constant_columns == 1
    assert (data.missing_ratio, data.duplicate_ratio) == (pytest.approx(0.2), pytest.approx(0.2))
    assert json.loads(msgspec.json.encode(data))["labels"] == {"0": 2, "1": 3}


def test_images_count_their_pixels_and_no_sample_is_no_fault_of_counting():
    images = client_data(0, np.zeros((3, 1, 8, 8), np.uint8), np.array([1, 1, 2]))
    empty = client_data(1, np.zeros((0, 4)), np.zeros(0, np.int64))

    assert (images.columns, images.constant_columns, images.duplicate_ratio) == (64, 64, pytest.approx(2 / 3))
    assert (empty.samples, empty.missing_ratio) == (0, 0.0)
    with pytest.raises(InvalidInput, match="give one each"):
        client_data(2, np.zeros((2, 4)), np.zeros(3, np.int64))


def test_poor_clients_are_named_with_every_reason():
    good = client_data(0, np.arange(12.0).reshape(4, 3), np.array([0, 1, 0, 1]))
    poor = client_data(7, np.array([[1, np.inf], [1, 2], [1, 2]]), np.array([0, 0, 0]))
    gate = Gate(least_samples=4, least_labels=2, most_duplicate_ratio=0.1, most_constant_ratio=0.4)

    assert faults(good, gate) == []
    assert refused([good, poor], gate) == {
        7: "3 samples, 4 are needed; 1 labels, 2 are needed; 33.3% samples with NaN or infinity, 0.0% are"
        " allowed; 33.3% repeated samples, 10.0% are allowed; 50.0% columns that never change, 40.0% are"
        " allowed"
    }
    assert faults(poor, Gate()) == ["33.3% samples with NaN or infinity, 0.0% are allowed"]
