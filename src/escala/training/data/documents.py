"""Documents out of files, one after another, in bounded memory. Knows formats, no tokens.

A text file is one document, a line of JSON lines one, a row of a table one. Reading goes on from the place
behind any document: a byte of a text or JSON-lines file, a row of a table.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from escala.errors import InvalidInput, one_line, spoken
from escala.inputs import UTF8_BOM, reason
from escala.training.data.extra import library
from escala.training.data.files import Found, opened

# What is held in memory at once. A longer text is encoded in parts, cut behind a line.
PIECE_BYTES: Final = 2**24
LINE_BYTES: Final = 2**28
# A longer text becomes several documents, since a document is written at once.
DOCUMENT_BYTES: Final = 2**26
ROWS: Final = 1024
FILE_FORMAT: Final = b"ARROW1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a document: whether it is the last, where reading goes on, and how far the file is read."""

    text: str
    is_last: bool
    place: int
    read_share: float


def pieces(file: Found, field: str, place: int) -> Iterator[Piece]:
    """What a file holds from a place on; documents without text (empty, null) come as empty pieces."""
    return _READERS[file.kind](file.path, field, place)


def _text(path: Path, field: str, place: int) -> Iterator[Piece]:
    with opened(path) as file:
        whole_bytes = file.seek(0, os.SEEK_END)
        file.seek(place)
        start, rest, is_end = place, b"", False
        while not is_end:
            content = rest + file.read(PIECE_BYTES - len(rest))
            is_end = len(content) < PIECE_BYTES
            if is_end and not content and start == place > 0:
                return
            cut = len(content) if is_end else _cut(content)
            rest = content[cut:]
            text = _decoded(content[:cut].removeprefix(UTF8_BOM if place == 0 else b""), path, place)
            place += cut
            is_last = is_end or place - start >= DOCUMENT_BYTES
            start = place if is_last else start
            yield Piece(text=text, is_last=is_last, place=place, read_share=_share(place, whole_bytes))


def _share(place: int, whole: int) -> float:
    return place / whole if whole else 1.0


def _cut(content: bytes) -> int:
    """Behind the last line of a block, or behind its last whole letter where it is a single line."""
    line = content.rfind(b"\n") + 1
    if line:
        return line
    start = next((at for at in range(1, 5) if content[-at] & 0xC0 != 0x80), 1)
    return len(content) - start


def _decoded(content: bytes, path: Path, place: int) -> str:
    zero = content.find(b"\0")
    if zero >= 0:
        raise InvalidInput(f"{path} is no text (a zero byte at {place + zero:,}); leave it out")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        at = place + error.start
        raise InvalidInput(f"{path} is not UTF-8 at byte {at:,}; leave it out, or save it as UTF-8") from None


def _lines(path: Path, field: str, place: int) -> Iterator[Piece]:
    record = msgspec.defstruct("Line", [("text", str | None)], rename={"text": field})
    decode: Callable[[bytes], Any] = msgspec.json.Decoder(record).decode
    with opened(path) as file:
        whole_bytes = file.seek(0, os.SEEK_END)
        file.seek(place)
        while line := file.readline(LINE_BYTES):
            content = line.removeprefix(UTF8_BOM if place == 0 else b"").strip()
            start, place = place, place + len(line)
            if not content:
                continue
            try:
                text = decode(content).text or ""
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise _wrong_line(file, path, field, start, content, error) from None
            yield Piece(text=text, is_last=True, place=place, read_share=_share(place, whole_bytes))


def _wrong_line(
    file: BinaryIO, path: Path, field: str, start: int, content: bytes, error: Exception
) -> InvalidInput:
    """What is wrong with a line of JSON, by its number."""
    file.seek(0)
    number = 1
    while file.tell() < start:
        number += file.readline(LINE_BYTES).endswith(b"\n")
    where = f"{path}, line {number:,}"
    if len(content) >= LINE_BYTES - len(UTF8_BOM):
        return InvalidInput(f"{where} is longer than {LINE_BYTES // 2**20} MiB; cut that document")
    try:
        keys = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return InvalidInput(f"{where} is no JSON ({reason(error)}); a line holds one object each")
    if not isinstance(keys, dict):
        return InvalidInput(f"{where} is {spoken(keys)}, not an object with the key '{field}'")
    if field in keys:
        return InvalidInput(f"{where}: '{field}' is {spoken(keys[field])}, not text; choose another field")
    return _lacks(where, field, list(keys))


def _lacks(where: str, field: str, names: list[str]) -> InvalidInput:
    there = ", ".join(map(one_line, names[:10])) or "nothing"
    return InvalidInput(f"{where} has no '{one_line(field)}'; it has {there}: choose with --field")


def _parquet(path: Path, field: str, place: int) -> Iterator[Piece]:
    parquet = library("pyarrow.parquet", f"{path} is Parquet")
    with opened(path) as file, table_told(path):
        table = parquet.ParquetFile(file)
        _check_column(path, field, table.schema_arrow)
        first = 0
        for group in range(table.num_row_groups):
            rows = table.metadata.row_group(group).num_rows
            if place < first + rows:
                batches = table.iter_batches(ROWS, row_groups=[group], columns=[field])
                yield from _rows(batches, field, first, place, lambda row: row / table.metadata.num_rows)
            first += rows


def _arrow(path: Path, field: str, place: int) -> Iterator[Piece]:
    arrow = library("pyarrow", f"{path} is Arrow")
    with opened(path) as file, table_told(path):
        is_file = file.read(len(FILE_FORMAT)) == FILE_FORMAT
        whole_bytes = file.seek(0, os.SEEK_END)
        file.seek(0)
        table = arrow.ipc.open_file(file) if is_file else arrow.ipc.open_stream(file)
        _check_column(path, field, table.schema)
        batches = map(table.get_batch, range(table.num_record_batches)) if is_file else table
        yield from _rows(batches, field, 0, place, lambda row: file.tell() / whole_bytes)


@contextmanager
def table_told(path: Path) -> Iterator[None]:
    """Turns what pyarrow says of a damaged table (ValueErrors, KeyErrors) into one line."""
    try:
        yield
    except (ValueError, KeyError, NotImplementedError) as error:
        raise InvalidInput(f"{path} is damaged ({reason(error)}); fetch it again") from None


def _check_column(path: Path, field: str, schema: Any) -> None:
    if field not in schema.names:
        raise _lacks(str(path), field, list(schema.names))
    kind = str(schema.field(field).type)
    if kind not in ("string", "large_string", "string_view", "null"):
        raise InvalidInput(f"{path}: '{field}' is {kind}, not text; choose another with --field")


def _rows(
    batches: Iterator[Any], field: str, first: int, place: int, read_share: Callable[[int], float]
) -> Iterator[Piece]:
    """Texts of record batches, of which the first row has the number `first`, from row `place` on."""
    for batch in batches:
        texts = batch.column(batch.schema.get_field_index(field))
        skipped = min(max(place - first, 0), len(texts))
        share = read_share(first + len(texts))
        for number, text in enumerate(texts.slice(skipped).to_pylist(), first + skipped + 1):
            yield Piece(text=text or "", is_last=True, place=number, read_share=share)
        first += len(texts)


_READERS: Final[dict[str, Callable[[Path, str, int], Iterator[Piece]]]] = {
    "text": _text,
    "jsonl": _lines,
    "parquet": _parquet,
    "arrow": _arrow,
}
