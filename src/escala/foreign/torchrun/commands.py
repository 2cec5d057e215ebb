"""Command lines of torchrun: their options, the script that they start, its arguments.

Knows torchrun's own options by name, from the table; everything after the script belongs to the script.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from escala.foreign.documents import Document
from escala.foreign.keys import table
from escala.foreign.places import Node, Place
from escala.foreign.shelltext import Command, Word

MODULES: Final = ("torch.distributed.run", "torch.distributed.launch")
OPTION: Final = re.compile(r"(-{1,2})([A-Za-z][\w-]*)(?:=(.*))?\Z", re.DOTALL)
SHORT: Final = {"m": "module", "r": "redirects", "t": "tee"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One command line; `program` is torchrun or the module that is run, `options` have names with dashes.

    `shown` are its words from the program to before the first option.
    """

    program: str
    shown: tuple[Word, ...]
    before: tuple[Word, ...]
    options: Mapping[str, Node]
    script: Word | None
    arguments: tuple[Word, ...]
    variables: Mapping[str, Word]

    @property
    def place(self) -> Place:
        """Where the program stands."""
        return replace(self.shown[0].place, end=self.shown[-1].place.end)

    @property
    def is_old(self) -> bool:
        """Whether it is the module that torchrun replaced."""
        return self.program.endswith("launch")

    def said(self, name: str) -> Node | None:
        """The option, or the variable of torchrun that sets it."""
        if name in self.options:
            return self.options[name]
        word = self.variables.get("PET_" + name.upper().replace("-", "_"))
        return None if word is None else Node(value=word.text, place=word.place, is_default=word.is_default)

    def text(self, name: str) -> str | None:
        """The value of an option as text; None where it is left out."""
        node = self.said(name)
        return None if node is None else str(node.scalar)


def launches_of(document: Document) -> list[Launch]:
    """All command lines of torchrun in a script, also those that are given to a shell as one text."""
    if document.script is None:
        return []
    found = (_launch(command, document.text) for command in document.script.all_commands)
    return [launch for launch in found if launch is not None]


def _launch(command: Command, text: str) -> Launch | None:
    words = command.words
    for index, word in enumerate(words):
        if word.text.rpartition("/")[2] == "torchrun":
            return _parsed(
                "torchrun", words[:index], words[index : index + 1], words[index + 1 :], command, text
            )
        if word.text in MODULES and index and words[index - 1].text == "-m":
            first = max(index - 2, 0)
            return _parsed(
                word.text, words[:first], words[first : index + 1], words[index + 1 :], command, text
            )
    return None


def _parsed(
    program: str,
    before: tuple[Word, ...],
    shown: tuple[Word, ...],
    words: tuple[Word, ...],
    command: Command,
    text: str,
) -> Launch:
    """The options up to the first word that is none, as torchrun's own parser takes them."""
    options: dict[str, Node] = {}
    index = 0
    while index < len(words):
        word = words[index]
        match = OPTION.match(word.text)
        if match is None or word.text == "--":
            break
        name, value = _name(match.group(2)), match.group(3)
        index += 1
        given = word
        if value is None and _is_flag(name):
            options[name] = Node(value=True, place=word.place, key=_key(word, match, text))
            continue
        if value is None and index < len(words):
            given, value = words[index], words[index].text
            index += 1
        key = _key(word, match, text)
        options[name] = Node(value=value, place=given.place, key=key, is_default=given.is_default)
    rest = words[index:]
    return Launch(
        program=program,
        shown=shown,
        before=before,
        options=options,
        script=rest[0] if rest else None,
        arguments=rest[1:],
        variables=command.variables,
    )


def _name(given: str) -> str:
    """The whole name of an option, also of one that is cut short so that only one spelling can be meant."""
    known = table("torchrun").sections[""].keys
    if given in SHORT:
        return SHORT[given]
    name = given.replace("_", "-")
    spellings = {*known, *(each.replace("-", "_") for each in known)}
    several = [each for each in spellings if each.startswith(given)]
    return several[0].replace("_", "-") if len(several) == 1 and name not in known else name


def _is_flag(name: str) -> bool:
    section = table("torchrun").sections[""]
    return name in section.gone or (name in section.keys and section.keys[name].types == ("boolean",))


def _key(word: Word, match: re.Match[str], text: str) -> Place:
    """The place of the name alone, where the word stands as it is written."""
    start = word.place.start + len(match.group(1))
    is_there = text.startswith(match.group(1) + match.group(2), word.place.start)
    return replace(word.place, start=start, end=start + len(match.group(2))) if is_there else word.place


def as_number(text: str, kind: type[int] | type[float]) -> int | float | None:
    """The number that a parser of options makes of a word; None where it makes none."""
    try:
        return kind(text)
    except ValueError:
        return None
