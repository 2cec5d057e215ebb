"""What one tool reads in one document, and what a tool is. Knows no tool."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from escala.foreign.documents import Document
from escala.foreign.facts import Fact
from escala.foreign.findings import Finding
from escala.foreign.places import Place

if TYPE_CHECKING:
    from escala.foreign.jobs import Job


class VersionIs(StrEnum):
    """How the version of a tool is known."""

    GIVEN = "given"
    DETECTED = "detected"
    ASSUMED = "assumed"


class Role(StrEnum):
    """What a file is to a job; where two say the same differently, the first of this list counts."""

    LAUNCH = "launch"
    ARGUMENTS = "arguments"
    CONFIG = "config"
    CODE = "code"
    ALLOCATION = "allocation"
    """What a scheduler grants, whether or not the job makes use of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Another file that a file names, and where."""

    file: str
    place: Place
    said: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reading:
    """What a document says of the job; `engine` is how escala calls the software that will run it.

    `shape` has the sizes of the model in the words of a Hugging Face config.json where the file itself has
    them; `wanted` are facts whose values are left to another place ("auto"), by name. `inside` are scripts
    that the document carries, with the variables that they are given; other tools read them in its place.
    `overrides` are facts in which options count before the tool's own files by design, so that another value
    there is no contradiction.
    """

    tool: str
    title: str
    version: str
    version_is: VersionIs
    role: Role
    document: Document
    facts: tuple[Fact, ...] = ()
    findings: tuple[Finding, ...] = ()
    references: tuple[Reference, ...] = ()
    engine: str | None = None
    shape: Mapping[str, object] | None = None
    wanted: frozenset[str] = field(default=frozenset())
    extra: Mapping[str, object] = field(default_factory=dict)
    inside: tuple[Document, ...] = ()
    overrides: frozenset[str] = field(default=frozenset())

    def fact(self, name: str) -> Fact | None:
        """The fact of that name."""
        return next((each for each in self.facts if each.name == name), None)


class Tool(Protocol):
    """A module `reading` of a tool."""

    NAME: str
    TITLE: str

    def score(self, document: Document) -> int:
        """How surely the document is this tool's: 0 not, 100 certainly."""

    def read(self, document: Document, version: str | None) -> Reading:
        """What the document says."""

    def rules(self, job: "Job", reading: Reading) -> Iterator[Finding]:
        """What is wrong with it beside the rest of its job."""


def said_of(facts: Iterable[Fact]) -> dict[str, Fact]:
    """Facts by name; of several with a name the first."""
    found: dict[str, Fact] = {}
    for each in facts:
        found.setdefault(each.name, each)
    return found
