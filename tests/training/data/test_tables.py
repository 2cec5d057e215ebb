"""Parquet, Arrow and saved data sets; needs pyarrow."""

import json
import sys
from pathlib import Path

import pytest

from escala.errors import InvalidInput, MissingExtra
from escala.training.data.tokens import open_tokens

TEXTS = ["ab", None, "", *(chr(97 + n % 26) * (n % 7 + 1) for n in range(3000))]


def documents(folder: Path) -> list[str]:
    tokens = open_tokens(folder)
    numbers = tokens.stretch(0, len(tokens)).tolist()
    return "".join(map(chr, numbers)).split(chr(256))[:-1]


def parquet(folder: Path, **columns: list) -> Path:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "a.parquet", row_group_size=700)
    return folder / "a.parquet"


def saved(folder: Path, **columns: list) -> Path:
    """A data set as `datasets` 5.2 saves it: a stream of Arrow batches, named by state.json."""
    import pyarrow

    table, folder = pyarrow.table(columns), folder / "saved"
    folder.mkdir()
    halves = (table.slice(0, 1000), table.slice(1000))
    names = [f"data-0000{n}-of-00002.arrow" for n in (0, 1)]
    for name, half in zip(names, halves, strict=True):
        with pyarrow.ipc.new_stream(folder / name, table.schema) as stream:
            stream.write_table(half, max_chunksize=300)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "0", "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def arrow_file(folder: Path, **columns: list) -> Path:
    import pyarrow

    table = pyarrow.table(columns)
    with pyarrow.ipc.new_file(folder / "a.arrow", table.schema) as file:
        file.write_table(table, max_chunksize=500)
    return folder / "a.arrow"


WRITERS = {"parquet": parquet, "saved": saved, "file": arrow_file}


@pytest.mark.optional
@pytest.mark.parametrize("name", WRITERS)
def test_rows_of_a_table_are_documents_also_after_an_interruption(made, tmp_path, monkeypatch, name: str):
    from escala.training.data import prepare

    source = WRITERS[name](tmp_path, id=list(range(len(TEXTS))), text=TEXTS)
    write, seen = prepare.write_index, []

    def stop(folder: Path, index: object) -> None:
        write(folder, index)
        seen.append(1)
        if len(seen) == 3:
            raise KeyError("stop")

    with monkeypatch.context() as patch:
        patch.setattr(prepare, "write_index", stop)
        with pytest.raises(KeyError, match="stop"):
            made(source, shard_tokens=3000)

    index = made(source, shard_tokens=3000)

    assert documents(tmp_path / "tokens") == [each for each in TEXTS if each]
    assert (index.empty_documents, len(index.shards) > 3) == (2, True)


@pytest.mark.optional
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"body": ["a"]}, "has no 'text'; it has body: choose with --field"),
        ({"text": [1]}, "'text' is int64, not text; choose another with --field"),
    ],
)
def test_a_column_that_is_no_text_is_refused(made, tmp_path: Path, name: str, columns: dict, message: str):
    source = WRITERS[name](tmp_path, **columns)

    with pytest.raises(InvalidInput, match=message):
        made(source)


@pytest.mark.optional
@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
@pytest.mark.parametrize("content", [b"", b"no table at all", b"PAR1" + bytes(40) + b"PAR1"])
def test_a_damaged_table_is_one_clear_line(made, tmp_path: Path, name: str, content: bytes):
    (tmp_path / name).write_bytes(content)

    with pytest.raises(InvalidInput, match=f"{name} (is damaged|cannot be read)") as error:
        made(tmp_path / name)

    assert "\n" not in str(error.value)


def test_a_data_set_in_parts_asks_for_one_of_them(made, tmp_path: Path):
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')

    with pytest.raises(InvalidInput, match=r"is a data set in parts; name one of them: .*/train, .*/test"):
        made(tmp_path)


def test_without_pyarrow_the_extra_is_named(made, tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")

    with pytest.raises(MissingExtra, match=r"pyarrow is not installed: pip install 'escala\[data\]'"):
        made(tmp_path / "a.parquet")
