"""SkyPilot's tasks as what a job is granted. Knows their keys, not when they are wrong.

The scripts of setup and run are read by the tools that are in them, with the variables that SkyPilot sets.
"""

from collections.abc import Iterator
from typing import Final

from escala.foreign.carried import script_of, scripts_named, word_of
from escala.foreign.documents import Document, Syntax
from escala.foreign.facts import Fact, count_of, fact, whole
from escala.foreign.findings import Finding
from escala.foreign.jobs import Job
from escala.foreign.places import Node, at
from escala.foreign.readings import Reading, Role, VersionIs
from escala.foreign.shelltext import Word
from escala.foreign.skypilot.rules import rules_of

NAME: Final = "skypilot"
TITLE: Final = "SkyPilot"
VERSION: Final = "0.14.1"
OWN: Final = frozenset(("num_nodes", "setup", "envs", "file_mounts", "workdir", "resources", "secrets"))
SCRIPTS: Final = ("setup", "run")


def score(document: Document) -> int:
    """Likely with a script `run` and one more key of a task."""
    names = (
        frozenset(document.tree.table) if document.tree and document.syntax is Syntax.YAML else frozenset()
    )
    if "apiVersion" in names or not names & {"run", "setup"}:
        return 0
    return 80 if names & OWN - {"setup"} and _is_script(document.tree) else 0


def read(document: Document, version: str | None) -> Reading:
    """What the document says."""
    tree = document.tree
    assert tree is not None
    inside = tuple(
        script_of(document, tree.table[name], variables(tree))
        for name in SCRIPTS
        if isinstance(tree.table[name].scalar if name in tree.table else None, str)
    )
    return Reading(
        tool=NAME,
        title=TITLE,
        version=version or VERSION,
        version_is=VersionIs.GIVEN if version else VersionIs.ASSUMED,
        role=Role.ALLOCATION,
        document=document,
        facts=tuple(_facts(tree)),
        references=tuple(each for script in inside for each in scripts_named(script, NAME)),
        inside=inside,
    )


def rules(job: Job, reading: Reading) -> Iterator[Finding]:
    """What is wrong with it."""
    return rules_of(job, reading)


def accelerators(tree: Node) -> list[tuple[str, int | None, Node]]:
    """The devices of a node, by name and number; several where SkyPilot may choose."""
    resources = tree.table.get("resources")
    tables = [resources] if resources is not None else []
    for name in ("any_of", "ordered"):
        several = at(resources, name)
        tables += several.items if several is not None else []
    return [found for each in tables for found in _accelerators(each.table.get("accelerators"))]


def _is_script(tree: Node | None) -> bool:
    return any(isinstance(each.scalar, str) for name in SCRIPTS if (each := at(tree, name)) is not None)


def _accelerators(node: Node | None) -> Iterator[tuple[str, int | None, Node]]:
    if node is None:
        return
    if isinstance(node.scalar, str):
        name, _, count = node.scalar.partition(":")
        yield name, whole(count) if count else 1, node
    for name, each in node.table.items():
        yield name, count_of(each), node
    for each in node.items:
        yield from _accelerators(each)


def _facts(tree: Node) -> Iterator[Fact]:
    nodes = tree.table.get("num_nodes")
    count = count_of(nodes) if nodes is not None else 1
    if count is not None and nodes is not None:
        yield fact("nodes", count, nodes, "num_nodes")
    several = accelerators(tree)
    names, counts = {name for name, _, _ in several}, {each for _, each, _ in several}
    if len(counts) == 1 and (each := counts.pop()) is not None:
        yield fact("devices_per_node", each, several[0][2], "resources.accelerators")
        if nodes is None:
            yield fact("devices", each, several[0][2], "resources.accelerators")
    if len(names) == 1:
        yield fact("device", names.pop(), several[0][2], "resources.accelerators")


def variables(tree: Node) -> dict[str, Word]:
    """What SkyPilot sets in every node, and what the task says of its own."""
    here = tree.table.get("num_nodes", tree)
    found = {
        "SKYPILOT_NUM_NODES": Word(text=str(count_of(tree.table.get("num_nodes")) or 1), place=here.place)
    }
    several = accelerators(tree)
    counts = {each for _, each, _ in several}
    if len(counts) == 1 and (each := counts.pop()) is not None:
        found["SKYPILOT_NUM_GPUS_PER_NODE"] = Word(text=str(each), place=several[0][2].place)
    for part in ("envs", "secrets"):
        table = tree.table.get(part)
        for name, node in (table.table if table is not None else {}).items():
            word = word_of(node)
            if word is not None:
                found[name] = word
    return found
