"""When a task of SkyPilot is wrong, alone or beside its job. The words are in data/rules/skypilot.toml."""

import re
from collections.abc import Iterator
from typing import Final

from escala.foreign.facts import count_of
from escala.foreign.findings import Finding, finding
from escala.foreign.jobs import Job
from escala.foreign.keys import KeyCheck, table
from escala.foreign.places import Node, at
from escala.foreign.readings import Reading, Role

ASKS: Final = re.compile(r"SKYPILOT_(?:NODE_RANK|NODE_IPS|NUM_NODES)")
KEPT: Final = re.compile(r"checkpoint|ckpt|resume|output_dir|--save\b", re.IGNORECASE)


def rules_of(job: Job, reading: Reading) -> Iterator[Finding]:
    """All findings of this task."""
    tree = reading.document.tree
    assert tree is not None
    yield from KeyCheck(table=table("skypilot"), tool="SkyPilot").findings(tree)
    yield from _nodes(job, reading, tree)
    yield from _devices(job, reading)
    yield from _resources(tree)
    for name, each in (at(tree, "envs") or Node(value={}, place=tree.place)).table.items():
        if each.value is None:
            yield finding("skypilot-variable-open", each, variable=name)


def _nodes(job: Job, reading: Reading, tree: Node) -> Iterator[Finding]:
    """Nodes that are asked for against those that the script starts on."""
    nodes, run = tree.table.get("num_nodes"), tree.table.get("run")
    granted = count_of(nodes)
    if nodes is None or granted is None or granted < 2 or run is None:
        return
    launched = _launched(job, "nodes")
    if launched is not None and launched[0] != granted:
        yield finding("skypilot-nodes-apart", nodes, granted=granted, launched=launched[0], said=launched[1])
    elif launched is None and not ASKS.search(str(run.scalar)):
        yield finding("skypilot-nodes-unasked", nodes, granted=granted)
    if at(tree, "resources", "network_tier") is None:
        yield finding("skypilot-network-tier", nodes, granted=granted)


def _devices(job: Job, reading: Reading) -> Iterator[Finding]:
    asked, launched = reading.fact("devices_per_node"), _launched(job, "devices_per_node")
    if asked is None or launched is None or launched[0] == asked.value:
        return
    granted = asked.value
    assert isinstance(granted, int)
    rule = "skypilot-too-few-gpus" if granted < launched[0] else "skypilot-idle-gpus"
    yield finding(rule, asked.place, granted=granted, processes=launched[0], said=launched[1])


def _launched(job: Job, name: str) -> tuple[int, str] | None:
    """What a launcher of the job says of a number, and how."""
    for reading in job.readings:
        said = reading.fact(name)
        if reading.role is not Role.ALLOCATION and said is not None and isinstance(said.value, int):
            return said.value, said.said
    return None


def _resources(tree: Node) -> Iterator[Finding]:
    spot = at(tree, "resources", "use_spot")
    run = tree.table.get("run")
    if spot is None or spot.scalar is not True:
        return
    keeps = "file_mounts" in tree.table or "volumes" in tree.table
    if not keeps or not KEPT.search(str(run.scalar if run is not None else "")):
        yield finding("skypilot-spot-forgets", spot)
