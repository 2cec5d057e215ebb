"""Shell scripts as the commands that they run, with variables and arrays filled in; nothing is executed.

What only a shell can know (output of commands, unset variables) stays as it is written, and the word says so.
Understands quotes, comments, continued lines, assignments, arrays, defaults (${X:-4}) and sums of numbers
($((A * B))); loops and conditions are read as the commands in them, once, in their order.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from escala.foreign.places import Lines, Place

NAME: Final = re.compile(r"[A-Za-z_]\w*")
ASSIGNED: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=")
REDIRECT: Final = re.compile(r"(?:\d+|&)?(?:<<<|>>|>\||[<>])&?[ \t]*")
SUM: Final = re.compile(r"[\d\s+*/()%-]+")
KEYWORDS: Final = frozenset(
    (
        "if",
        "then",
        "else",
        "elif",
        "fi",
        "do",
        "done",
        "while",
        "until",
        "!",
        "{",
        "}",
        "time",
        "exec",
        "nohup",
        "env",
    )
)
SETTERS: Final = frozenset(("export", "declare", "local", "readonly", "set", "typeset"))
OPERATORS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}
PIECE: Final = re.compile(r"(?:\$\([^()]*(?:\([^()]*\)[^()]*)*\)|`[^`]*`|\S)+")
"""A word of a value; the output of a command stays whole, whatever blanks its command has."""
SHELLS: Final = frozenset(("sh", "bash", "dash", "zsh"))
TAKES_TEXT: Final = re.compile(r"-[a-z]*c")
MOST_NESTED: Final = 3
"""Shells in shells up to which their texts are read."""
MOST_WORDS: Final = 100_000
MOST_LETTERS: Final = 1_000_000
"""Words and letters up to which variables are unfolded: X=$X$X doubles with each line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word of a command after quotes and variables; `is_open` if part of it is known to a shell only.

    `is_default` if part of it is what a variable has that is not set: ${NAME:-value}.
    """

    text: str
    place: Place
    is_open: bool = False
    is_default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A stretch of a word, quoted or not; `words` are those of a variable that is not quoted."""

    text: str
    is_open: bool = False
    is_default: bool = False
    words: "tuple[Word, ...] | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command with its words, and the variables that it is given, or that were exported before."""

    words: tuple[Word, ...]
    variables: "dict[str, Word]"

    @property
    def name(self) -> str:
        """The program, without its folder."""
        return self.words[0].text.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The commands of a script in order, its comments (directives of a scheduler too), its variables.

    `inner` are the commands in texts that other shells are given: srun bash -c '...'.
    """

    commands: tuple[Command, ...]
    comments: tuple[Word, ...]
    variables: dict[str, Word]
    inner: tuple[Command, ...] = ()

    @property
    def all_commands(self) -> tuple[Command, ...]:
        """The commands of the script, then those that other shells run."""
        return (*self.commands, *self.inner)


def read_shell(text: str, file: str, first_line: int = 1, given: Mapping[str, Word] | None = None) -> Script:
    """The commands of a script; `given` are variables that are exported before it begins."""
    return _Reader(text, file, first_line, given or {}).script()


def _given_texts(command: Command) -> Iterator[Word]:
    """The texts of a command that a shell is given to run: bash -c, sh -lc."""
    words, is_shell = command.words, False
    for option, text in pairwise(words):
        is_shell = is_shell or option.text.rpartition("/")[2] in SHELLS
        if is_shell and TAKES_TEXT.fullmatch(option.text):
            yield text
            is_shell = False


def flags(words: tuple[Word, ...]) -> dict[str, tuple[Word, tuple[Word, ...]]]:
    """Options of a command by name without dashes, underscores as dashes: the option, and what follows it.

    `--name=value` and `--name value ...` are the same; -5 is a value, not an option. The last one counts.
    """
    found: dict[str, tuple[Word, tuple[Word, ...]]] = {}
    current: str | None = None
    for word in words:
        if (
            word.text.startswith("-")
            and not re.fullmatch(r"-[\d.]+(e[+-]?\d+)?", word.text)
            and len(word.text) > 1
        ):
            name, sign, value = word.text.lstrip("-").partition("=")
            current = name.replace("_", "-")
            found[current] = (word, (replace(word, text=value),) if sign else ())
        elif current is not None:
            option, values = found[current]
            found[current] = (option, (*values, word))
    return found


class _Reader:
    """One pass over a script."""

    def __init__(self, text: str, file: str, first_line: int, given: Mapping[str, Word]) -> None:
        self.text, self.lines = text, Lines(text, file, first_line)
        self.variables: dict[str, tuple[Word, ...]] = {name: (word,) for name, word in given.items()}
        self.exported = dict(given)
        self.commands: list[Command] = []
        self.comments: list[Word] = []
        self.unfolded = 0

    def script(self, nested: int = 0) -> Script:
        """All commands; of a variable the last value counts."""
        begin = len(self.text) - len(self.text.lstrip())  # a block of a text has blanks before it
        return self.between(begin, len(self.text), nested)

    def between(self, begin: int, stop: int, nested: int) -> Script:
        """The commands of a stretch of the text, and of texts for other shells in it."""
        words: list[Word] = []
        for token in self.tokens(begin, stop, "\n"):
            if token is None:
                self.command(words)
                words = []
            else:
                words += token
        self.command(words)
        known = {name: value[0] for name, value in self.variables.items() if len(value) == 1}
        texts = [(text, each) for each in self.commands for text in _given_texts(each)]
        inner = [each for text, by in texts if nested < MOST_NESTED for each in self.inside(text, by, nested)]
        return Script(
            commands=tuple(self.commands), comments=tuple(self.comments), variables=known, inner=tuple(inner)
        )

    def inside(self, text: Word, by: Command, nested: int) -> tuple[Command, ...]:
        """The commands in a text that a command gives to a shell, each word at its own place."""
        start = self.text.find(text.text, text.place.start, text.place.end)
        reader = _Reader(self.text, text.place.file, 1, by.variables)
        reader.lines = self.lines
        if start >= 0:
            return reader.between(start, start + len(text.text), nested + 1).all_commands
        reader = _Reader(text.text, text.place.file, 1, by.variables)
        found = reader.script(nested + 1).all_commands
        return tuple(replace(each, words=tuple(self.placed(each.words, text.place))) for each in found)

    def placed(self, words: tuple[Word, ...], around: Place) -> Iterator[Word]:
        """Words at the places where they stand, in order; at that of the whole text elsewhere."""
        cursor = around.start
        for word in words:
            start = self.text.find(word.text, cursor, around.end)
            place = around if start < 0 else self.lines.place(start, start + len(word.text))
            cursor = cursor if start < 0 else place.end
            yield replace(word, place=place)

    def command(self, words: list[Word]) -> None:
        while words and words[0].text in KEYWORDS:
            words = words[1:]
        given = dict(self.exported)
        setter = bool(words) and words[0].text in SETTERS
        rest = words[1:] if setter else words
        while rest and (match := ASSIGNED.match(rest[0].text)) and rest[0].place.end >= 0:
            value = replace(rest[0], text=rest[0].text[match.end() :])
            given[match.group(1)] = value
            if setter or len(rest) == 1:
                self.exported[match.group(1)] = value
            rest = rest[1:]
        if rest and not setter:
            self.commands.append(Command(words=tuple(rest), variables=given))

    def tokens(self, start: int, stop: int, _: str) -> Iterator[list[Word] | None]:
        """Words as they come, several where an array unfolds; None where a command ends."""
        index = start
        while index < stop:
            letter = self.text[index]
            if self.text.startswith("<<", index) and not self.text.startswith("<<<", index):
                index = self.after_heredoc(index, stop)
            elif redirect := REDIRECT.match(self.text, index):
                index = self.after_redirect(redirect.end(), stop)
            elif letter in "\n;|&()":
                yield None
                index += 1
            elif self.text.startswith(("\\\n", "\\\r\n"), index):
                index = self.text.index("\n", index) + 1
            elif letter.isspace():
                index += 1
            elif letter == "#":
                end = self.text.find("\n", index)
                end = stop if end < 0 else end
                self.comments.append(
                    Word(text=self.text[index:end].rstrip(), place=self.lines.place(index, end))
                )
                index = end
            else:
                words, index = self.word(index, stop)
                yield words

    def after_redirect(self, index: int, stop: int) -> int:
        """After the file or number that a command's output goes to, which is no word of the command."""
        return index if index >= stop or self.text[index] in "\r\n;|&()<>" else self.word(index, stop)[1]

    def after_heredoc(self, index: int, stop: int) -> int:
        match = re.compile(r"<<-?\s*(['\"]?)(\w+)\1").match(self.text, index)
        if match is None:
            return index + 2
        end = re.compile(rf"^\s*{re.escape(match.group(2))}\s*$", re.MULTILINE).search(self.text, match.end())
        return end.end() if end else stop

    def word(self, start: int, stop: int) -> tuple[list[Word], int]:
        """The words that one word of the text becomes, and the offset after it."""
        match = re.compile(r"([A-Za-z_]\w*)(\+?)=\(").match(self.text, start)
        if match:
            return self.array(match, stop)
        parts: list[_Part] = []
        index = start
        while index < stop and self.text[index] not in " \t\r\n;|&()<>":
            index = self.part(index, stop, parts)
        words = self.joined(parts, self.lines.place(start, index))
        assigned = ASSIGNED.match(self.text, start)
        if assigned and len(words) != 1:
            words = [Word(text=" ".join(word.text for word in words), place=self.lines.place(start, index))]
        if assigned:
            self.assign(assigned.group(1), words[0], assigned.end() - start)
        return words, index

    def assign(self, name: str, word: Word, skipped: int) -> None:
        place = replace(word.place, start=word.place.start + skipped)
        text = word.text.partition("=")[2]
        self.variables[name] = (replace(word, text=text, place=place),)

    def array(self, match: re.Match[str], stop: int) -> tuple[list[Word], int]:
        """NAME=( words ), which leaves no word of its own."""
        items: list[Word] = list(self.variables.get(match.group(1), ())) if match.group(2) else []
        index = match.end()
        while index < stop and self.text[index] != ")":
            if self.text[index].isspace() or self.text.startswith("\\\n", index):
                index += 1 if self.text[index].isspace() else 2
            elif self.text[index] == "#":
                end = self.text.find("\n", index)
                index = stop if end < 0 else end
            elif self.text[index] in ";|&(<>":
                index += 1
            else:
                words, index = self.word(index, stop)
                items += words
        self.variables[match.group(1)] = tuple(items[:MOST_WORDS])
        return [], index + 1

    def part(self, index: int, stop: int, parts: list[_Part]) -> int:
        """One quoted or plain stretch of a word; adds (text, is open, words of an unquoted variable)."""
        letter = self.text[index]
        if letter == "\\":
            if not self.text.startswith("\n", index + 1):
                parts.append(_Part(text=self.text[index + 1 : index + 2]))
            return index + 2
        if letter == "'":
            end = self.text.find("'", index + 1)
            end = stop if end < 0 else end
            parts.append(_Part(text=self.text[index + 1 : end]))
            return end + 1
        if letter == '"':
            return self.quoted(index + 1, stop, parts)
        if letter in "$`":
            part, end = self.expansion(index, stop)
            parts.append(part)
            return end
        end = index
        while end < stop and self.text[end] not in " \t\r\n;|&()<>\\'\"$`":
            end += 1
        parts.append(_Part(text=self.text[index:end]))
        return end

    def quoted(self, index: int, stop: int, parts: list[_Part]) -> int:
        while index < stop and self.text[index] != '"':
            if self.text[index] in "$`":
                part, index = self.expansion(index, stop)
                is_array = "[@]" in self.text[max(0, index - 5) : index]
                several = part.words is not None and len(part.words) > 1 and is_array
                parts.append(part if several else replace(part, words=None))
            elif self.text[index] == "\\":
                escaped = self.text[index + 1 : index + 2]
                parts.append(_Part(text="" if escaped == "\n" else escaped))
                index += 2
            else:
                end = index
                while end < stop and self.text[end] not in '"$`\\':
                    end += 1
                parts.append(_Part(text=self.text[index:end]))
                index = end
        return index + 1

    def expansion(self, index: int, stop: int) -> tuple[_Part, int]:
        """What an expansion becomes, and the offset after it."""
        if self.text.startswith("$((", index):
            end = self.text.find("))", index)
            end = stop if end < 0 else end + 2
            number = self.sum_of(self.text[index + 3 : end - 2])
            return _Part(text=self.text[index:end] if number is None else number, is_open=number is None), end
        if self.text.startswith("$(", index) or self.text[index] == "`":
            end = self.closing(index, stop)
            return _Part(text=self.text[index:end], is_open=True), end
        if self.text.startswith("${", index):
            end = self.text.find("}", index)
            end = stop if end < 0 else end + 1
            return self.value(self.text[index + 2 : end - 1], self.text[index:end]), end
        match = NAME.match(self.text, index + 1)
        if match is None:
            end = min(index + 2, stop)
            return _Part(text=self.text[index:end], is_open=True), end
        return self.value(match.group(), self.text[index : match.end()]), match.end()

    def closing(self, index: int, stop: int) -> int:
        if self.text[index] == "`":
            end = self.text.find("`", index + 1)
            return stop if end < 0 else end + 1
        depth = 0
        for offset in range(index + 1, stop):
            depth += {"(": 1, ")": -1}.get(self.text[offset], 0)
            if depth == 0:
                return offset + 1
        return stop

    def value(self, inside: str, written: str) -> _Part:
        """The value of ${inside}: of a variable, else of its default; open where there is neither."""
        match = NAME.match(inside)
        name = match.group() if match else ""
        rest = inside[len(name) :]
        words = self.variables.get(name)
        plain = rest in ("", "[@]", "[*]") or rest.startswith((":-", "-", ":=", ":?"))
        if words is not None and plain:
            text = " ".join(word.text for word in words)
            self.unfolded += len(text)
            if self.unfolded > MOST_LETTERS:
                return _Part(text=written, is_open=True)
            is_open, is_default = any(w.is_open for w in words), any(w.is_default for w in words)
            return _Part(text=text, is_open=is_open, is_default=is_default, words=words)
        if name and rest.startswith((":-", ":=", "-", "=")):
            return _Part(text=rest.lstrip(":")[1:].strip("\"'"), is_default=True)
        return _Part(text=written, is_open=True)

    def sum_of(self, text: str) -> str | None:
        """The value of a sum whose variables are all known whole numbers."""

        def known(match: re.Match[str]) -> str:
            words = self.variables.get(match.group(1))
            return words[0].text if words and len(words) == 1 and words[0].text.isdigit() else "?"

        filled = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", known, text)
        return _calculated(filled) if SUM.fullmatch(filled) and len(filled) < 200 else None

    def joined(self, parts: list[_Part], place: Place) -> list[Word]:
        """Words from parts: an unquoted variable is split at spaces, its words keep their own places."""
        if len(parts) == 1 and parts[0].words is not None:
            return [piece for word in parts[0].words for piece in self.split(word)]
        is_open, is_default = any(p.is_open for p in parts), any(p.is_default for p in parts)
        text = "".join(part.text for part in parts)
        return [Word(text=text, place=place, is_open=is_open, is_default=is_default)]

    def split(self, word: Word) -> list[Word]:
        """The words of a value, each at its own place where the value stands as it is written."""
        found, cursor, stop = [], word.place.start, word.place.end
        for piece in PIECE.findall(word.text):
            start = self.text.find(piece, cursor, stop)
            place = word.place if start < 0 else self.lines.place(start, start + len(piece))
            cursor = cursor if start < 0 else start + len(piece)
            found.append(replace(word, text=piece, place=place))
        return found


def _calculated(text: str) -> str | None:
    """The whole number that an expression of whole numbers means."""

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        raise ValueError("no whole number")

    try:
        return str(value(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None
