from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from escala.errors import InvalidInput
from escala.training.data.order import Order
from escala.training.data.samples import IGNORED
from escala.training.data.texts import Texts
from escala.training.data.tokens import open_tokens

END = 256


def texts(folder: Path, sequence: int, *, seed: int | None = None, is_masked: bool = True) -> Texts:
    return Texts(tokens=open_tokens(folder), sequence_tokens=sequence, seed=seed, is_masked=is_masked)


def test_documents_follow_one_another_and_are_told_apart(made, tmp_path: Path):
    (tmp_path / "lines.jsonl").write_text('{"text": "ab"}\n{"text": "cde"}\n{"text": "f"}\n')
    made(tmp_path / "lines.jsonl")

    found = texts(tmp_path / "tokens", 4).batch(0, 2)

    # a b END | c d e END | f END: nine tokens, two samples of 4 and what follows
    a, b, c, d, e, f = b"abcdef"
    assert found.inputs.tolist() == [[a, b, END, c], [d, e, END, f]]
    assert found.targets.tolist() == [[b, END, IGNORED, d], [e, END, IGNORED, END]]
    assert found.documents.tolist() == [[0, 0, 0, 1], [0, 0, 0, 1]]
    assert found.positions.tolist() == [[0, 1, 2, 0], [0, 1, 2, 0]]


def test_without_mask_a_sequence_is_one_text(made, lines: Path, tmp_path: Path):
    made(lines)

    found = texts(tmp_path / "tokens", 8, is_masked=False).batch(0, 5)

    assert (found.documents, found.positions) == (None, None)
    assert found.targets[:, :-1].tolist() == found.inputs[:, 1:].tolist()
    assert (found.targets != IGNORED).all()


documents = st.lists(st.text("xyz", min_size=1, max_size=12), min_size=1, max_size=20)
once = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


def written(tmp_path: Path, made, documents: list[str], shard_tokens: int) -> list[int]:
    """Prepares documents, and gives the plain row of their tokens."""
    folder = tmp_path / "many"
    if folder.exists():
        for each in folder.iterdir():
            each.unlink()
    file = tmp_path / "many.jsonl"
    file.write_text("".join(f'{{"text": "{each}"}}\n' for each in documents))
    made(file, into="many", shard_tokens=shard_tokens)
    return [token for each in documents for token in [*each.encode(), END]]


@once
@given(documents, st.integers(1, 20), st.integers(1, 40))
def test_samples_are_the_plain_row_of_documents_cut_in_pieces(made, tmp_path, documents, sequence, shard):
    row = written(tmp_path, made, documents, shard)
    if len(row) <= sequence:
        return

    found = texts(tmp_path / "many", sequence, is_masked=False)

    whole = found.batch(0, len(found))
    samples = (len(row) - 1) // sequence
    assert len(found) == samples
    assert whole.inputs.ravel().tolist() == row[: samples * sequence]
    assert whole.targets.ravel().tolist() == row[1 : samples * sequence + 1]


@once
@given(documents, st.integers(1, 20), st.integers(1, 40), st.integers(0, 100))
def test_no_mask_and_no_target_crosses_documents(made, tmp_path, documents, sequence, shard, seed):
    row = written(tmp_path, made, documents, shard)
    if len(row) <= sequence:
        return
    owner = np.cumsum([0, *(token == END for token in row)])[:-1]  # number of the document of each token
    found = texts(tmp_path / "many", sequence, seed=seed)

    whole = found.batch(0, len(found))

    _, items = Order(items=len(found), seed=seed).at(0, len(found))
    for place, begin in enumerate((items * sequence).tolist()):
        inside, after = owner[begin : begin + sequence], owner[begin + 1 : begin + sequence + 1]
        assert whole.documents[place].tolist() == (inside - inside[0]).tolist()
        assert ((whole.targets[place] == IGNORED) == (inside != after)).all()
        assert whole.positions[place].tolist() == [
            at - inside.tolist().index(number) for at, number in enumerate(inside)
        ]


@once
@given(st.integers(0, 1000), st.integers(0, 60), st.integers(1, 12))
def test_a_batch_is_its_samples_one_by_one(made, tmp_path, seed, first, count):
    written(tmp_path, made, ["xyz" * n for n in range(1, 9)], 20)
    found = texts(tmp_path / "many", 7, seed=seed)

    batch = found.batch(first, count)

    alone = [found.batch(first + place, 1) for place in range(count)]
    for name in ("inputs", "targets", "documents", "positions"):
        assert (getattr(batch, name) == np.concatenate([getattr(each, name) for each in alone])).all()


def test_an_epoch_has_every_sample_once(made, lines: Path, tmp_path: Path):
    made(lines)
    found = texts(tmp_path / "tokens", 5, seed=9)
    plain = texts(tmp_path / "tokens", 5, seed=None)

    for epoch in range(3):
        shuffled = found.batch(epoch * len(found), len(found)).inputs.tolist()

        assert sorted(shuffled) == sorted(plain.batch(0, len(plain)).inputs.tolist())


def test_text_of_less_than_a_sample_is_refused(made, lines: Path, tmp_path: Path):
    made(lines)

    # 1 + 2 + ... + 11 letters and 11 ends: 77 tokens
    assert len(texts(tmp_path / "tokens", 76)) == 1
    with pytest.raises(
        InvalidInput, match="train has 77 tokens, of which one sample needs 78; choose shorter"
    ):
        texts(tmp_path / "tokens", 77)


def test_a_network_with_fewer_tokens_is_refused(made, lines: Path, tmp_path: Path):
    made(lines)

    with pytest.raises(InvalidInput, match="257 different tokens, the network 256; prepare the text with"):
        open_tokens(tmp_path / "tokens").require_vocabulary(256)
    open_tokens(tmp_path / "tokens").require_vocabulary(257)
