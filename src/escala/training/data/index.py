"""tokens.json: what a folder of tokens holds and what it was made from. Knows no text.

Each shard is two files of plain little-endian numbers: NAME.bin, the tokens, and NAME.ends, for every
document the number of the token behind its last one, counted from the start of the shard. No shard cuts a
document. Ends have files of their own: as text, millions of them would have to be parsed at every start.
"""

from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from escala.errors import InvalidInput, spoken
from escala.inputs import read_bytes
from escala.training.data.encoders import Encoding
from escala.training.data.files import Origin, decoded, digest
from escala.wholefile import write_whole

TOKENS_SCHEMA: Final = "escala/tokens@1"
INDEX: Final = "tokens.json"
ENDS_STORED: Final = "<u8"
MOST_BYTES: Final = 2**30
TRAIN, VALIDATION = "train", "validation"
STORED: Final = {"uint16": "<u2", "uint32": "<u4"}
AGAIN: Final = "delete the folder and prepare it again"


class Shard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One pair of files: which part of the set it belongs to, how much it holds, and the hashes of both."""

    name: str
    part: str
    tokens: int
    documents: int
    tokens_sha256: str
    ends_sha256: str


class Reached(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where an unfinished preparation goes on: the file by number, and the place in it."""

    file: int = 0
    place: int = 0


class TokensIndex(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The document of `escala data prepare --json`, which the folder keeps as tokens.json.

    `recipe` is the hash of all that decides the tokens: contents of the sources, encoding, field, share of
    validation, size of shards. `reached` is None once it is finished.
    """

    schema: str = TOKENS_SCHEMA
    recipe: str
    encoding: Encoding
    field: str
    validation_share: float
    tokens: dict[str, int]
    documents: dict[str, int]
    empty_documents: int
    shards: tuple[Shard, ...]
    sources: tuple[Origin, ...]
    reached: Reached | None

    def of(self, part: str) -> tuple[Shard, ...]:
        """The shards of one part."""
        return tuple(each for each in self.shards if each.part == part)


def read_index(folder: Path) -> TokensIndex:
    """The index of a folder, finished or not."""
    file = folder / INDEX
    content = read_bytes(file, MOST_BYTES, "it is no index of tokens")
    schema = decoded(content, _Schema, file).schema
    if schema != TOKENS_SCHEMA:
        raise InvalidInput(f"{file}: schema is {spoken(schema)}; this escala reads '{TOKENS_SCHEMA}'")
    index = decoded(content, TokensIndex, file)
    if index.encoding.dtype not in STORED:
        raise InvalidInput(f"{file}: dtype is '{index.encoding.dtype}', not uint16 or uint32; {AGAIN}")
    return index


class _Schema(msgspec.Struct, frozen=True):
    schema: str | None = None


def write_index(folder: Path, index: TokensIndex) -> None:
    """The index as a file that appears whole."""
    write_whole(folder / INDEX, msgspec.json.format(msgspec.json.encode(index), indent=2) + b"\n")


def check_sizes(folder: Path, index: TokensIndex) -> None:
    """Refuse a folder of which a file is missing or has another length than the index says."""
    for each in index.shards:
        for path, whole_bytes in (
            (folder / f"{each.name}.bin", each.tokens * np.dtype(index.encoding.dtype).itemsize),
            (folder / f"{each.name}.ends", each.documents * np.dtype(ENDS_STORED).itemsize),
        ):
            if not path.exists():
                raise InvalidInput(f"{path} is missing; {AGAIN}")
            if path.stat().st_size != whole_bytes:
                found = f"{path.stat().st_size:,} bytes, not {whole_bytes:,}"
                raise InvalidInput(f"{path} is damaged ({found}); {AGAIN}")


def check_contents(folder: Path, index: TokensIndex) -> None:
    """Refuse a folder of which a file has another content than when it was written."""
    check_sizes(folder, index)
    for each in index.shards:
        for path, sha256 in (
            (folder / f"{each.name}.bin", each.tokens_sha256),
            (folder / f"{each.name}.ends", each.ends_sha256),
        ):
            if digest(path) != sha256:
                raise InvalidInput(f"{path} is damaged (its content changed); {AGAIN}")
