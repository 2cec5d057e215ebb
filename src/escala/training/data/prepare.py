"""Sources of text to a folder of tokens, shard by shard, in bounded memory. Knows no training.

After each shard the index says where to go on, so an interrupted preparation continues there. What decides
the tokens is hashed into the recipe: a folder of another recipe is refused, a finished one of this is kept.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from escala.errors import InvalidInput
from escala.inputs import reason
from escala.progress import Pace, Progress
from escala.training.data.documents import Piece, pieces
from escala.training.data.encoders import Encoder, Tokens
from escala.training.data.files import Found, Origin, origins, size_bytes
from escala.training.data.index import (
    ENDS_STORED,
    INDEX,
    STORED,
    TRAIN,
    VALIDATION,
    Reached,
    Shard,
    TokensIndex,
    check_contents,
    check_sizes,
    read_index,
    write_index,
)
from escala.wholefile import write_together

# A shard and the documents on their way into it are what stays in memory: 128 or 256 MiB and a little.
SHARD_TOKENS: Final = 2**26
# Texts that are encoded together: enough for all cores of a tokenizer, little in memory.
TOGETHER_LETTERS: Final = 2**22
TOGETHER: Final = 4096
VALIDATION_SHARE: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What decides the tokens of a folder, but for the contents of the files."""

    files: tuple[Found, ...]
    encoder: Encoder
    field: str = "text"
    validation_share: float = VALIDATION_SHARE
    shard_tokens: int = SHARD_TOKENS


def prepare(recipe: Recipe, folder: Path, progress: Progress) -> TokensIndex:
    """Make the tokens of a recipe in a folder, or what is still missing of them there."""
    _refuse_inside(recipe.files, folder)
    index = _begun(recipe, folder, origins(recipe.files, progress))
    if index.reached is None:
        check_contents(folder, index)
        return index
    for done in _shards(recipe, folder, index, progress):
        index = done
        write_index(folder, index)
    return index


def _refuse_inside(files: Sequence[Found], folder: Path) -> None:
    inside = [each.path for each in files if each.path.resolve().is_relative_to(folder.resolve())]
    if inside:
        raise InvalidInput(f"{folder} holds {inside[0]}, which is to be read; name another folder to write")


def _begun(recipe: Recipe, folder: Path, sources: tuple[Origin, ...]) -> TokensIndex:
    """The index that stands in the folder, if it is of this recipe, else an empty one."""
    digest = _digest(recipe, sources)
    if not (folder / INDEX).exists():
        _make(folder)
        empty = {TRAIN: 0, VALIDATION: 0}
        return TokensIndex(
            recipe=digest,
            encoding=recipe.encoder.encoding,
            field=recipe.field,
            validation_share=recipe.validation_share,
            tokens=empty,
            documents=empty,
            empty_documents=0,
            shards=(),
            sources=sources,
            reached=Reached(),
        )
    index = read_index(folder)
    if index.recipe != digest:
        raise InvalidInput(
            f"{folder} holds tokens of other sources or settings; name another folder, or delete it"
        )
    check_sizes(folder, index)
    return index


def _digest(recipe: Recipe, sources: Sequence[Origin]) -> str:
    """Names do not count: the same contents in the same order give the same tokens."""
    contents = [(each.kind, each.size_bytes, each.sha256) for each in sources]
    rest = (recipe.encoder.encoding, recipe.field, recipe.validation_share, recipe.shard_tokens)
    return hashlib.sha256(msgspec.json.encode((contents, *rest))).hexdigest()


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{folder} cannot be made ({reason(error)}); name another folder") from None


class _Part:
    """The documents of one part of the set, on their way into a shard."""

    def __init__(self) -> None:
        self._tokens: list[Tokens] = []
        self._ends: list[int] = []
        self.tokens = 0

    def add(self, tokens: Tokens, *, is_last: bool) -> None:
        """Some more tokens of a document."""
        self._tokens.append(tokens)
        self.tokens += len(tokens)
        if is_last:
            self._ends.append(self.tokens)

    def written(self, folder: Path, part: str, number: int) -> Shard:
        """The documents as a shard in the folder."""
        tokens = np.concatenate(self._tokens)
        tokens = tokens.astype(STORED[tokens.dtype.name], copy=False)
        ends = np.array(self._ends, ENDS_STORED)
        name = f"{part}-{number:05}"
        write_together({folder / f"{name}.bin": tokens.data, folder / f"{name}.ends": ends.data})
        return Shard(
            name=name,
            part=part,
            tokens=len(tokens),
            documents=len(ends),
            tokens_sha256=hashlib.sha256(tokens.data).hexdigest(),
            ends_sha256=hashlib.sha256(ends.data).hexdigest(),
        )


