"""Files of one job read together: whose word counts, what contradicts what, what is missing."""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Final

from escala.errors import InvalidInput, spoken, unknown
from escala.foreign.documents import Document, Syntax, read_documents
from escala.foreign.facts import FACTS, Fact, Value
from escala.foreign.findings import Finding, finding, sorted_findings
from escala.foreign.places import Place
from escala.foreign.readings import Reading, Reference, Role
from escala.foreign.tools import CARRIERS, TOOLS, tool_of, tools

COMMAND_LINE: Final = "the command line"
FEWER: Final = frozenset(("wraps", "model", "device", "network", "link"))
"""Facts that may be written in several ways, so that two spellings are no contradiction."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Job:
    """One job: its readings in order of whose word counts, its facts, and what nobody reads."""

    readings: tuple[Reading, ...]
    facts: Mapping[str, Fact]
    unread: tuple[Document, ...] = ()
    findings: tuple[Finding, ...] = field(default=())

    def value(self, name: str) -> Value | None:
        """The value of a fact."""
        assert name in FACTS, name
        return self.facts[name].value if name in self.facts else None

    def count(self, name: str) -> int | None:
        """The value of a fact that is a whole number."""
        value = self.value(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def place(self, name: str) -> Place | None:
        """Where a fact is said."""
        return self.facts[name].place if name in self.facts else None

    def reading(self, tool: str) -> Reading | None:
        """The first reading of a tool."""
        return next((each for each in self.readings if each.tool == tool), None)

    def reads(self, *names: str) -> bool:
        """Whether one of the tools takes part."""
        return any(each.tool in names for each in self.readings)


def read_job(paths: Iterable[str], given: Mapping[str, Value], versions: Mapping[str, str]) -> Job:
    """The job of some files; `given` are facts of the command line, which count before all files.

    Raises InvalidInput for a file that is no text, and for versions of tools that do not exist.
    """
    for name in versions:
        if name not in TOOLS:
            raise unknown("tool", name, TOOLS, f"there are {', '.join(TOOLS)}")
    readings, unread, found = _all_read(list(dict.fromkeys(paths)), versions)
    ordered = tuple(sorted(readings, key=lambda each: tuple(Role).index(each.role)))
    facts = _facts(ordered, given)
    found += [each for reading in ordered for each in (*reading.document.findings, *reading.findings)]
    found += [each for document in unread for each in document.findings]
    found += _contradictions(ordered, given)
    job = Job(readings=ordered, facts=facts, unread=tuple(unread))
    for reading in ordered:
        found += tool_of(reading.tool).rules(job, reading)
    return Job(readings=ordered, facts=facts, unread=tuple(unread), findings=tuple(sorted_findings(found)))


def _all_read(
    paths: list[str], versions: Mapping[str, str]
) -> tuple[list[Reading], list[Document], list[Finding]]:
    """Readings of the files and of those that they name; a file that is named and not there is a finding."""
    readings: list[Reading] = []
    unread: list[Document] = []
    found: list[Finding] = []
    seen = {os.path.realpath(path) for path in paths}
    waiting: list[tuple[str, Reference | None]] = [(path, None) for path in paths]
    while waiting:
        path, named = waiting.pop(0)
        documents = _documents(path, named, found)
        for document in documents:
            several = _readings(document, versions)
            readings += several
            if not several:
                unread.append(document)
            for reference in (each for reading in several for each in reading.references):
                file = _resolved(reference, document.file)
                if os.path.realpath(file) not in seen:
                    seen.add(os.path.realpath(file))
                    waiting.append((file, reference))
    return readings, unread, found


def _documents(path: str, named: Reference | None, found: list[Finding]) -> list[Document]:
    try:
        return read_documents(path)
    except InvalidInput:
        if named is None:
            raise
        found.append(finding("file-not-there", named.place, file=named.file, key=named.said))
        return []


def _resolved(reference: Reference, origin: str) -> str:
    """The path of a file that another names: beside it, or as it stands."""
    beside = FilePath(origin).parent / reference.file
    return str(beside if beside.exists() or not FilePath(reference.file).exists() else reference.file)


def _readings(document: Document, versions: Mapping[str, str]) -> list[Reading]:
    """What the tools read in a document, and in the scripts that it carries where it is a scheduler's."""
    carrier = _scored(document, CARRIERS)[:1]
    found = [tool_of(name).read(document, versions.get(name)) for name in carrier]
    others = frozenset(TOOLS) - CARRIERS
    for inside in found[0].inside if found else (document,):
        names = _scored(inside, others)
        found += [tool_of(name).read(inside, versions.get(name)) for name in names[: _most(inside)]]
    return found


def _scored(document: Document, names: Collection[str]) -> list[str]:
    """Those of the tools that know a document, the surest first."""
    scores = {name: tool.score(document) for name, tool in tools().items() if name in names}
    return sorted((name for name, score in scores.items() if score > 0), key=lambda name: -scores[name])


def _most(document: Document) -> int:
    """A tree belongs to one tool; in a script each tool reads the commands and calls that it knows."""
    return len(TOOLS) if document.syntax in (Syntax.SHELL, Syntax.PYTHON) else 1


def _facts(readings: tuple[Reading, ...], given: Mapping[str, Value]) -> dict[str, Fact]:
    here = Place(file=COMMAND_LINE, line=0)
    facts = {
        name: Fact(name=name, value=value, place=here, said=f"--{name}") for name, value in given.items()
    }
    for reading in readings:
        for each in reading.facts:
            facts.setdefault(each.name, each)
    return _multiplied(facts)


def _multiplied(facts: dict[str, Fact]) -> dict[str, Fact]:
    """With devices = nodes * devices of each node, where no file says that number itself."""
    nodes, each = (facts.get(name) for name in ("nodes", "devices_per_node"))
    if "devices" in facts or nodes is None or each is None:
        return facts
    if not isinstance(nodes.value, int) or not isinstance(each.value, int):
        return facts
    said = f"{nodes.said} and {each.said}"
    return {
        **facts,
        "devices": Fact(name="devices", value=nodes.value * each.value, place=each.place, said=said),
    }


def _contradictions(readings: tuple[Reading, ...], given: Mapping[str, Value]) -> list[Finding]:
    """Facts that two files tell differently; what is granted may be more than what is used."""
    found: list[Finding] = []
    first: dict[str, Fact] = {}
    for reading in (each for each in readings if each.role is not Role.ALLOCATION):
        for each in reading.facts:
            other = first.setdefault(each.name, each)
            if other.value != each.value and each.name not in FEWER and each.name not in given:
                found.append(_contradiction(each, other))
    return found


def _contradiction(each: Fact, other: Fact) -> Finding:
    where = f"{FilePath(other.place.file).name}:{other.place.line}"
    return finding(
        "contradiction",
        each.place,
        what_is=FACTS[each.name].partition(",")[0],
        key=each.said,
        value=spoken(each.value),
        other=other.said,
        other_value=spoken(other.value),
        where=where,
    )
