"""Code that stands in a text without fences: where it begins and ends, and what it is written in.

A program is a run of lines that look like Python and parse as such; another import after other code at the
margin begins another program. JSON is what stands between a brace at the margin and its partner.
"""

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from escala.foreign.remarks import LAUNCH

NAMES: Final = r"[A-Za-z_][\w.]*(?:\s+as\s+\w+)?"
IMPORT: Final = re.compile(
    rf"^(?:import\s+{NAMES}(?:\s*,\s*{NAMES})*|from\s+[\w.]+\s+import\s+.+)\s*(?:#.*)?$"
)
STATEMENT: Final = re.compile(
    r"^(?:def\s+\w+\(|class\s+\w+\s*[(:]|async\s|@\w|(?:with|for|if|elif|while)\s.+:\s*(?:#.*)?$"
    r"|(?:try|else|finally)\s*:|except\b.*:|assert\s|return\b|raise\s|del\s"
    r"|[A-Za-z_][\w.\[\]'\", ()*]*\s*(?:[-+*/|&@]|//|\*\*)?=\s*\S|[A-Za-z_][\w.]*(?:\[[^\]]*\])*\(|[)\]}])"
)
COMMENT: Final = re.compile(r"^#")
COMMAND: Final = re.compile(r"^\$?\s*(?:export\s+\w+=|sbatch\s|srun\s)")
MOST_TRIES: Final = 40
MOST_LETTERS: Final = 3_000_000
"""Letters up to which ends of blocks are looked for, those that are looked at again counted again."""
LONGEST: Final = 1000
"""Letters of a line by which it is told from prose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A stretch of a text by its offsets; `kind` is python, json, shell, or comments of another block."""

    kind: str
    start: int
    end: int


def unfenced(text: str) -> list[Block]:
    """The blocks of a text in their order; blanked stretches of it hold none."""
    return _Finder(text).blocks()


class _Finder:
    """One pass over the lines of a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.splitlines(keepends=True)
        self.starts, self.left = [0], MOST_LETTERS
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def blocks(self) -> list[Block]:
        found: list[Block] = []
        index = 0
        while index < len(self.lines):
            line = self.lines[index].rstrip()
            after = self.after_json(index) if line[:1] in ("{", "[", "#") else index
            if after > index:
                found.append(self.block("json", index, after))
            elif LAUNCH.match(line.removeprefix("$").lstrip()) or COMMAND.match(line):
                after = self.after_command(index)
                found.append(self.block("shell", index, after))
            elif _is_code(line):
                after = self.after_python(index)
                found += self.programs(index, after)
            index = max(after, index + 1)
        return found

    def block(self, kind: str, first: int, after: int) -> Block:
        return Block(kind=kind, start=self.starts[first], end=self.starts[after])

    def after_json(self, first: int) -> int:
        """The line after an object of JSON that begins here, or its name before it; else the line itself."""
        index = first
        if self.lines[index].startswith("#") and ".json" in self.lines[index]:
            index += 1
        if index == len(self.lines) or self.lines[index].strip() not in ("{", "[") or index > first + 1:
            return first
        depth = 0
        for number in range(index, len(self.lines)):
            self.left -= len(self.lines[number])
            if self.left < 0:
                break
            depth += sum((letter in "{[") - (letter in "}]") for letter in self.lines[number])
            if depth <= 0:
                return number + 1
        return first

    def after_command(self, index: int) -> int:
        while self.lines[index].rstrip().endswith("\\") and index + 1 < len(self.lines):
            index += 1
        return index + 1

    def after_python(self, first: int) -> int:
        """The line after a run of lines that look like code; blank lines at its end are left out."""
        after, index, quotes = first, first, 0
        while index < len(self.lines):
            line = self.lines[index].rstrip()
            if not quotes and (self.after_json(index) > index or LAUNCH.match(line)):
                break
            if quotes or (index > first and line[:1] in (" ", "\t")) or _is_code(line):
                quotes = (quotes + line.count('"""') + line.count("'''")) % 2
                after = index + 1
            elif line:
                break
            index += 1
        return after

    def programs(self, first: int, after: int) -> Iterator[Block]:
        """The programs of a run; comments that stand before or after all code are told apart."""
        starts = [first, *self.imports_after_code(first, after), after]
        for begin, end in pairwise(starts):
            last = self.parsing(begin, end)
            if last > begin:
                yield self.block("python", begin, last)
            elif all(not line.strip() or line.startswith("#") for line in self.lines[begin:end]):
                yield self.block("comments", begin, end)

    def imports_after_code(self, first: int, after: int) -> list[int]:
        """Lines at which another program begins, with the comments right before its first import."""
        found, imports = [], True
        for index in range(first, after):
            line = self.lines[index].rstrip()
            if IMPORT.match(line[:LONGEST]):
                begin = index
                while begin > first and self.lines[begin - 1].startswith("#"):
                    begin -= 1
                if begin > first and (not imports or self.is_only_comments(first, begin)):
                    found.append(begin)
                imports = True
            elif line and not line.startswith(("#", ")", " ", "\t")):
                imports = False
        return found

    def is_only_comments(self, first: int, after: int) -> bool:
        return all(not line.strip() or line.startswith("#") for line in self.lines[first:after])

    def parsing(self, begin: int, end: int) -> int:
        """The last line up to which lines are a program that does something; `begin` where there is none."""
        for last in range(end, max(begin, end - MOST_TRIES), -1):
            self.left -= self.starts[last] - self.starts[begin]
            tree = _tree("".join(self.lines[begin:last])) if self.left > 0 else None
            if tree is not None:
                return (
                    last
                    if any(not isinstance(each, ast.Expr) or _is_call(each) for each in tree.body)
                    else begin
                )
        return begin


def _is_code(line: str) -> bool:
    start = line[:LONGEST]
    return bool(IMPORT.match(start) or STATEMENT.match(start) or COMMENT.match(start))


def _is_call(given: ast.Expr) -> bool:
    return isinstance(given.value, ast.Call | ast.Await)


def _tree(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
