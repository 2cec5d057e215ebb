"""Text to tokens: what comes out, what an interruption leaves, what is refused."""

import errno
import hashlib
import os
from pathlib import Path

import msgspec
import numpy as np
import pytest

from escala.errors import InvalidInput
from escala.training.data import documents, prepare
from escala.training.data.encoders import ByteEncoder, encoder_of
from escala.training.data.index import VALIDATION, read_index
from escala.training.data.tokens import open_tokens

END = 256


def row(folder: Path, part: str = "train") -> list[int]:
    tokens = open_tokens(folder, part)
    return tokens.stretch(0, len(tokens)).tolist()


def text_of(numbers: list[int]) -> list[str]:
    """The documents of a row of bytes."""
    found = "".join(chr(each) for each in numbers).split(chr(END))
    assert found.pop() == ""
    return found


def every_file(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def test_bytes_are_tokens_and_256_ends_a_document(made, tmp_path: Path):
    (tmp_path / "one.txt").write_text("aé")

    index = made(tmp_path / "one.txt")

    assert row(tmp_path / "tokens") == [97, 0xC3, 0xA9, END]
    assert (index.encoding.vocabulary, index.encoding.dtype) == (257, "uint16")
    assert np.fromfile(tmp_path / "tokens" / "train-00000.bin", "<u2").tolist() == [97, 0xC3, 0xA9, END]
    assert np.fromfile(tmp_path / "tokens" / "train-00000.ends", "<u8").tolist() == [4]


def test_files_of_a_folder_come_by_name_and_hidden_ones_not(made, tmp_path: Path):
    for name in ("b.txt", "a/z.txt", "a/y.txt", ".hidden", ".git/x"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(name)

    made(tmp_path / "in")

    assert text_of(row(tmp_path / "tokens")) == ["b.txt", "a/y.txt", "a/z.txt"]


def test_the_index_names_sources_with_size_and_hash(made, lines: Path, tmp_path: Path):
    index = made(lines)

    (source,) = index.sources
    assert (source.name, source.kind, source.size_bytes) == (str(lines), "jsonl", lines.stat().st_size)
    assert source.sha256 == hashlib.sha256(lines.read_bytes()).hexdigest()
    assert read_index(tmp_path / "tokens") == index


@pytest.mark.parametrize("shard_tokens", [1, 7, 30, 1000])
def test_shards_cut_no_document_and_change_no_token(made, lines: Path, tmp_path: Path, shard_tokens: int):
    index = made(lines, shard_tokens=shard_tokens)

    assert text_of(row(tmp_path / "tokens")) == [chr(97 + n) * (n + 1) for n in range(11)]
    for each in index.shards[:-1]:
        # a shard ends with the document that fills it, and the longest has 11 letters and an end
        assert shard_tokens <= each.tokens < shard_tokens + 12


def test_documents_without_text_are_left_out_and_counted(made, tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n\n{"text": null}\n{"text": "x"}\n')
    (tmp_path / "b.txt").write_text("")

    index = made(tmp_path / "a.jsonl", tmp_path / "b.txt")

    assert row(tmp_path / "tokens") == [ord("x"), END]
    assert (index.documents["train"], index.empty_documents) == (1, 3)


def test_validation_takes_documents_by_their_hash(made, tmp_path: Path):
    texts = [f"document {n}" for n in range(2000)]
    (tmp_path / "a.jsonl").write_text("".join(f'{{"text": "{each}"}}\n' for each in texts + texts))

    index = made(tmp_path / "a.jsonl", validation_share=0.25)

    train, validation = text_of(row(tmp_path / "tokens")), text_of(row(tmp_path / "tokens", VALIDATION))
    assert sorted(train + validation) == sorted(texts + texts)
    assert not set(train) & set(validation)  # a document that comes twice is in one part
    # 2,000 draws of 0.25: 500, deviation 19.4
    assert abs(len(set(validation)) - 500) < 5 * 19.4
    assert index.documents == {"train": len(train), "validation": len(validation)}


class Stopped(Exception):
    """Stands for Ctrl-C."""


def stopping(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop behind so many whole shards, while the next one is read."""
    written, seen = prepare.write_index, []

    def write(folder: Path, index: object) -> None:
        written(folder, index)
        seen.append(1)
        if len(seen) == after:
            raise Stopped

    monkeypatch.setattr(prepare, "write_index", write)


@pytest.mark.parametrize("name", ["lines.jsonl", "folder"])
@pytest.mark.parametrize("after", [1, 2, 3])
def test_an_interrupted_preparation_goes_on_behind_its_last_shard(
    made, lines: Path, tmp_path: Path, monkeypatch, name: str, after: int
):
    (tmp_path / "folder").mkdir()
    for n in range(11):
        (tmp_path / "folder" / f"{n:02}.txt").write_text(chr(97 + n) * n)
    settings = {"shard_tokens": 10, "validation_share": 0.3}
    made(tmp_path / name, into="whole", **settings)
    with monkeypatch.context() as patch:
        stopping(after, patch)
        with pytest.raises(Stopped):
            made(tmp_path / name, **settings)
    with pytest.raises(InvalidInput, match="is not finished; give `escala data prepare` the same sources"):
        open_tokens(tmp_path / "tokens")
    before = {each.name: each.stat().st_mtime_ns for each in (tmp_path / "tokens").glob("*-0*")}

    made(tmp_path / name, **settings)

    assert every_file(tmp_path / "tokens") == every_file(tmp_path / "whole")
    assert before == {each: (tmp_path / "tokens" / each).stat().st_mtime_ns for each in before}


def test_a_finished_folder_is_not_made_again(made, lines: Path, tmp_path: Path, monkeypatch):
    index = made(lines)
    monkeypatch.setattr(prepare, "pieces", None)

    assert made(lines) == index


@pytest.mark.parametrize("change", ["more text", "field", "validation"])
def test_a_folder_of_other_tokens_is_not_written_into(made, lines: Path, tmp_path: Path, change: str):
    made(lines)
    before = every_file(tmp_path / "tokens")
    if change == "more text":
        lines.write_text(lines.read_text() + '{"text": "more"}\n')
    settings = {"field": {"field": "id"}, "validation": {"validation_share": 0.5}}.get(change, {})

    with pytest.raises(InvalidInput, match="tokens of other sources or settings; name another folder"):
        made(lines, **settings)

    assert every_file(tmp_path / "tokens") == before


def test_a_full_disk_leaves_the_shards_that_are_whole(made, lines: Path, tmp_path: Path, monkeypatch):
    room, write = [100], Path.write_bytes

    def limited(path: Path, content: bytes) -> int:
        room[0] -= memoryview(content).nbytes if path.name.startswith(".train") else 0
        if room[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", limited)
        with pytest.raises(InvalidInput, match=r"-0000\d.*cannot be written \(no space left on device\)"):
            made(lines, shard_tokens=5)
    left = read_index(tmp_path / "tokens")
    assert len(left.shards) > 0
    assert len(list((tmp_path / "tokens").iterdir())) == 2 * len(left.shards) + 1  # no draft

    made(lines, shard_tokens=5)

    assert text_of(row(tmp_path / "tokens")) == [chr(97 + n) * (n + 1) for n in range(11)]


def test_a_long_text_is_read_in_pieces_and_stays_one_document(made, tmp_path: Path, monkeypatch):
    text = "first line\nänother ☃ line\n" + "é" * 60 + "\nlast"
    (tmp_path / "one.txt").write_text("\ufeff" + text)
    for piece in (7, 20, 64):
        monkeypatch.setattr(documents, "PIECE_BYTES", piece)
        made(tmp_path / "one.txt", into=f"by{piece}")

        assert row(tmp_path / f"by{piece}") == [*text.encode(), END]


def test_a_text_that_fills_its_last_piece_is_one_document(made, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(documents, "PIECE_BYTES", 4)
    (tmp_path / "one.txt").write_text("ab\ncd\nefg\n\n")  # 12 bytes and cuts behind lines

    made(tmp_path / "one.txt")

    assert text_of(row(tmp_path / "tokens")) == ["ab\ncd\nefg\n\n"]


def test_a_text_longer_than_a_document_may_be_becomes_several(made, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(documents, "PIECE_BYTES", 4)
    monkeypatch.setattr(documents, "DOCUMENT_BYTES", 6)
    (tmp_path / "one.txt").write_text("ab\ncd\nef\ngh\n")

    index = made(tmp_path / "one.txt", shard_tokens=1)

    assert text_of(row(tmp_path / "tokens")) == ["ab\ncd\n", "ef\ngh\n"]
    assert (len(index.shards), index.empty_documents) == (2, 0)


WRONG = {
    "zero.txt": (b"abc\0def", r"zero.txt is no text \(a zero byte at 3\); leave it out"),
    "latin.txt": (b"caf\xe9 noir", "latin.txt is not UTF-8 at byte 3; leave it out, or save it as UTF-8"),
    "cut.jsonl": (b'{"text": "a"}\n{"text": "b', r"cut.jsonl, line 2 is no JSON .*; a line holds one object"),
    "other.jsonl": (
        b'{"text": "a"}\n{"body": "b", "id": 1}\n',
        "line 2 has no 'text'; it has body, id",
    ),
    "number.jsonl": (b'{"text": 5}\n', "line 1: 'text' is 5, not text; choose another field"),
    "list.jsonl": (b"[1]\n", "line 1 is a list, not an object with the key 'text'"),
    "latin.jsonl": (b'{"text": "caf\xe9"}\n', "line 1 is no JSON"),
    "deep.jsonl": (b'{"a": ' + b"[" * 100_000, "line 1 is no JSON"),
    "empty.txt": (b"", "empty.txt and what else was named hold no text"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_source_that_is_no_text_is_one_clear_line(made, tmp_path: Path, name: str):
    content, message = WRONG[name]
    (tmp_path / name).write_bytes(content)

    with pytest.raises(InvalidInput, match=message) as error:
        made(tmp_path / name)

    assert "\n" not in str(error.value)
    assert list((tmp_path / "tokens").iterdir()) == []


def test_the_number_of_a_wrong_line_is_that_of_the_file_also_after_resume(made, tmp_path, monkeypatch):
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "aaaa"}\n\n{"text": "bbbb"}\n{"text": 7}\n')
    with pytest.raises(InvalidInput, match="line 4"):
        made(file, shard_tokens=5)

    with pytest.raises(InvalidInput, match="line 4: 'text' is 7"):
        made(file, shard_tokens=5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.mkdir(), "holds no file; name files"),
        (lambda path: None, "does not exist; check the path"),
    ],
)
def test_sources_without_files_are_refused(made, tmp_path: Path, make, message: str):
    make(tmp_path / "in")

    with pytest.raises(InvalidInput, match=message):
        made(tmp_path / "in")


def test_the_folder_to_write_must_not_hold_what_is_read(made, tmp_path: Path):
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens" / "a.txt").write_text("a")

    with pytest.raises(InvalidInput, match=r"holds .*a.txt, which is to be read; name another folder"):
        made(tmp_path / "tokens")


def test_a_file_where_the_folder_should_be_is_refused(made, lines: Path, tmp_path: Path):
    (tmp_path / "tokens").write_text("")

    with pytest.raises(InvalidInput, match=r"tokens cannot be made \(file exists\); name another folder"):
        made(lines)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_locked_file_is_one_clear_line(made, lines: Path):
    lines.chmod(0)

    with pytest.raises(InvalidInput, match="may not be read by this user"):
        made(lines)


def test_a_file_that_grows_while_it_is_read_is_refused(made, lines: Path, monkeypatch):
    sized = prepare.size_bytes
    monkeypatch.setattr(prepare, "size_bytes", lambda path: sized(path) + 1)

    with pytest.raises(InvalidInput, match="changed while it was read; prepare again when it rests"):
        made(lines)


def test_an_end_without_tokenizer_is_refused():
    with pytest.raises(InvalidInput, match="--end names a token of a tokenizer; give --tokenizer too"):
        encoder_of(None, "</s>")


def test_bytes_encode_every_letter():
    assert [each.tolist() for each in ByteEncoder().encode(["", "é"])] == [[], [0xC3, 0xA9]]


DAMAGES = {
    "missing": (lambda file: file.unlink(), "train-00000.bin is missing; delete the folder"),
    "short": (lambda file: file.write_bytes(file.read_bytes()[:-1]), r"is damaged \(153 bytes, not 154\)"),
    "changed": (lambda file: file.write_bytes(b"\1" + file.read_bytes()[1:]), None),
    "other": (lambda file: file.write_bytes(b"\xff" * 154), None),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_shard_is_one_clear_line(made, lines: Path, tmp_path: Path, damage: str):
    made(lines)
    spoil, message = DAMAGES[damage]
    spoil(tmp_path / "tokens" / "train-00000.bin")

    with pytest.raises(InvalidInput, match=message or "is damaged .its content changed"):
        made(lines)
    if message:
        with pytest.raises(InvalidInput, match=message):
            open_tokens(tmp_path / "tokens")


def test_a_token_that_no_vocabulary_has_is_found_when_it_is_read(made, lines: Path, tmp_path: Path):
    made(lines)
    (tmp_path / "tokens" / "train-00000.bin").write_bytes(b"\xff" * 154)

    with pytest.raises(InvalidInput, match="train holds token 65,535 near 3, which is none of 257; delete"):
        open_tokens(tmp_path / "tokens").stretch(3, 2)


INDEXES = {
    "cut": (lambda keys: msgspec.json.encode(keys)[:-9], "tokens.json is damaged"),
    "other": (lambda keys: b'{"schema": "escala/plan@1"}', "schema is 'escala/plan@1'; this escala reads"),
    "key": (lambda keys: msgspec.json.encode(keys | {"more": 1}), "damaged .*unknown field `more`"),
    "list": (lambda keys: b"[]", "tokens.json is damaged"),
    "dtype": (
        lambda keys: msgspec.json.encode(keys | {"encoding": keys["encoding"] | {"dtype": "int8"}}),
        "dtype is 'int8', not uint16 or uint32",
    ),
}


@pytest.mark.parametrize("damage", INDEXES)
def test_a_damaged_index_is_one_clear_line(made, lines: Path, tmp_path: Path, damage: str):
    made(lines)
    spoil, message = INDEXES[damage]
    file = tmp_path / "tokens" / "tokens.json"
    file.write_bytes(spoil(msgspec.json.decode(file.read_bytes())))

    with pytest.raises(InvalidInput, match=message):
        open_tokens(tmp_path / "tokens")


def test_a_folder_that_holds_no_tokens_is_refused(tmp_path: Path):
    with pytest.raises(InvalidInput, match=r"tokens\.json does not exist"):
        open_tokens(tmp_path)


def test_a_part_without_documents_is_refused(made, lines: Path, tmp_path: Path):
    made(lines)

    with pytest.raises(InvalidInput, match="has documents for train, none for validation; prepare it with"):
        open_tokens(tmp_path / "tokens", VALIDATION)