def _shards(recipe: Recipe, folder: Path, index: TokensIndex, progress: Progress) -> Iterator[TokensIndex]:
    """The index after every shard, with what was written since; the last one is finished."""
    parts, empty = {TRAIN: _Part(), VALIDATION: _Part()}, 0
    for each in _stream(recipe, index, progress):
        if each.part is None:
            empty += 1
            continue
        parts[each.part].add(each.tokens, is_last=each.is_last)
        if each.is_last and sum(part.tokens for part in parts.values()) >= recipe.shard_tokens:
            index = _with(folder, index, parts, empty, each.reached)
            yield index
            parts, empty = {TRAIN: _Part(), VALIDATION: _Part()}, 0
    index = _with(folder, index, parts, empty, None)
    if not any(index.tokens.values()):
        raise InvalidInput(f"{index.sources[0].name} and what else was named hold no text; name other files")
    yield index


def _with(
    folder: Path, index: TokensIndex, parts: Mapping[str, _Part], empty: int, reached: Reached | None
) -> TokensIndex:
    """Write what there is of each part, and the index with it."""
    new = [part.written(folder, name, len(index.of(name))) for name, part in parts.items() if part.tokens]
    return msgspec.structs.replace(
        index,
        tokens={name: index.tokens[name] + part.tokens for name, part in parts.items()},
        documents={
            name: index.documents[name] + sum(each.documents for each in new if each.part == name)
            for name in parts
        },
        empty_documents=index.empty_documents + empty,
        shards=(*index.shards, *new),
        reached=reached,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Encoded:
    """Tokens of a piece and the part that its document belongs to; None where the document has no text."""

    tokens: Tokens
    part: str | None
    is_last: bool
    reached: Reached


def _stream(recipe: Recipe, index: TokensIndex, progress: Progress) -> Iterator[_Encoded]:
    """The tokens of everything that is not yet in a shard, in order, each document with its end."""
    encoder, part = recipe.encoder, None
    end = np.array([encoder.encoding.end_token], encoder.encoding.dtype)
    for group in _groups(_located(recipe, index, progress)):
        tokens = encoder.encode([piece.text for piece, _ in group])
        for (piece, reached), some in zip(group, tokens, strict=True):
            if part is None and piece.text:
                part = _part_of(piece.text, recipe.validation_share)
            is_ended = piece.is_last and part is not None
            yield _Encoded(
                tokens=np.concatenate((some, end)) if is_ended else some,
                part=part,
                is_last=piece.is_last,
                reached=reached,
            )
            part = None if piece.is_last else part


def _part_of(text: str, validation_share: float) -> str:
    """By the hash of the text, so that equal documents are in the same part."""
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
    return VALIDATION if number < validation_share * 2**64 else TRAIN


def _located(recipe: Recipe, index: TokensIndex, progress: Progress) -> Iterator[tuple[Piece, Reached]]:
    """Pieces of all files that are left, each with the place where reading goes on behind it."""
    assert index.reached is not None
    left = list(enumerate(zip(recipe.files, index.sources, strict=True)))[index.reached.file :]
    pace = Pace("tokenizing", sum(origin.size_bytes for _, (_, origin) in left), progress)
    for number, (file, origin) in left:
        read_bytes = 0
        for piece in pieces(file, recipe.field, index.reached.place if number == index.reached.file else 0):
            pace.took(int(piece.read_share * origin.size_bytes) - read_bytes)
            read_bytes = int(piece.read_share * origin.size_bytes)
            yield piece, Reached(file=number, place=piece.place)
        if size_bytes(file.path) != origin.size_bytes:
            raise InvalidInput(f"{file.path} changed while it was read; prepare again when it rests")


def _groups(located: Iterator[tuple[Piece, Reached]]) -> Iterator[list[tuple[Piece, Reached]]]:
    """Pieces that are encoded together."""
    group: list[tuple[Piece, Reached]] = []
    letters = 0
    for each in located:
        group.append(each)
        letters += len(each[0].text)
        if letters >= TOGETHER_LETTERS or len(group) == TOGETHER:
            yield group
            group, letters = [], 0
    yield group
