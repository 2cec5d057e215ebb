"""Command lines of DeepSpeed's launcher as facts. Knows no condition under which they are wrong."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from escala.foreign.documents import Document
from escala.foreign.facts import Fact, count_of, fact, is_open
from escala.foreign.launchlines import LaunchLine, launch_lines
from escala.foreign.places import Node
from escala.foreign.readings import Reference
from escala.foreign.scriptarguments import argument_facts

LAUNCHER: Final = "deepspeed"
SWITCHES: Final = frozenset(
    (
        "module",
        "no_python",
        "no_local_rank",
        "no_ssh",
        "no_ssh_check",
        "force_multi",
        "save_pid",
        "bind_cores_to_rank",
        "quiet",
        "q",
    )
)
"""Options without a value (deepspeed 0.19.8, launcher/runner.py)."""
PER_NODE: Final = ("num_gpus", "num_accelerators")
INCLUDED: Final = re.compile(r"localhost:([\d,]+)")
PLACED: Final = frozenset(("devices", "devices_per_node", "nodes"))
"""Facts in which options count before a host file."""
FILES: Final = ("deepspeed", "deepspeed_config")


def lines(document: Document) -> Iterator[LaunchLine]:
    """Launches of a document; `ds_report` and the like are none."""
    if document.tree is not None:
        return
    for line in launch_lines(document, LAUNCHER, SWITCHES):
        script = None if line.script is None else line.script.value
        if isinstance(script, str) and ("module" in line.options or re.search(r"\.(py|sh)$|^\$", script)):
            yield line


def launch_facts(launches: Iterable[LaunchLine]) -> Iterator[Fact]:
    """Devices and nodes, and what the script's options say."""
    for line in launches:
        yield from _devices(line)
        yield from argument_facts(line.arguments)


def launch_references(launches: Iterable[LaunchLine]) -> Iterator[Reference]:
    """The configuration that the script is given, and the host file."""
    for line in launches:
        for name in FILES:
            yield from _reference(line.arguments.get(name), f"--{name}")
        yield from _reference(line.options.get("hostfile") or line.options.get("H"), "--hostfile")


def _reference(node: Node | None, said: str) -> Iterator[Reference]:
    if node is not None and isinstance(node.value, str) and not is_open(node.value):
        yield Reference(file=node.value, place=node.place, said=said)


def _devices(line: LaunchLine) -> Iterator[Fact]:
    """Nodes × devices of each: several nodes come from a host file, without one there is this one."""
    nodes = line.options.get("num_nodes")
    count = count_of(nodes)
    if nodes is not None and count is not None and count > 0:
        yield fact("nodes", count, nodes, "--num_nodes")
    name = next((name for name in PER_NODE if name in line.options), PER_NODE[0])
    given, said = line.options.get(name), f"--{name}"
    per_node = count_of(given)
    several = count is not None or "hostfile" in line.options or "H" in line.options
    if given is not None and per_node is not None and per_node > 0:
        yield fact("devices_per_node", per_node, given, said)
        if count is not None or not several:
            yield fact("devices", per_node * (count or 1), given, said)
        return
    included = line.options.get("include") or line.options.get("i")
    match = INCLUDED.fullmatch(str(included.value)) if included is not None else None
    if included is not None and match is not None:
        yield fact("devices", len(match.group(1).split(",")), included, "--include")
