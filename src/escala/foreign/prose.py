"""Code in a text, fenced (Markdown) or not: each block a document at its lines. Knows no tool's keys.

A text may tell of several jobs. A launch line belongs with the block before it and with the blocks whose file
names it says; every other block is a job of its own.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from escala.foreign.blocks import unfenced
from escala.foreign.documents import Document, Syntax, parsed
from escala.foreign.findings import finding
from escala.foreign.remarks import LAUNCH, blank

OPENING: Final = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*([\w+-]*)")
FILE_NAME: Final = re.compile(r"[\w./-]+\.(?:py|json|ya?ml|toml|sh|sbatch)\b")
LANGUAGES: Final = {
    "python": Syntax.PYTHON,
    "py": Syntax.PYTHON,
    "json": Syntax.JSON,
    "jsonc": Syntax.JSON,
    "yaml": Syntax.YAML,
    "yml": Syntax.YAML,
    "toml": Syntax.TOML,
    "bash": Syntax.SHELL,
    "sh": Syntax.SHELL,
    "shell": Syntax.SHELL,
    "console": Syntax.SHELL,
    "zsh": Syntax.SHELL,
}
MOST_BLOCKS: Final = 200
"""Blocks up to which a text is read; manuals have some dozens."""


def read_prose(text: str, file: str) -> list[Document]:
    """The blocks of a text whose language is known; a file name just before or in the first line names it."""
    found: list[Document] = []
    for syntax, start, end in _stretches(text)[:MOST_BLOCKS]:
        body = blank(text[:start]) + text[start:end]
        line = text.count("\n", 0, start) + 1
        name = _name(text, start, end) or f"block at line {line}"
        found += [_headed(each, start) for each in parsed(body, file, syntax, name=name)]
    return _grouped(found)


def _headed(document: Document, start: int) -> Document:
    """The document; a first line that only names the file of a block is no fault of that file."""
    first = document.text[start:].partition("\n")[0]
    if document.syntax is not Syntax.JSON or not FILE_NAME.search(first):
        return document
    is_head = [each.place is not None and each.place.start < start + len(first) for each in document.findings]
    found = [
        finding("json-comment-heading", each.place) if head and each.rule == "json-comment" else each
        for each, head in zip(document.findings, is_head, strict=True)
    ]
    return replace(document, findings=tuple(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """A block between fences by offsets: the whole with both fences, and what is between them."""

    language: str
    start: int
    body: int
    body_end: int
    end: int


def _fences(text: str) -> Iterator[Fence]:
    """The blocks between fences; one that is never closed is none."""
    mark, opened, offset = "", (0, 0, ""), 0
    for line in text.splitlines(keepends=True):
        after, said = offset + len(line), line.strip()
        if mark:
            if said and not said.strip(mark[0]) and len(said) >= len(mark):
                yield Fence(language=opened[2], start=opened[0], body=opened[1], body_end=offset, end=after)
                mark = ""
        elif match := OPENING.match(line):
            mark, opened = match.group(1), (offset, after, match.group(2).lower())
        offset = after


def _stretches(text: str) -> list[tuple[Syntax, int, int]]:
    """Syntax, start and end of all blocks, in their order; a fence without a language is looked into."""
    found: list[tuple[Syntax, int, int]] = []
    rest, end = list[str](), 0
    for fence in _fences(text):
        if fence.language in LANGUAGES:
            found.append((LANGUAGES[fence.language], fence.body, fence.body_end))
        body = text[fence.body : fence.body_end]
        rest += [
            text[end : fence.start],
            blank(text[fence.start : fence.body]),
            blank(body) if fence.language else body,
            blank(text[fence.body_end : fence.end]),
        ]
        end = fence.end
    rest.append(text[end:])
    kinds = {"python": Syntax.PYTHON, "comments": Syntax.PYTHON, "json": Syntax.JSON, "shell": Syntax.SHELL}
    found += [(kinds[block.kind], block.start, block.end) for block in unfenced("".join(rest))]
    return sorted(found, key=lambda each: each[1])


def _name(text: str, start: int, end: int) -> str:
    """The file name in a comment in the first line, or in the line before the block or its fence."""
    first = text[start:end].partition("\n")[0]
    before = re.sub(r"[`~]{3,}[^\n]*\n?\Z", "", text[:start]).rstrip().rpartition("\n")[2]
    for line in (first if first.lstrip().startswith(("#", "//")) else "", before):
        named = FILE_NAME.search(line)
        if named and not re.search(r"torchrun|deepspeed\s|python\d?\s|launch|sbatch", line):
            return named.group()
    return ""


def _grouped(documents: list[Document]) -> list[Document]:
    """The documents with the number of their job; comments that hold no launch line are left out."""
    kept = [document for document in documents if document.code is None or document.code.body]
    parts = list(range(1, len(kept) + 1))
    for index, document in enumerate(kept):
        if not _launches(document):
            continue
        if index and (document.is_remark or parts[index - 1] == index):
            _join(parts, parts[index - 1], parts[index])
        for other, each in enumerate(kept):
            if each.name in document.text and not _launches(each):
                _join(parts, parts[other], parts[index])
    return [replace(document, part=part) for document, part in zip(kept, parts, strict=True)]


def _join(parts: list[int], one: int, other: int) -> None:
    parts[:] = [min(one, other) if part in (one, other) else part for part in parts]


def _launches(document: Document) -> bool:
    return document.syntax is Syntax.SHELL and any(LAUNCH.search(line) for line in document.text.split("\n"))
