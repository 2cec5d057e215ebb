"""torchrun's command lines as facts of a job: how many nodes, how many processes on each."""

from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Final

from escala.foreign.documents import Document, Syntax
from escala.foreign.facts import Fact, fact
from escala.foreign.findings import Finding
from escala.foreign.jobs import Job
from escala.foreign.readings import Reading, Reference, Role, VersionIs
from escala.foreign.shelltext import flags
from escala.foreign.torchrun.commands import Launch, as_number, launches_of
from escala.foreign.torchrun.rules import rules_of

NAME: Final = "torchrun"
TITLE: Final = "torchrun"
VERSION: Final = "2.13.0"
ALL_DEVICES: Final = ("auto", "gpu", "cpu", "xpu")
"""Words for as many processes as the node has devices; other accelerators have names of their own."""


def score(document: Document) -> int:
    """Certain where a script calls torchrun or its module."""
    is_called = document.syntax is Syntax.SHELL and "tor" in document.text
    return 90 if is_called and launches_of(document) else 0


def read(document: Document, version: str | None) -> Reading:
    """What the command lines say; of several only what all of them say."""
    launches = launches_of(document)
    return Reading(
        tool=NAME,
        title=TITLE,
        version=version or VERSION,
        version_is=VersionIs.GIVEN if version else VersionIs.ASSUMED,
        role=Role.LAUNCH,
        document=document,
        facts=tuple(_agreed([list(_facts(launch)) for launch in launches])),
        references=tuple(_scripts(document, launches)),
        wanted=frozenset(name for launch in launches for name in _wanted(launch)),
        extra={"launches": tuple(launches)},
    )


def rules(job: Job, reading: Reading) -> Iterator[Finding]:
    """What is wrong with the command lines."""
    return rules_of(job, reading)


def _agreed(several: list[list[Fact]]) -> Iterator[Fact]:
    """Facts of the first command line that no other one tells differently."""
    for each in several[0]:
        others = [other.value for facts in several[1:] for other in facts if other.name == each.name]
        if all(value == each.value for value in others):
            yield each


def _facts(launch: Launch) -> Iterator[Fact]:
    nodes, processes = _nodes(launch), _processes(launch)
    for name, option, count in (
        ("nodes", "nnodes", nodes),
        ("devices_per_node", "nproc-per-node", processes),
    ):
        node = launch.said(option)
        if count is not None:
            said = f"--{option}" if node is not None else f"--{option} (left out)"
            yield fact(name, count, node if node is not None else launch.place, said)
    given = (launch.said("nnodes"), launch.said("nproc-per-node"))
    is_sure = not any(node is not None and node.is_default for node in given)
    if nodes is not None and processes is not None and is_sure:
        node = launch.said("nproc-per-node")
        said = "--nnodes and --nproc-per-node"
        yield fact("devices", nodes * processes, node if node is not None else launch.place, said)
    yield from _own(launch)


def _own(launch: Launch) -> Iterator[Fact]:
    """Steps and learning rate of escala's own training."""
    words = [word.text for word in launch.arguments]
    if launch.script is None or launch.script.text != "escala" or words[:1] != ["train"]:
        return
    given = flags(launch.arguments)
    for option, name, kind in (("steps", "steps", int), ("lr", "learning_rate", float)):
        word, values = given.get(option, (None, ()))
        value = as_number(values[0].text, kind) if values else None
        if word is not None and value is not None:
            yield fact(name, value, word.place, f"--{option}")


def _nodes(launch: Launch) -> int | None:
    """Nodes of a job of a fixed size: one where nothing is said."""
    first, _, last = (launch.text("nnodes") or "1").partition(":")
    return int(first) if first.isdigit() and last in ("", first) else None


def _processes(launch: Launch) -> int | None:
    text = launch.text("nproc-per-node") or "1"
    return int(text) if text.isdigit() else None


def _wanted(launch: Launch) -> Iterator[str]:
    if launch.text("nproc-per-node") in ALL_DEVICES:
        yield "devices_per_node"


def _scripts(document: Document, launches: list[Launch]) -> Iterator[Reference]:
    """The scripts that lie beside the file, or where the command line says."""
    for launch in launches:
        script = launch.script
        if script is None or script.is_open or not script.text.endswith(".py") or document.part:
            continue
        beside = FilePath(document.file).parent / script.text
        if beside.is_file() or FilePath(script.text).is_file():
            yield Reference(file=script.text, place=script.place, said="torchrun")
