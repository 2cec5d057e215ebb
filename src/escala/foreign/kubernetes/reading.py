"""Manifests of Kubernetes as what a job is granted. Knows their keys, not when they are wrong.

The commands of the containers are read by the tools that are in them, with the variables that Kubeflow sets.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from escala.foreign.carried import command_of, scripts_named, word_of
from escala.foreign.documents import Document, Syntax
from escala.foreign.facts import Fact, count_of, fact
from escala.foreign.findings import Finding
from escala.foreign.jobs import Job
from escala.foreign.kubernetes.manifests import Pods, kind_of, nodes_of, pods_of, processes_node
from escala.foreign.kubernetes.rules import rules_of
from escala.foreign.places import Node, at
from escala.foreign.readings import Reading, Role, VersionIs
from escala.foreign.shelltext import Word

NAME: Final = "kubernetes"
TITLE: Final = "Kubernetes"
VERSION: Final = "Kubeflow Trainer 2.3, training-operator 1.9, JobSet v1alpha2"
SUFFIXES: Final = {
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "": 1,
}
ELSEWHERE: Final = "$(set by Kubeflow)"


def score(document: Document) -> int:
    """Certain for a manifest, also of kinds that train nothing, which then say nothing."""
    is_tree = document.syntax in (Syntax.YAML, Syntax.JSON)
    return 95 if is_tree and kind_of(document) is not None else 0


def read(document: Document, version: str | None) -> Reading:
    """What the document says."""
    kind, tree = kind_of(document), document.tree
    assert tree is not None
    facts = tuple(_facts(kind, tree)) if kind else ()
    inside = tuple(_inside(document, kind, tree)) if kind else ()
    return Reading(
        tool=NAME,
        title=f"{TITLE} {kind}".strip(),
        version=version or VERSION,
        version_is=VersionIs.GIVEN if version else VersionIs.ASSUMED,
        role=Role.ALLOCATION,
        document=document,
        facts=facts,
        references=tuple(each for script in inside for each in scripts_named(script, NAME)),
        inside=inside,
    )


def rules(job: Job, reading: Reading) -> Iterator[Finding]:
    """What is wrong with it."""
    return rules_of(job, reading)


def bytes_of(given: object) -> int | None:
    """An amount as Kubernetes writes it: 64Gi, 512M, 1000000."""
    text = str(given).strip()
    letters = text.lstrip("0123456789.")
    number = text[: len(text) - len(letters)]
    if letters not in SUFFIXES or not re.fullmatch(r"[0-9]{1,18}(\.[0-9]{0,18})?", number):
        return None
    return int(float(number) * SUFFIXES[letters])


def _facts(kind: str, tree: Node) -> Iterator[Fact]:
    nodes, several = nodes_of(kind, tree), pods_of(kind, tree)
    if nodes is not None:
        yield fact("nodes", nodes[0], nodes[1], "numNodes" if kind == "TrainJob" else "replicas")
    gpus = next((each.gpus for each in several if each.gpus is not None), None)
    processes = processes_node(kind, tree)
    for node, said in ((gpus, "GPUs of a pod"), (processes, "processes of a node")):
        count = count_of(node)
        if node is not None and count is not None:
            yield fact("devices_per_node", count, node, said)
            break
    for each in several:
        for part in ("resources", "resourcesPerNode"):
            memory = at(each.container, part, "limits", "memory")
            amount = bytes_of(memory.scalar) if memory is not None else None
            if memory is not None and amount is not None:
                yield fact("host_bytes", amount, memory, "memory of a pod")
                return


def _inside(document: Document, kind: str, tree: Node) -> Iterator[Document]:
    """The command of each kind of pod; pods with the same words are read once."""
    seen: set[tuple[str, ...]] = set()
    for pods in pods_of(kind, tree):
        words = tuple(str(word.scalar) for word in pods.words)
        given = variables(kind, tree, pods)
        if words in seen or not (words or given):
            continue
        seen.add(words)
        yield command_of(document, pods.words, given)


def variables(kind: str, tree: Node, pods: Pods) -> dict[str, Word]:
    """What the container is given, and what Kubeflow sets for torchrun."""
    found = dict(_kubeflow(kind, tree)) if kind in ("TrainJob", "PyTorchJob") else {}
    env = pods.container.table.get("env")
    for each in env.items if env is not None else []:
        name, value = each.table.get("name"), each.table.get("value")
        word = word_of(value) if value is not None else None
        if name is not None and word is not None:
            found[str(name.scalar)] = word
    return found


def _kubeflow(kind: str, tree: Node) -> Iterator[tuple[str, Word]]:
    numbers: Mapping[str, tuple[object, Node] | None] = {
        "PET_NNODES": nodes_of(kind, tree),
        "PET_NPROC_PER_NODE": _processes(kind, tree),
    }
    for name, said in numbers.items():
        if said is not None:
            yield name, Word(text=str(said[0]), place=said[1].place)
    for name in ("PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"):
        yield name, Word(text=ELSEWHERE, place=tree.place, is_open=True)


def _processes(kind: str, tree: Node) -> tuple[object, Node] | None:
    """What is said; else the devices of a pod, which Kubeflow takes for it."""
    node = processes_node(kind, tree)
    if node is None:
        node = next((each.gpus for each in pods_of(kind, tree) if each.gpus is not None), None)
    return (node.scalar, node) if node is not None else None
