"""What is wrong in a file: where, what follows, what to do, and who says so. Knows no rule's condition.

The words of a rule stand in `data/rules/*.toml`, one table a rule, with {names} that its code fills in.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Final

from escala.foreign.places import Node, Place


class Severity(StrEnum):
    """How bad: a job that fails or trains something else, one that is slow or at risk, or good to know."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


ORDER: Final = tuple(Severity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change of a text: what stands from `start` to `end` of a file becomes `text`."""

    file: str
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The words of a rule: what is there, what follows, what to do, and the source that says so.

    `group` is its file. Where keys alone decide, `when` has the condition of each and `at` the key that is
    pointed at; see `conditions`.
    """

    name: str
    group: str
    severity: Severity
    what: str
    why: str
    fix: str
    source: str
    at: str = ""
    when: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a rule found; `edits` are what --fix changes, none where a person has to decide."""

    rule: str
    severity: Severity
    place: Place | None
    what: str
    why: str
    fix: str
    source: str
    edits: tuple[Edit, ...] = ()


def finding(
    name: str, place: Place | Node | None, *, edits: tuple[Edit, ...] = (), **words: object
) -> Finding:
    """What the rule of that name found at a place, its words filled in."""
    rule = rule_of(name)
    where = place.entry if isinstance(place, Node) else place
    filled = {part: getattr(rule, part).format_map(words) for part in ("what", "why", "fix", "source")}
    return Finding(rule=name, severity=rule.severity, place=where, edits=edits, **filled)


@cache
def rule_of(name: str) -> Rule:
    """The rule of that name; only its own group is read."""
    group = next((group for group, text in _texts().items() if f"\n[{name}]\n" in text), "")
    assert group, f"there is no rule {name}"
    return rules_of(group)[name]


@cache
def rules_of(group: str) -> Mapping[str, Rule]:
    """The rules of a group by name."""
    return {
        name: Rule(name=name, group=group, severity=Severity(words.pop("severity")), **words)
        for name, words in tomllib.loads(_texts()[group]).items()
    }


def rules() -> Mapping[str, Rule]:
    """Every rule by name."""
    every = [rule for group in _texts() for rule in rules_of(group).values()]
    found = {rule.name: rule for rule in every}
    assert len(found) == len(every), "a rule stands twice"
    return found


@cache
def _texts() -> Mapping[str, str]:
    """The files of rules by group."""
    folder = files("escala.foreign").joinpath("data/rules")
    texts = {each.name.removesuffix(".toml"): each.read_text("utf-8") for each in folder.iterdir()}
    return {group: f"\n{texts[group]}" for group in sorted(texts)}


def replaced(node: Node, text: str) -> Edit:
    """The change that writes another value."""
    return Edit(file=node.place.file, start=node.place.start, end=node.place.end, text=text)


def renamed(node: Node, text: str) -> Edit:
    """The change that writes another name."""
    assert node.key is not None
    return Edit(file=node.key.file, start=node.key.start, end=node.key.end, text=text)


def sorted_findings(found: list[Finding]) -> list[Finding]:
    """Errors first, then by file and line; each once."""

    def order(each: Finding) -> tuple[int, str, int, str]:
        place = each.place
        return ORDER.index(each.severity), place.file if place else "", place.line if place else 0, each.rule

    return sorted(dict.fromkeys(found), key=order)
