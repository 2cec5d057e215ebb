"""Where something stands in a file, and values that know it. Knows no syntax."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

Scalar = str | int | float | bool | None
Path = tuple[str, ...]

DEEPEST: Final = 60
"""Levels of nesting up to which files are read; those of people have fewer than ten."""
MOST_NODES: Final = 100_000
"""Values up to which a file is read, which bounds what anchors of YAML can unfold to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A stretch of a file: the line of its start, counted from 1, and offsets into its text."""

    file: str
    line: int
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Node:
    """A value of a file: a scalar, a list of nodes, or named nodes; `key` is the place of its own name.

    `is_default` if a script has it only where a variable is not set.
    """

    value: "Scalar | list[Node] | dict[str, Node]"
    place: Place
    key: Place | None = None
    is_default: bool = False

    @property
    def scalar(self) -> Scalar:
        """The value where it is one; None for lists and tables."""
        return None if isinstance(self.value, list | dict) else self.value

    @property
    def entry(self) -> Place:
        """Where a person looks for it: its name, or the value itself."""
        return self.key or self.place

    @property
    def table(self) -> "dict[str, Node]":
        """The named nodes; none where the value is something else."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> "list[Node]":
        """The nodes of a list; none where the value is something else."""
        return self.value if isinstance(self.value, list) else []


def at(node: Node | None, *path: str) -> Node | None:
    """The node under a path of names; None where there is none."""
    for name in path:
        node = node.table.get(name) if node is not None else None
    return node


def plain(node: Node) -> object:
    """The value as plain Python."""
    if isinstance(node.value, dict):
        return {name: plain(each) for name, each in node.value.items()}
    if isinstance(node.value, list):
        return [plain(each) for each in node.value]
    return node.value


def every(node: Node, path: Path = ()) -> Iterator[tuple[Path, Node]]:
    """All nodes with their paths, from the top down; items of lists have the path of their list."""
    yield path, node
    for name, each in node.table.items():
        yield from every(each, (*path, name))
    for each in node.items:
        yield from every(each, path)


class Lines:
    """Line numbers of offsets into a text."""

    def __init__(self, text: str, file: str, first: int = 1) -> None:
        """`first` is the number of the text's first line in its file."""
        self.file, self.first = file, first
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def place(self, start: int, end: int | None = None) -> Place:
        """The place of a stretch."""
        from bisect import bisect_right

        line = bisect_right(self.starts, start) - 1 + self.first
        return Place(file=self.file, line=line, start=start, end=start if end is None else end)
