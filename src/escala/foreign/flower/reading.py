"""Flower's pyproject.toml: what is wrong with an app. It gives no facts, since no one cluster runs it."""

from collections.abc import Iterator
from typing import Final

from escala.foreign.documents import Document, Syntax
from escala.foreign.findings import Finding, finding
from escala.foreign.jobs import Job
from escala.foreign.places import Node, at, every
from escala.foreign.readings import Reading, Role, VersionIs
from escala.foreign.versions import is_before

NAME: Final = "flower"
TITLE: Final = "Flower"
VERSION: Final = "1.42.0"
PROJECT: Final = ("name", "version")
COMPONENTS: Final = ("serverapp", "clientapp")
SHARES: Final = ("fraction-train", "fraction-fit", "fraction-evaluate")
MOVED: Final = "1.26"
"""The version in which federations left pyproject.toml."""


def score(document: Document) -> int:
    """Certain with a section of Flower."""
    if document.syntax is not Syntax.TOML:
        return 0
    return 90 if at(document.tree, "tool", "flwr") is not None else 0


def read(document: Document, version: str | None) -> Reading:
    """That it is an app; `escala federate` answers about federations."""
    return Reading(
        tool=NAME,
        title=TITLE,
        version=version or VERSION,
        version_is=VersionIs.GIVEN if version else VersionIs.ASSUMED,
        role=Role.CONFIG,
        document=document,
    )


def rules(job: Job, reading: Reading) -> Iterator[Finding]:
    """What is wrong with the app."""
    tree = reading.document.tree
    assert tree is not None
    flower = at(tree, "tool", "flwr")
    assert flower is not None
    app = flower.table.get("app")
    yield finding("flower-federation", app if app is not None else flower)
    yield from _missing(tree, flower, app)
    yield from _federations(flower, reading.version)
    if app is not None:
        yield from _components(app)
        yield from _settings(app)


def _missing(tree: Node, flower: Node, app: Node | None) -> Iterator[Finding]:
    project = tree.table.get("project")
    if project is None:
        yield finding("flower-missing", flower, what="[project]")
    else:
        for name in PROJECT:
            if name not in project.table:
                yield finding("flower-missing", project, what=f"{name} in [project]")
    if app is None:
        yield finding("flower-missing", flower, what="[tool.flwr.app]")
    elif "publisher" not in app.table:
        yield finding("flower-missing", app, what="publisher in [tool.flwr.app]")


def _components(app: Node) -> Iterator[Finding]:
    components = app.table.get("components")
    if components is None:
        yield finding("flower-missing", app, what="[tool.flwr.app.components]")
        return
    for name in COMPONENTS:
        if name not in components.table and "agentapp" not in components.table:
            yield finding("flower-missing", components, what=f"{name} in [tool.flwr.app.components]")
    for name, node in components.table.items():
        module, _, attribute = str(node.scalar).partition(":")
        if name in (*COMPONENTS, "agentapp") and not (module and attribute):
            yield finding("flower-component", node, key=name, given=node.scalar)


def _settings(app: Node) -> Iterator[Finding]:
    """Values of the run's configuration: numbers, texts and booleans, or tables of those."""
    config = app.table.get("config")
    for path, node in every(config) if config is not None else ():
        if path and isinstance(node.value, list):
            yield finding("flower-setting-list", node, key=path[-1])
        share = node.scalar
        is_number = isinstance(share, int | float) and not isinstance(share, bool)
        if path and path[-1] in SHARES and is_number and not 0 <= float(str(share)) <= 1:
            yield finding("flower-share", node, key=path[-1], given=share)


def _federations(flower: Node, version: str) -> Iterator[Finding]:
    """Federations that no longer stand here; clients without a share of a device start one a core."""
    federations = flower.table.get("federations")
    if federations is None:
        return
    if not is_before(version, MOVED):
        yield finding("flower-federations-moved", federations)
    for node in federations.table.values():
        backend = at(node, "options", "backend", "client-resources", "num-gpus")
        if backend is not None and backend.scalar in (0, 0.0):
            yield finding("flower-clients-unbounded", backend)
