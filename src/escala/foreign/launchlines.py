"""Launch lines: options of a launcher, the script that it runs, and the script's own options.

A launcher takes options up to the first word that is none; what follows belongs to the script. A line may
stand after other commands (srun, env). Knows no launcher.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from escala.foreign.documents import Document
from escala.foreign.places import Node, Place
from escala.foreign.shelltext import Word

NUMBER: Final = re.compile(r"-[\d.]+(e[+-]?\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchLine:
    """One launch: `options` by name with underscores, `script`, `arguments` of the script by name too."""

    options: Mapping[str, Node]
    script: Node | None
    arguments: Mapping[str, Node]
    place: Place


def launch_lines(document: Document, program: str, switches: frozenset[str]) -> Iterator[LaunchLine]:
    """Lines that run a program ("accelerate launch"); `switches` are options without a value."""
    wanted = tuple(program.split())
    for command in document.script.all_commands if document.script is not None else ():
        for index in range(len(command.words) - len(wanted) + 1):
            names = tuple(word.text.rpartition("/")[2] for word in command.words[index : index + len(wanted)])
            rest = command.words[index + len(wanted) :]
            if names == wanted and rest:
                yield _line(command.words[index], rest, switches)
                break


def _line(first: Word, words: tuple[Word, ...], switches: frozenset[str]) -> LaunchLine:
    options: dict[str, Node] = {}
    index = 0
    while index < len(words) and words[index].text.startswith("-"):
        name, sign, _ = _parts(words[index])
        has_value = not sign and name not in switches and index + 1 < len(words)
        values = (words[index + 1],) if has_value else ()
        options[name] = _node(words[index], values)
        index += 2 if has_value else 1
    script = words[index] if index < len(words) else None
    return LaunchLine(
        options=options,
        script=None if script is None else Node(value=script.text, place=script.place),
        arguments=arguments_of(words[index + 1 :]),
        place=first.place,
    )


def arguments_of(words: tuple[Word, ...]) -> dict[str, Node]:
    """Options of a script by name with underscores: a text, a list of texts, or true without a value."""
    found: dict[str, Node] = {}
    option: Word | None = None
    values: tuple[Word, ...] = ()
    for word in (*words, None):
        if word is None or (word.text.startswith("--") and not NUMBER.fullmatch(word.text)):
            if option is not None:
                found[_parts(option)[0]] = _node(option, values)
            option, values = word, ()
        else:
            values = (*values, word)
    return found


def _parts(word: Word) -> tuple[str, str, str]:
    name, sign, value = word.text.lstrip("-").partition("=")
    return name.replace("-", "_"), sign, value


def _node(option: Word, values: tuple[Word, ...]) -> Node:
    """The value of an option at its place; the key is the name without dashes."""
    dashes = len(option.text) - len(option.text.lstrip("-"))
    name, sign, value = option.text[dashes:].partition("=")
    start = option.place.start + dashes
    key = replace(option.place, start=start, end=start + len(name))
    if sign:
        place = replace(option.place, start=start + len(name) + 1)
        return Node(value=value, place=place, key=key, is_default=option.is_default)
    if len(values) > 1:
        items = [Node(value=each.text, place=each.place) for each in values]
        return Node(value=items, place=values[0].place, key=key)
    if values:
        return Node(value=values[0].text, place=values[0].place, key=key, is_default=values[0].is_default)
    return Node(value=True, place=option.place, key=key)
