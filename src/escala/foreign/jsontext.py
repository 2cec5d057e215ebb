"""JSON as people write it, with the place of every value. What strict readers refuse is found.

Comments, trailing commas, single quotes, duplicate keys and a byte order mark are findings; what cannot be
understood at all is one finding with its line, and no tree.
"""

import json
import re
from collections.abc import Callable
from typing import Final

from escala.foreign.findings import Edit, Finding, finding
from escala.foreign.places import DEEPEST, MOST_NODES, Lines, Node, Place

TOKEN: Final = re.compile(
    r"""(?P<space>\s+)|(?P<comment>//[^\n]*|\#[^\n]*|/\*.*?\*/)|(?P<mark>[{}\[\]:,])"""
    r"""|(?P<text>"(?:[^"\\\n]|\\.)*")|(?P<single>'(?:[^'\\\n]|\\.)*')|(?P<word>[^\s{}\[\]:,"'/\#]+)""",
    re.DOTALL,
)
WORDS: Final[dict[str, object]] = {"true": True, "false": False, "null": None}
PYTHON_WORDS: Final = {"True": "true", "False": "false", "None": "null"}


class _Unreadable(Exception):
    """Carries the place and the words of what cannot be understood."""

    def __init__(self, start: int, said: str) -> None:
        super().__init__(said)
        self.start, self.said = start, said


def read_json(text: str, file: str, first_line: int = 1) -> tuple[Node | None, list[Finding]]:
    """The tree of a text and what is wrong with it; None where it cannot be read at all."""
    reader = _Reader(text, file, first_line)
    try:
        return reader.whole(), reader.found
    except _Unreadable as error:
        place = reader.lines.place(min(error.start, max(len(text) - 1, 0)))
        return None, [*reader.found, finding("json-unreadable", place, said=error.said)]


class _Reader:
    """One pass over the tokens of a text."""

    def __init__(self, text: str, file: str, first_line: int) -> None:
        self.text, self.file = text, file
        self.lines, self.found = Lines(text, file, first_line), list[Finding]()
        self.offset, self.nodes = 0, 0

    def whole(self) -> Node:
        """The one value of the text."""
        value = self.value(0)
        kind, said, start, _ = self.token()
        if kind != "end":
            raise _Unreadable(start, f"'{said[:20]}' stands after the end of the value")
        return value

    def token(self) -> tuple[str, str, int, int]:
        """Kind, text, start and end of the next token that is no space and no comment."""
        while self.offset < len(self.text):
            match, start = TOKEN.match(self.text, self.offset), self.offset
            if match is None:
                raise _Unreadable(start, "a text that starts here does not end in its line")
            self.offset = match.end()
            kind = str(match.lastgroup)
            if kind == "comment":
                self.note("json-comment", start, match.end(), "")
            elif kind != "space":
                return kind, match.group(), start, match.end()
        return "end", "", len(self.text), len(self.text)

    def note(self, rule: str, start: int, end: int, text: str, **words: object) -> None:
        """Add a finding whose change is to write another text there."""
        edit = Edit(file=self.file, start=start, end=end, text=text)
        self.found.append(finding(rule, self.lines.place(start, end), edits=(edit,), **words))

    def value(self, depth: int, key: Place | None = None) -> Node:
        """The value that starts at the next token."""
        return self.value_of(self.token(), depth, key)

    def value_of(self, token: tuple[str, str, int, int], depth: int, key: Place | None) -> Node:
        kind, said, start, end = token
        self.nodes += 1
        if depth > DEEPEST or self.nodes > MOST_NODES:
            raise _Unreadable(start, "nested too deeply or holding too many values")
        if said in ("{", "["):
            held = self.table(depth) if said == "{" else self.list(depth)
            return Node(value=held, place=self.lines.place(start, self.offset), key=key)
        return Node(value=self.scalar(kind, said, start, end), place=self.lines.place(start, end), key=key)

    def scalar(self, kind: str, said: str, start: int, end: int) -> str | int | float | bool | None:
        """The value of a token that is one."""
        if kind == "single":
            self.note("json-single-quotes", start, end, json.dumps(said[1:-1]))
            return said[1:-1]
        if said in PYTHON_WORDS:
            self.note(
                "json-python-word", start, end, PYTHON_WORDS[said], given=said, meant=PYTHON_WORDS[said]
            )
            said = PYTHON_WORDS[said]
        if kind in ("text", "word"):
            try:
                return json.loads(said)  # type: ignore[no-any-return]  # a token is a scalar
            except (ValueError, RecursionError):
                raise _Unreadable(start, f"'{said[:40]}' is no value of JSON") from None
        raise _Unreadable(
            start, f"'{said[:20]}' stands where a value is expected" if said else "it ends early"
        )

    def table(self, depth: int) -> dict[str, Node]:
        """The named values up to the closing brace; of a name that stands twice the last one counts."""
        table: dict[str, Node] = {}

        def one(token: tuple[str, str, int, int]) -> None:
            kind, said, start, end = token
            if kind not in ("text", "single"):
                raise _Unreadable(start, f"'{said[:20]}' stands where a name in double quotes is expected")
            name = str(self.scalar(kind, said, start, end))
            self.mark(":")
            place = self.lines.place(start + 1, end - 1)
            if name in table:
                before = table[name].entry.line
                self.found.append(finding("duplicate-key", place, key=name, line=before))
            table[name] = self.value(depth + 1, place)

        self.several("}", one)
        return table

    def list(self, depth: int) -> list[Node]:
        """The values up to the closing bracket."""
        items: list[Node] = []
        self.several("]", lambda token: items.append(self.value_of(token, depth + 1, None)))
        return items

    def several(self, end: str, one: Callable[[tuple[str, str, int, int]], None]) -> None:
        """Read members with commas between them; a comma before the end is a finding."""
        comma: int | None = None
        while True:
            token = self.token()
            if token[1] == end and token[0] == "mark":
                if comma is not None:
                    self.note("json-trailing-comma", comma, comma + 1, "")
                return
            one(token)
            kind, said, start, _ = self.token()
            if said == end and kind == "mark":
                return
            if said != ",":
                raise _Unreadable(
                    start, f"a comma or '{end}' is missing" if said else f"'{end}' is missing at the end"
                )
            comma = start

    def mark(self, wanted: str) -> None:
        _, said, start, _ = self.token()
        if said != wanted:
            raise _Unreadable(start, f"'{wanted}' is missing")
