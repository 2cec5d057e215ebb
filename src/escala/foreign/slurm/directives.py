"""The #SBATCH lines of a script as options with their places. Knows their spelling, not their meaning."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from escala.foreign.documents import Document
from escala.foreign.facts import whole
from escala.foreign.keys import table
from escala.foreign.places import Node, Place
from escala.foreign.shelltext import Word

MARK: Final = re.compile(r"#SBATCH(?=\s|$)")
SPACED: Final = re.compile(r"#\s+SBATCH\s+-")
TOKEN: Final = re.compile(r"(?:[^\s\"']|\"[^\"]*\"|'[^']*')+")
SHORT: Final = {
    "A": "account",
    "a": "array",
    "B": "extra-node-info",
    "b": "begin",
    "C": "constraint",
    "c": "cpus-per-task",
    "D": "chdir",
    "d": "dependency",
    "e": "error",
    "F": "nodefile",
    "G": "gpus",
    "H": "hold",
    "h": "help",
    "i": "input",
    "J": "job-name",
    "k": "no-kill",
    "L": "licenses",
    "M": "clusters",
    "m": "distribution",
    "N": "nodes",
    "n": "ntasks",
    "O": "overcommit",
    "o": "output",
    "p": "partition",
    "q": "qos",
    "Q": "quiet",
    "S": "core-spec",
    "s": "oversubscribe",
    "t": "time",
    "v": "verbose",
    "V": "version",
    "W": "wait",
    "w": "nodelist",
    "x": "exclude",
}
"""Options of one letter, from sbatch's help."""
LATER: Final = frozenset(
    (
        "consolidate-segments",
        "external-launcher",
        "oom-kill-step",
        "resv-ports",
        "segment",
        "spread-segments",
        "stepmgr",
        "tree-width",
        "tres-bind",
        "tres-per-task",
    )
)
"""Options of releases after the one whose table escala has."""
SUFFIXES: Final = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, slots=True, kw_only=True)
class Directive:
    """One option: its long name where it is known, its value, and the places of both."""

    name: str
    value: str
    place: Place
    key: Place
    is_late: bool

    @property
    def node(self) -> Node:
        """The value with the place of its name."""
        return Node(value=self.value, place=self.place, key=self.key)


def directives(document: Document) -> list[Directive]:
    """The options of all #SBATCH lines in order; sbatch skips those after the first command (late)."""
    assert document.script is not None
    begun = first_command(document.text)
    found: list[Directive] = []
    for comment in document.script.comments:
        if MARK.match(comment.text) and is_at_line_start(document, comment):
            found += _options(document, comment, comment.place.start > begun)
    return found


def spaced(document: Document) -> list[Place]:
    """Lines that look like directives and are comments to sbatch: '# SBATCH --nodes=4'."""
    assert document.script is not None
    return [each.place for each in document.script.comments if SPACED.match(each.text)]


def is_at_line_start(document: Document, comment: Word) -> bool:
    """Whether nothing stands before a comment on its line."""
    start = comment.place.start
    return start == 0 or document.text[start - 1] == "\n"


def first_command(text: str) -> int:
    """The offset of the first line that is neither empty nor a comment; the length where there is none."""
    match = re.compile(r"^(?!\s*(?:#|$)).", re.MULTILINE).search(text)
    return match.start() if match else len(text)


def last_of(options: list[Directive]) -> dict[str, Directive]:
    """Options by name; of several the last counts, as for sbatch; late ones count nothing."""
    return {each.name: each for each in options if not each.is_late}


def bytes_of(value: str) -> int | None:
    """64G, 64GB, 65536 (MiB) as bytes; None for what is no amount, and for 0, which means all of the node."""
    match = re.fullmatch(r"([0-9]{1,15})([KMGT]?)B?", value.strip().upper())
    amount = int(match.group(1)) * SUFFIXES[match.group(2) or "M"] if match else 0
    return amount or None


def gpus_of(value: str) -> tuple[int | None, str]:
    """Number and type of the GPUs in 8, h100:8, gpu:8 or gpu:h100:8; no number where it is a variable."""
    parts = value.split("(")[0].split(":")
    parts = parts[1:] if parts[0] == "gpu" else parts
    number = 1 if not parts else whole(parts[-1])
    if number is None and len(parts) == 1 and parts[0].replace("-", "").replace("_", "").isalnum():
        return 1, parts[0]
    return number, parts[0] if len(parts) == 2 else ""


def known_name(name: str) -> str:
    """The option that a name means: itself, or the only one that it begins, as getopt has it."""
    names = table("slurm").sections[""].keys
    begun = [each for each in names if each.startswith(name)]
    return begun[0] if name not in names and len(begun) == 1 else name


def _options(document: Document, comment: Word, is_late: bool) -> Iterator[Directive]:
    """The options of one line, up to a comment in it."""
    start = comment.place.start
    tokens = [match for match in TOKEN.finditer(comment.text) if match.start() >= len("#SBATCH")]
    cut = next((index for index, each in enumerate(tokens) if each.group().startswith("#")), len(tokens))
    tokens, index = tokens[:cut], 0
    while index < len(tokens):
        token = tokens[index]
        index += 1
        name, value, offset = _split(token.group())
        if not name:
            continue
        begin, end = token.start() + offset, token.end()
        if offset < 0:
            begin = end
            if index < len(tokens) and not tokens[index].group().startswith("-"):
                value, begin, end = tokens[index].group(), tokens[index].start(), tokens[index].end()
                index += 1
        dashes = 2 if token.group().startswith("--") else 1
        named = token.start() + dashes
        written = len(token.group().lstrip("-").partition("=")[0]) if dashes == 2 else 1
        yield Directive(
            name=name,
            value=value.strip("\"'"),
            place=document.lines.place(start + begin, start + end),
            key=document.lines.place(start + named, start + named + written),
            is_late=is_late,
        )


def _split(token: str) -> tuple[str, str, int]:
    """Long name, value and the offset of the value in --name=value, -N4 or -N; -1 where there is none."""
    if token.startswith("--"):
        name, sign, value = token[2:].partition("=")
        return known_name(name), value, 3 + len(name) if sign else -1
    if token.startswith("-") and len(token) > 1:
        rest = token[2:].removeprefix("=")
        return SHORT.get(token[1], token[1]), rest, len(token) - len(rest) if rest else -1
    return "", "", -1
