"""Scripts and command lines that stand inside a YAML file, as documents at their own lines and offsets.

All that does not belong to the script is blanked, so that a place in it is a place in the file.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path as FilePath
from typing import Final

from escala.foreign.documents import Document, Syntax
from escala.foreign.places import Node, Place
from escala.foreign.readings import Reference
from escala.foreign.shelltext import Word, read_shell

INDENTED: Final = re.compile("\n {1,2}")
SCRIPT: Final = re.compile(r"(?<![\w./$}-])[\w./-]+\.(?:sh|bash)(?![\w./-])")
SHELLS: Final = frozenset(("sh", "bash", "dash", "zsh"))


def script_of(document: Document, node: Node, given: Mapping[str, Word]) -> Document:
    """The script that is one text of a document."""
    return _document(document, _blanked(document.text, [_piece(document.text, node.place)]), given)


def command_of(document: Document, words: list[Node], given: Mapping[str, Word]) -> Document:
    """The command line that is a list of words; of `bash -c TEXT` the text alone."""
    script = _after_option(words)
    if script is not None:
        return script_of(document, script, given)
    pieces = [_piece(document.text, word.place, keeps_quotes=True) for word in words]
    text = _blanked(document.text, pieces)
    if pieces:
        text = _one_line(text, pieces)
    return _document(document, text, given)


def word_of(node: Node) -> Word | None:
    """A value as the word of a variable; none where it is a table, a list or nothing."""
    if node.scalar is None:
        return None
    text = str(node.scalar).lower() if isinstance(node.scalar, bool) else str(node.scalar)
    return Word(text=text, place=node.place, is_open="$" in text)


def scripts_named(document: Document, said: str) -> tuple[Reference, ...]:
    """Scripts beside a file that it starts: `bash launch.sh`, also inside a text for another shell."""
    if document.script is None:
        return ()
    found: dict[str, Reference] = {}
    for word in (word for command in document.script.commands for word in command.words):
        for name in SCRIPT.findall(word.text):
            if (FilePath(document.file).parent / name).is_file():
                found.setdefault(name, Reference(file=name, place=word.place, said=said))
    return tuple(found.values())


def _after_option(words: list[Node]) -> Node | None:
    """The text that a shell is given by -c, -lc, -ec..."""
    if len(words) < 3 or str(words[0].scalar).rpartition("/")[2] not in SHELLS:
        return None
    for option, text in pairwise(words[1:]):
        said = str(option.scalar)
        if said.startswith("-") and not said.startswith("--") and "c" in said:
            return text
    return None


def _document(document: Document, text: str, given: Mapping[str, Word]) -> Document:
    return replace(
        document,
        text=text,
        syntax=Syntax.SHELL,
        tree=None,
        script=read_shell(text, document.file, document.first_line, given),
        findings=(),
    )


def _piece(text: str, place: Place, *, keeps_quotes: bool = False) -> tuple[int, str]:
    """Offset and letters of a value as a shell reads it, as long as the value is in the file."""
    raw = text[place.start : place.end]
    if raw[:1] in ("|", ">"):
        head, line, body = raw.partition("\n")
        joined = _joined(body) if head.startswith(">") else body
        return place.start, " " * len(head) + line + joined
    if raw[:1] == '"' and not keeps_quotes:
        return place.start, f" {raw[1:-1]} ".replace("\\n", "; ").replace('\\"', ' "')
    if raw[:1] == "'" and not keeps_quotes:
        return place.start, f" {raw[1:-1]} "
    return place.start, raw if raw[:1] in ("'", '"') else _joined(raw)


def _blanked(text: str, pieces: list[tuple[int, str]]) -> str:
    """The text with blanks for all but the pieces; lines stay where they are."""
    parts, end = [], 0
    for start, letters in pieces:
        if start < end:
            continue
        parts += [_blanks(text[end:start]), letters]
        end = start + len(letters)
    return "".join((*parts, _blanks(text[end:])))


def _blanks(text: str) -> str:
    return "\n".join(" " * len(line) for line in text.split("\n"))


def _one_line(text: str, pieces: list[tuple[int, str]]) -> str:
    """The words of a list joined over their lines, as a shell continues a line."""
    first, last = pieces[0][0], pieces[-1][0]
    return text[:first] + _joined(text[first:last]) + text[last:]


def _joined(text: str) -> str:
    """The lines of a text as one line of a shell, without moving any letter."""
    return INDENTED.sub(lambda match: match.group()[2:] + "\\\n", text)
