"""The files that text or images come from: found, ordered, hashed. Reads no content but for the hash."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import msgspec

from escala.errors import InvalidInput
from escala.inputs import LOCKED, read_bytes, reason
from escala.progress import Pace, Progress

BLOCK_BYTES: Final = 2**22
KINDS: Final = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".arrow": "arrow"}
DATASET, DATASETS = "state.json", "dataset_dict.json"
MOST_STATE_BYTES: Final = 20_000_000
TOO_LARGE: Final = "it is none that `datasets` writes"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A file to read: where it is, and the name that is kept of it."""

    path: Path
    name: str

    @property
    def kind(self) -> str:
        """How it is read: jsonl, parquet or arrow by its ending, else as text."""
        return KINDS.get(self.path.suffix.lower(), "text")


class Origin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that was read: its name, kind, size and the SHA-256 of its content."""

    name: str
    kind: str
    size_bytes: int
    sha256: str


def files_of(sources: Sequence[Path]) -> tuple[Found, ...]:
    """The files of sources: a file itself, a saved data set's in its order, a folder's by name."""
    found = [each for source in sources for each in _files(source)]
    if not found:
        given = ", ".join(map(str, sources)) or "nothing"
        raise InvalidInput(f"{given} holds no file; name files, or a folder that holds some")
    return tuple(found)


def refuse_within(sources: Sequence[Path], folder: Path) -> None:
    """Refuse to write into a folder that is read: what was written would be read the next time."""
    for source in sources:
        if source.is_dir() and folder.resolve().is_relative_to(source.resolve()):
            raise InvalidInput(f"{folder} lies in {source}, which is read; name a folder outside of it")


def _files(source: Path) -> Iterable[Found]:
    if not source.exists():
        raise InvalidInput(f"{source} does not exist; check the path")
    if not source.is_dir():
        return [Found(path=source, name=str(source))]
    if (source / DATASETS).exists():
        raise InvalidInput(f"{source} is a data set in parts; name one of them: {', '.join(_parts(source))}")
    if (source / DATASET).exists():
        return [Found(path=source / name, name=str(source / name)) for name in _tables(source)]
    return (Found(path=path, name=str(path)) for path in walk(source))


class _Table(msgspec.Struct, frozen=True):
    filename: str


class _State(msgspec.Struct, frozen=True):
    """The keys of a saved data set's state.json that matter here; datasets 2 to 5 write them."""

    tables: tuple[_Table, ...] = msgspec.field(name="_data_files")


class _Splits(msgspec.Struct, frozen=True):
    splits: tuple[str, ...]


def _tables(folder: Path) -> list[str]:
    file = folder / DATASET
    state = decoded(read_bytes(file, MOST_STATE_BYTES, TOO_LARGE), _State, file)
    return [each.filename for each in state.tables]


def _parts(folder: Path) -> list[str]:
    file = folder / DATASETS
    parts = decoded(read_bytes(file, MOST_STATE_BYTES, TOO_LARGE), _Splits, file).splits
    return [str(folder / each) for each in parts]


def decoded(content: bytes, kind: type[T], file: Path) -> T:
    """The record that a JSON file holds, or what is wrong with it."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"{file} is damaged ({reason(error)}); write it again") from None


def walk(folder: Path, left_out: frozenset[str] = frozenset()) -> Iterator[Path]:
    """Files of a folder and the folders in it, by name, but for hidden ones and folders of some names."""
    for place, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in left_out)
        yield from (Path(place, name) for name in sorted(names) if not name.startswith("."))


def _refuse(error: OSError) -> None:
    raise InvalidInput(f"{error.filename} {LOCKED}") from None


def origins(files: Sequence[Found], progress: Progress) -> tuple[Origin, ...]:
    """Every file with its size and hash."""
    sizes = [size_bytes(each.path) for each in files]
    pace = Pace("reading for the hash", sum(sizes), progress)
    return tuple(
        Origin(name=each.name, kind=each.kind, size_bytes=size, sha256=digest(each.path, pace))
        for each, size in zip(files, sizes, strict=True)
    )


def digest(path: Path, pace: Pace | None = None) -> str:
    """SHA-256 of a file."""
    content = hashlib.sha256()
    with opened(path) as file:
        while block := file.read(BLOCK_BYTES):
            content.update(block)
            if pace:
                pace.took(len(block))
    return content.hexdigest()


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file to read, of which whatever goes wrong is one line."""
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise InvalidInput(f"{path} does not exist; check the path") from None
    except PermissionError:
        raise InvalidInput(f"{path} {LOCKED}") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read ({reason(error)}); check the disk") from None


def size_bytes(path: Path) -> int:
    """Bytes of a file."""
    with opened(path) as file:
        return os.fstat(file.fileno()).st_size
