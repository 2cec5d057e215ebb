"""TOML with the line of every key: values by tomllib, places by looking for the keys again."""

import re
import tomllib
from datetime import date, datetime, time
from typing import Any, Final

from escala.errors import one_line
from escala.foreign.findings import Finding, finding
from escala.foreign.places import Lines, Node, Place

HEADER: Final = re.compile(r"^[ \t]*\[{1,2}([^\[\]\n]+)\]{1,2}", re.MULTILINE)
KEY: Final = re.compile(r"""^[ \t]*((?:[\w.-]|"[^"\n]*"|'[^'\n]*')+)[ \t]*=[ \t]*""", re.MULTILINE)
AT_LINE: Final = re.compile(r"at line (\d+)")


def read_toml(text: str, file: str, first_line: int = 1) -> tuple[Node | None, list[Finding]]:
    """The tree of a text and what is wrong with it; None where it cannot be read."""
    lines = Lines(text, file, first_line)
    try:
        keys = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        said = one_line(str(error)) if not isinstance(error, RecursionError) else "nested too deeply"
        match = AT_LINE.search(said)
        start = lines.starts[min(int(match.group(1)), len(lines.starts)) - 1] if match else len(text.rstrip())
        return None, [finding("toml-unreadable", lines.place(start), said=said)]
    return _Tree(_places(text, lines), lines.place(0)).node(keys, ()), []


def _places(text: str, lines: Lines) -> dict[tuple[str, ...], tuple[Place, Place]]:
    """Places of name and value by path: of tables their header, of keys their line; the first one counts."""
    found: dict[tuple[str, ...], tuple[Place, Place]] = {}
    marks = sorted([*HEADER.finditer(text), *KEY.finditer(text)], key=lambda match: match.start())
    table: tuple[str, ...] = ()
    for match in marks:
        names = tuple(name.strip("\"' ") for name in match.group(1).strip().split("."))
        key = lines.place(match.start(1), match.end(1))
        if match.re is HEADER:
            table = names
            found.setdefault(table, (key, key))
        else:
            end = text.find("\n", match.end())
            stop = len(text) if end < 0 else end
            value = text[match.end() : stop].partition(" #")[0].rstrip()
            found.setdefault((*table, *names), (key, lines.place(match.end(), match.end() + len(value))))
    return found


class _Tree:
    """From plain values to nodes."""

    def __init__(self, places: dict[tuple[str, ...], tuple[Place, Place]], top: Place) -> None:
        self.places, self.top = places, top

    def node(self, given: Any, path: tuple[str, ...]) -> Node:
        """The node of a value; of what is inside a value of one line, the place is that of the line."""
        key, place = self.place(path)
        if isinstance(given, dict):
            return Node(
                value={name: self.node(each, (*path, name)) for name, each in given.items()},
                place=place,
                key=key,
            )
        if isinstance(given, list):
            return Node(value=[self.node(each, path) for each in given], place=place, key=key)
        return Node(
            value=str(given) if isinstance(given, date | datetime | time) else given, place=place, key=key
        )

    def place(self, path: tuple[str, ...]) -> tuple[Place | None, Place]:
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return None, self.top
