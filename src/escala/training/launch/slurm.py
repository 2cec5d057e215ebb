"""What Slurm's variables mean: lists of hosts, tasks of each node. Knows text only."""

import re
from typing import Final

from escala.errors import InvalidInput

COUNTED: Final = re.compile(r"(\d+)(?:\(x(\d+)\))?")
FIRST: Final = re.compile(r"([^\[,]+)(?:\[(\d+)[^\]]*\]([^,\[]*))?")


def first_host(hosts: str) -> str:
    """The first host of a list such as gpu[03-07,12],cpu1: gpu03."""
    found = FIRST.match(hosts.strip())
    if found is None:
        raise InvalidInput(f"'{hosts}' names no host; set MASTER_ADDR to the host of rank 0")
    name, number, rest = found.groups()
    return f"{name}{number or ''}{rest or ''}"


def tasks_of_node(counts: str, node: int) -> int:
    """Tasks of one node by a list such as 8(x2),4: 8, 8, 4."""
    every = [
        int(tasks)
        for tasks, nodes in (_counted(part) for part in counts.split(","))
        for _ in range(int(nodes or 1))
    ]
    if not 0 <= node < len(every):
        raise InvalidInput(f"node {node} has no tasks in '{counts}'; start in a fresh job step")
    return every[node]


def _counted(part: str) -> tuple[str, str | None]:
    found = COUNTED.fullmatch(part.strip())
    if found is None:
        raise InvalidInput(f"'{part}' counts no tasks; expected a list such as 8(x2),4")
    return found[1], found[2]
