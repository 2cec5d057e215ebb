"""Which keys a tool knows, by version: unknown, misspelt, renamed, removed keys are found, and wrong types.

Tables are `data/keys/*.json`, written by `scripts/keys` from the tool itself; their tests ask the tool again.
A section is a level of a file. "*" in `keys` stands for any name; `sections` names those in which tables lie.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

from escala.errors import misspelt, near, spoken
from escala.foreign.facts import is_open
from escala.foreign.findings import Finding, finding, renamed
from escala.foreign.places import Node
from escala.foreign.versions import is_before


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a key takes: types (of JSON), values if there are few, the section in which a table lies.

    `since` is the first version that knows it, where the table has several versions to judge by.
    """

    types: tuple[str, ...] = ()
    choices: tuple[str | int | float | bool | None, ...] = ()
    section: str = ""
    since: str = ""


class Gone(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A key of other versions: what replaces it, and in which version it went or will go."""

    to: str = ""
    removed: str = ""
    deprecated: str = ""
    why: str = ""


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The keys of one level; `strict` if the tool refuses others, else it passes over them."""

    keys: dict[str, Key] = {}
    gone: dict[str, Gone] = {}
    strict: bool = True
    any: bool = False


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All keys of a tool in one version, and how they were had."""

    tool: str
    version: str
    source: str
    sections: dict[str, Section]


SHORTEST: Final = 3
"""Letters of names that resemble too many others to be hinted at."""
UNKNOWN: Final = {True: "unknown-key", False: "unknown-key-silent"}
MISSPELT: Final = {True: "misspelt-key", False: "misspelt-key-silent"}
"""The rule that tells of a key, by whether the tool refuses it itself."""
TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


@cache
def table(name: str) -> Table:
    """The table of a tool."""
    content = files("escala.foreign").joinpath(f"data/keys/{name}.json").read_bytes()
    return msgspec.json.decode(content, type=Table)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCheck:
    """Checks a tree against a table; `version` is that of the tool, where it is not the table's."""

    table: Table
    tool: str
    version: str = ""
    open_values: bool = True
    ignored: frozenset[str] = field(default=frozenset())

    def findings(self, node: Node, section: str = "") -> Iterator[Finding]:
        """What is wrong with the keys of a node and of the tables in it."""
        known = self.table.sections[section]
        for name, each in node.table.items():
            if name in self.ignored:
                continue
            key, gone = known.keys.get(name), known.gone.get(name)
            if key is not None:
                yield from self._newer(name, each, key) if self._is_before(key.since) else ()
                yield from self._value(name, each, key)
            elif gone is not None:
                yield from self._gone(name, each, gone, gone.to in node.table)
            elif not known.any:
                yield self._unknown(name, each, section, node)

    def _value(self, name: str, node: Node, key: Key) -> Iterator[Finding]:
        if isinstance(node.value, dict) and key.section in self.table.sections and key.section:
            yield from self.findings(node, key.section)
            return
        if isinstance(node.value, list) and key.section in self.table.sections and key.section:
            for item in node.value:
                yield from self.findings(item, key.section)
            return
        if is_open(node.scalar) and self.open_values:
            return
        if key.types and not _is_of(node, key.types):
            yield finding(
                "wrong-type",
                node,
                key=name,
                given=spoken(node.value),
                wanted=" or ".join(key.types),
                tool=self._named,
            )
        elif (
            key.choices
            and node.value is not None
            and not isinstance(node.value, list | dict)
            and node.scalar not in key.choices
        ):
            close = near(str(node.scalar), [str(each) for each in key.choices], limit=1)
            allowed = ", ".join(spoken(each) for each in key.choices[:12])
            hint = f"did you mean {close[0]}? " if close else ""
            yield finding(
                "wrong-value",
                node,
                key=name,
                given=spoken(node.value),
                hint=hint,
                allowed=allowed,
                tool=self._named,
            )

    def _is_before(self, version: str) -> bool:
        """Whether the tool's version is known and lies before another."""
        return bool(self.version and version) and is_before(self.version, version)

    def _newer(self, name: str, node: Node, key: Key) -> Iterator[Finding]:
        yield finding(
            "newer-key", node, key=name, tool=self._named, since=key.since, source_of=self.table.source
        )

    def _gone(self, name: str, node: Node, gone: Gone, is_there: bool) -> Iterator[Finding]:
        is_removed = bool(gone.removed) and not self._is_before(gone.removed)
        if not is_removed and (not gone.deprecated or self._is_before(gone.deprecated)):
            return
        rule = "removed-key" if is_removed else "deprecated-key"
        edits = (renamed(node, gone.to),) if gone.to.isidentifier() and node.key and not is_there else ()
        fix = f"write {gone.to} instead" if gone.to and not is_there else "leave it out"
        fix = f"{fix}: {gone.to} is there too" if is_there else fix
        yield finding(
            rule,
            node,
            edits=edits,
            key=name,
            version=gone.removed if is_removed else gone.deprecated,
            to=fix,
            why=f"; {gone.why}" if gone.why else "",
            tool=self.tool,
            source_of=self.table.source,
        )

    def _unknown(self, name: str, each: Node, section: str, node: Node) -> Finding:
        known = self.table.sections[section]
        meant = misspelt(name, known.keys)
        close = near(name, known.keys, limit=1) if len(name) > SHORTEST else []
        where = f" in {section}" if section else ""
        look = f"leave it out, or look it up for {self._named}"
        hint = f"did you mean {meant}?" if meant else f"{look}; {close[0]} is near" if close else look
        rule = (MISSPELT if meant else UNKNOWN)[known.strict]
        edits = (renamed(each, meant),) if meant and each.key and meant not in node.table else ()
        return finding(
            rule,
            each,
            edits=edits,
            key=name,
            where=where,
            hint=hint,
            tool=self._named,
            source_of=self.table.source,
        )

    @property
    def _named(self) -> str:
        return f"{self.tool} {self.version or self.table.version}"


def _is_of(node: Node, types: tuple[str, ...]) -> bool:
    """Whether a value has one of the types; true is no number, 4.0 is whole, null is always allowed."""
    value = node.value
    if isinstance(value, bool):
        return "boolean" in types
    if isinstance(value, float) and value.is_integer() and "integer" in types:
        return True
    return value is None or any(isinstance(value, TYPES[each]) for each in types)
