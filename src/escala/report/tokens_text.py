"""Text to tokens for people: what was made, by what, and what was left out."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from escala.progress import Progress
from escala.report.layout import flow, hanging, put, room
from escala.report.numbers import count, plural
from escala.training.data.encoders import BYTES, encoder_of
from escala.training.data.files import files_of, refuse_within
from escala.training.data.index import TRAIN, VALIDATION, TokensIndex
from escala.training.data.prepare import Recipe, prepare
from escala.units import show_bytes


def prepared(
    sources: Sequence[str],
    folder: str,
    tokenizer: str | None,
    end: str | None,
    field: str,
    validation_share: float,
    progress: Progress,
) -> TokensIndex:
    """The tokens of the sources in a folder."""
    paths = [Path(each) for each in sources]
    refuse_within(paths, Path(folder))
    recipe = Recipe(
        files=files_of(paths),
        encoder=encoder_of(Path(tokenizer) if tokenizer is not None else None, end),
        field=field,
        validation_share=validation_share,
    )
    return prepare(recipe, Path(folder), progress)


def print_tokens(console: Console, given: TokensIndex) -> None:
    """Everything that `escala data prepare` shows."""
    put(
        console,
        f"{count(given.tokens[TRAIN])} tokens to train on, {count(given.tokens[VALIDATION])} to validate",
    )
    for label, parts in (
        ("Text", _text(given)),
        ("Tokens", _encoding(given)),
        ("Shards", [f"{len(given.of(part))} for {part}" for part in (TRAIN, VALIDATION)]),
        ("Next", [f"a network for them has a vocabulary of {count(given.encoding.vocabulary)} or more"]),
    ):
        hanging(console, label, flow(parts, room(console)))


def _text(given: TokensIndex) -> list[str]:
    files, whole_bytes = len(given.sources), sum(each.size_bytes for each in given.sources)
    documents, empty = sum(given.documents.values()), given.empty_documents
    return [
        f"{count(documents)} document{plural(documents)}",
        f"{count(files)} file{plural(files)} of {show_bytes(whole_bytes)}",
        f"{count(empty)} without text left out" if empty else "",
    ]


def _encoding(given: TokensIndex) -> list[str]:
    by = "bytes" if given.encoding.by == BYTES else f"tokenizer {given.encoding.by[:12]}"
    end = f"{given.encoding.end} is {count(given.encoding.end_token)}"
    return [by, f"vocabulary {count(given.encoding.vocabulary)}", end, given.encoding.dtype]
