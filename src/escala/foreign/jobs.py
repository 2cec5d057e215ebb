"""Files of one job read together: whose word counts, what contradicts what, what is missing."""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Final

from escala.errors import InvalidInput, spoken, unknown
from escala.foreign.documents import Document, Syntax, read_documents
from escala.foreign.facts import FACTS, UNSET, Fact, Value, is_below_one
from escala.foreign.findings import Finding, Severity, finding, sorted_findings
from escala.foreign.places import Place
from escala.foreign.readings import Reading, Reference, Role
from escala.foreign.signs import candidates
from escala.foreign.tools import CARRIERS, TOOLS, tool_of

COMMAND_LINE: Final = "the command line"
FEWER: Final = frozenset(("wraps", "model", "device", "network", "link"))
"""Facts that may be written in several ways, so that two spellings are no contradiction."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Job:
    """One job: its readings in order of whose word counts, its facts, and what nobody reads.

    `parts` are the jobs that a text tells of where they are several; their findings are among those here.
    """

    readings: tuple[Reading, ...]
    facts: Mapping[str, Fact]
    unread: tuple[Document, ...] = ()
    findings: tuple[Finding, ...] = field(default=())
    parts: tuple["Job", ...] = ()

    def value(self, name: str) -> Value | None:
        """The value of a fact."""
        assert name in FACTS, name
        return self.facts[name].value if name in self.facts else None

    def count(self, name: str) -> int | None:
        """The value of a fact that is a whole number."""
        value = self.value(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def sure(self, name: str) -> int | None:
        """The value of a fact that is a whole number, where it is no default."""
        return self.count(name) if name in self.facts and not self.facts[name].is_default else None

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
    groups = _grouped(readings, unread)
    parts = [_one_job(*group, given) for group in groups[1:]]
    if len(parts) == 1 and not groups[0][0]:
        only = parts.pop()
        groups[0] = (list(only.readings), [*groups[0][1], *only.unread])
    job = _one_job(*groups[0], given)
    found += [each for one in (job, *parts) for each in one.findings]
    return replace(job, findings=tuple(sorted_findings(found)), parts=tuple(parts))


def _one_job(readings: list[Reading], unread: list[Document], given: Mapping[str, Value]) -> Job:
    """The job of readings that belong together, with all that is wrong with it."""
    ordered = tuple(
        sorted(readings, key=lambda each: (each.document.is_remark, tuple(Role).index(each.role)))
    )
    found = [each for reading in ordered for each in (*reading.document.findings, *reading.findings)]
    found += [each for document in unread for each in document.findings]
    found += _contradictions(ordered, given)
    found += _misnamed(ordered, unread)
    job = Job(readings=ordered, facts=_facts(ordered, given), unread=tuple(unread))
    for reading in ordered:
        found += tool_of(reading.tool).rules(job, reading)
    found += _below_one(ordered, found)
    return replace(job, findings=tuple(sorted_findings(found)))


def _grouped(readings: list[Reading], unread: list[Document]) -> list[tuple[list[Reading], list[Document]]]:
    """What belongs together: all whole files first, then each job of each text that some tool reads."""
    keys = dict.fromkeys([("", 0), *(_part(reading.document) for reading in readings)])
    rest = [document for document in unread if _part(document) not in keys]
    groups = [
        (
            [each for each in readings if _part(each.document) == key],
            [each for each in unread if _part(each) == key],
        )
        for key in keys
    ]
    groups[0][1].extend(rest)
    return groups


def _part(document: Document) -> tuple[str, int]:
    """The text and its job that a document is part of; the same for all whole files."""
    return (document.file, document.part) if document.part else ("", 0)


def _misnamed(readings: tuple[Reading, ...], unread: list[Document]) -> list[Finding]:
    """Files that a launch line of a text names, and that the text itself calls otherwise."""
    names = dict.fromkeys(each.name for each in (*(reading.document for reading in readings), *unread))
    found: list[Finding] = []
    for reading in readings:
        for reference in reading.references if reading.document.part else ():
            path = FilePath(reference.file)
            alike = [name for name in names if FilePath(name).suffix == path.suffix]
            if len(alike) == 1 and FilePath(alike[0]).name != path.name:
                found.append(
                    finding("file-called-otherwise", reference.place, file=path.name, other=alike[0])
                )
    return found


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
            named_here = [each for reading in several for each in reading.references if "\0" not in each.file]
            for reference in named_here if not document.part else ():
                file = _resolved(reference, document.file)
                is_wanted = not document.is_remark or os.path.exists(file)  # never raises
                if is_wanted and os.path.realpath(file) not in seen:
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
    is_elsewhere = not os.path.exists(beside) and os.path.exists(reference.file)  # never raises
    return reference.file if is_elsewhere else str(beside)


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
    scores = {name: tool_of(name).score(document) for name in candidates(document) if name in names}
    return sorted((name for name, score in scores.items() if score > 0), key=lambda name: -scores[name])


def _most(document: Document) -> int:
    """A tree belongs to one tool; in a script each tool reads the commands and calls that it knows."""
    return len(TOOLS) if document.syntax in (Syntax.SHELL, Syntax.PYTHON) else 1


def _facts(readings: tuple[Reading, ...], given: Mapping[str, Value]) -> dict[str, Fact]:
    here = Place(file=COMMAND_LINE, line=0)
    facts = {
        name: Fact(name=name, value=value, place=here, said=f"--{name}") for name, value in given.items()
    }
    for each in sorted((each for reading in readings for each in reading.facts), key=lambda e: e.is_default):
        facts.setdefault(each.name, each)
    return _multiplied(facts)


def _multiplied(facts: dict[str, Fact]) -> dict[str, Fact]:
    """With devices = nodes * devices of each node, where no file says that number itself."""
    nodes, each = (facts.get(name) for name in ("nodes", "devices_per_node"))
    said_itself = "devices" in facts and not facts["devices"].is_default
    if said_itself or nodes is None or each is None:
        return facts
    if not isinstance(nodes.value, int) or not isinstance(each.value, int):
        return facts
    devices = Fact(
        name="devices",
        value=nodes.value * each.value,
        place=each.place,
        said=f"{nodes.said.removesuffix(UNSET)} and {each.said}",
        is_default=nodes.is_default or each.is_default,
    )
    return {**facts, "devices": devices}


def _below_one(readings: tuple[Reading, ...], found: list[Finding]) -> list[Finding]:
    """Counts below one, but for those in whose line a rule of a tool has found an error."""
    wrong = {
        (each.place.file, each.place.line)
        for each in found
        if each.place is not None and each.severity is Severity.ERROR and each.rule != "contradiction"
    }
    facts = [each for reading in readings for each in reading.facts if is_below_one(each)]
    return [
        finding("count-below-one", each.place, key=each.said, given=each.value, what_is=FACTS[each.name])
        for each in facts
        if (each.place.file, each.place.line) not in wrong
    ]


def _contradictions(readings: tuple[Reading, ...], given: Mapping[str, Value]) -> list[Finding]:
    """Facts that two files tell differently.

    What is granted may be more than what is used, and a comment that says how to launch is no order.
    """
    found: list[Finding] = []
    first: dict[str, tuple[Fact, Reading]] = {}
    orders = [each for each in readings if each.role is not Role.ALLOCATION]
    for reading in (each for each in orders if not each.document.is_remark):
        for each in (each for each in reading.facts if not each.is_default):
            other, origin = first.setdefault(each.name, (each, reading))
            replaced = origin.tool == reading.tool and origin is not reading and each.name in origin.overrides
            if other.value != each.value and not replaced and each.name not in FEWER | given.keys():
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
