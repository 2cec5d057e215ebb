"""A change of a fact as a change of a text: where its value stands it is replaced, else its key is added.

Nothing is changed that does not read as the value that the file is known to say: variables of a shell, values
that are computed and blocks inside a prose are left to the person.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from escala.foreign.documents import Document, Syntax
from escala.foreign.facts import Fact, Value
from escala.foreign.findings import Edit
from escala.foreign.jobs import Job
from escala.foreign.places import Node, Place, at
from escala.foreign.readings import Reading

TOKEN: Final = re.compile(r"[\"']?[ \t]*(?:[:=][ \t]*|[ \t]+)[\"']?(?P<value>[\w.+-]+)")
BARE: Final = re.compile(r"[\"']?(?P<value>[\w.+-]+)[\"']?")
SWITCHES: Final = {"false": "true", "False": "True", "'no'": "'yes'"}
OF_PROGRAM: Final = ("micro_batch", "global_batch", "sequence_tokens", "tp", "precision")
"""Facts that flags of a training program say, never those of what launches it."""
ON: Final = ("full", True)
"""Values for which a switch that is off is turned on."""


def edits_of(job: Job, facts: Mapping[str, Value]) -> tuple[tuple[Edit, ...], tuple[str, ...]]:
    """The edits that set some facts in the files of a job, and the facts that a person has to set."""
    edits: list[Edit] = []
    by_hand: list[str] = []
    for name, value in facts.items():
        if _follows(job, name):
            continue
        found = _edit(job, name, value)
        if found is None:
            by_hand.append(name)
        else:
            edits.append(found)
    return tuple(edits), tuple(by_hand)


def _follows(job: Job, name: str) -> bool:
    """Whether a fact follows from others: accumulation where a file has the global batch instead."""
    return name == "accumulation" and name not in job.facts and job.place("global_batch") is not None


def _edit(job: Job, name: str, value: Value) -> Edit | None:
    for reading in job.readings:
        said = reading.fact(name)
        if said is not None and not said.is_default and said.place.file == reading.document.file:
            found = _replaced(reading.document, said, value)
            if found is not None:
                return found
    if any(_stands_there(reading, name) for reading in job.readings):
        return None
    return next((found for each in job.readings if (found := _added(each, name, value)) is not None), None)


def _stands_there(reading: Reading, name: str) -> bool:
    """Whether a file has the key of a fact, so that a second one would contradict it."""
    said = reading.fact(name)
    if said is None or said.is_default or said.place.file != reading.document.file:
        return False
    key = reading.document.text[said.place.start : said.place.end].strip("-\"'")
    return bool(key) and key in said.said


def _replaced(document: Document, said: Fact, value: Value) -> Edit | None:
    place = said.place
    own = BARE.fullmatch(document.text[place.start : place.end])
    match, offset = (own, place.start) if own and _reads_as(own["value"], said.value) else (None, 0)
    if match is None:
        match = TOKEN.match(document.text, place.end)
        if match is None:
            return None
    token = match["value"]
    text = _token(token, said.value, value)
    if text is None:
        return None
    start, end = match.start("value") + offset, match.end("value") + offset
    return Edit(file=document.file, start=start, end=end, text=text)


def _token(token: str, before: Value, after: Value) -> str | None:
    """The text of the new value in the place of a token; None where the token is not the old value."""
    if token in SWITCHES:
        return SWITCHES[token] if after in ON else None
    if isinstance(after, bool) or not isinstance(after, str | int | float):
        return None
    return str(after) if _reads_as(token, before) else None


def _reads_as(token: str, value: Value) -> bool:
    if isinstance(value, bool):
        return token.lower() == str(value).lower()
    if isinstance(value, int):
        return token.lstrip("+").isdigit() and int(token) == value
    return token == str(value)


def _added(reading: Reading, name: str, value: Value) -> Edit | None:
    """The key of a tool that says a fact, where its file has room for it."""
    ways = additions().get(reading.tool, {}).get(name, {})
    keys: Mapping[str, Any] | None = ways.get(str(value), ways.get("any"))
    if keys is None:
        return None
    if "flags" in keys:
        return _flags(reading, str(keys["flags"]))
    path, given = next(iter(keys.items()))
    tree, document = reading.document.tree, reading.document
    filled: Value = value if given == "{value}" else given
    return None if tree is None else _key(document, tree, tuple(path.split(".")), filled)


def _flags(reading: Reading, text: str) -> Edit | None:
    """Flags before one of the tool's own that stands in the file as such."""
    document = reading.document
    for each in reading.facts:
        if each.name in OF_PROGRAM and each.place.file == document.file:
            start = each.place.start
            start -= 2 if document.text[start - 2 : start] == "--" else 0
            if document.text[start : start + 2] == "--":
                return Edit(file=document.file, start=start, end=start, text=f"{text} ")
    return None


def _key(document: Document, tree: Node, path: tuple[str, ...], value: Value) -> Edit | None:
    """A key under a path of which the tables that are missing are made."""
    depth = len(path) - 1
    while depth and at(tree, *path[:depth]) is None:
        depth -= 1
    owner = at(tree, *path[:depth])
    if owner is None or not isinstance(owner.value, dict) or path[depth] in owner.table:
        return None
    made: Any = value
    for name in reversed(path[depth + 1 :]):
        made = {name: made}
    if document.syntax is Syntax.JSON:
        return _in_json(document, owner.place, path[depth], made, bool(owner.table))
    return _in_yaml(document, owner, path[depth], made) if document.syntax is Syntax.YAML else None


def _in_json(document: Document, place: Place, name: str, value: Any, has_more: bool) -> Edit | None:
    start = document.text.find("{", place.start, max(place.end, place.start + 1))
    if start < 0:
        return None
    text = f"{json.dumps(name)}: {json.dumps(value)}" + (", " if has_more else "")
    return Edit(file=document.file, start=start + 1, end=start + 1, text=text)


def _in_yaml(document: Document, owner: Node, name: str, value: Any) -> Edit | None:
    """A line before the first key of a block; none in a table that is written in braces."""
    first = min((node.key.start for node in owner.table.values() if node.key is not None), default=None)
    if first is None:
        return None
    begin = document.text.rfind("\n", 0, first) + 1
    indent = document.text[begin:first]
    if indent.strip():
        return None
    return Edit(file=document.file, start=begin, end=begin, text=f"{indent}{name}: {json.dumps(value)}\n")


@cache
def additions() -> Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]]:
    """Keys by tool, fact and value."""
    return tomllib.loads(files("escala.checking").joinpath("data/changes.toml").read_text("utf-8"))
