"""DeepSpeed's JSON, launch lines and host files as facts. Knows no condition under which they are wrong."""

import re
from collections.abc import Iterator
from typing import Final

from escala.foreign.deepspeed.launching import PLACED, launch_facts, launch_references, lines
from escala.foreign.deepspeed.rules import rules_of
from escala.foreign.documents import Document, Syntax
from escala.foreign.facts import Fact, count_of, fact, is_open, number_of
from escala.foreign.findings import Finding
from escala.foreign.jobs import Job
from escala.foreign.places import Node, at
from escala.foreign.readings import Reading, Role, VersionIs

NAME: Final = "deepspeed"
TITLE: Final = "DeepSpeed"
VERSION: Final = "0.19.8"
SURE: Final = frozenset(("zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size"))
LIKELY: Final = frozenset(("fp16", "bf16", "gradient_accumulation_steps", "activation_checkpointing"))
HOST: Final = re.compile(r"^\S+[ \t]+slots=(\d+)[ \t]*$", re.MULTILINE)
NO_HOST: Final = re.compile(r"^\s*(#.*)?$")
COUNTS: Final = {
    "train_batch_size": "global_batch",
    "train_micro_batch_size_per_gpu": "micro_batch",
    "gradient_accumulation_steps": "accumulation",
}
FORMATS: Final = {"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16"}
OFFLOADS: Final = {"offload_optimizer": "offload_optimizer", "offload_param": "offload_params"}
OLD_OFFLOADS: Final = {"cpu_offload": "offload_optimizer", "cpu_offload_param": "offload_params"}
OPEN_ELSEWHERE: Final = {
    **COUNTS,
    "optimizer.params.lr": "learning_rate",
    "bf16.enabled": "precision",
    "fp16.enabled": "precision",
}


def score(document: Document) -> int:
    """Certain with keys of its own or its launcher, likely with several that others have too."""
    if document.tree is not None and document.syntax is Syntax.JSON:
        names = frozenset(document.tree.table)
        return 90 if names & SURE else 50 if len(names & LIKELY) > 1 else 0
    if next(lines(document), None) is not None:
        return 70
    return 80 if _is_hostfile(document) else 0


def read(document: Document, version: str | None) -> Reading:
    """What the document says."""
    tree = document.tree if document.syntax is Syntax.JSON else None
    launches = tuple(lines(document)) if tree is None else ()
    hosts = _hosts(document) if tree is None and not launches else ()
    wanted = () if tree is None else _wanted(tree)
    return Reading(
        tool=NAME,
        title=TITLE,
        version=version or VERSION,
        version_is=VersionIs.GIVEN if version else VersionIs.ASSUMED,
        role=Role.LAUNCH if launches else Role.CONFIG,
        document=document,
        facts=tuple(_facts(tree)) if tree is not None else (*launch_facts(launches), *hosts),
        references=tuple(launch_references(launches)),
        engine="deepspeed",
        wanted=frozenset(wanted),
        overrides=PLACED if launches else frozenset(),
    )


def rules(job: Job, reading: Reading) -> Iterator[Finding]:
    """What is wrong with it."""
    return rules_of(job, reading)


def _is_hostfile(document: Document) -> bool:
    rows = document.text.splitlines()
    return bool(HOST.search(document.text)) and all(HOST.match(row) or NO_HOST.match(row) for row in rows)


def _hosts(document: Document) -> tuple[Fact, ...]:
    """Nodes and devices of a host file."""
    matches = list(HOST.finditer(document.text))
    slots = [int(match.group(1)) for match in matches]
    if not slots:
        return ()
    place = document.lines.place(matches[0].start(), matches[-1].end())
    equal = (fact("devices_per_node", slots[0], place, "slots"),) if len(set(slots)) == 1 else ()
    return (fact("nodes", len(slots), place, "host file"), *equal)


def _wanted(tree: Node) -> Iterator[str]:
    """Facts that are filled in elsewhere ("auto")."""
    for path, name in OPEN_ELSEWHERE.items():
        node = at(tree, *path.split("."))
        if node is not None and is_open(node.scalar):
            yield name


def _facts(tree: Node) -> Iterator[Fact]:
    for key, name in COUNTS.items():
        node = tree.table.get(key)
        count = count_of(node)
        if node is not None and count is not None:
            yield fact(name, count, node, key)
    yield from _precision(tree)
    yield from _zero(tree)
    yield from _degrees(tree)
    yield from _optimizer(tree)
    deep = at(tree, "compile", "deepcompile")
    if deep is not None and deep.scalar is True:
        yield fact("compile", True, deep, "compile.deepcompile")


def _precision(tree: Node) -> Iterator[Fact]:
    """The format that is on; none where two are, which is wrong."""
    on = [key for key in FORMATS if (node := at(tree, key, "enabled")) is not None and node.scalar is True]
    if len({FORMATS[key] for key in on}) == 1:
        yield fact("precision", FORMATS[on[0]], tree.table[on[0]], f"{on[0]}.enabled")


def _degrees(tree: Node) -> Iterator[Fact]:
    degree = at(tree, "tensor_parallel", "autotp_size")
    if degree is not None and (count := count_of(degree)):
        yield fact("tp", count, degree, "tensor_parallel.autotp_size")
    length = tree.table.get("sequence_parallel_size")
    if length is not None and (count := count_of(length)) is not None:
        yield fact("cp", count, length, "sequence_parallel_size")
        if count > 1:
            yield fact("cp_kind", "ulysses", length, "sequence_parallel_size")
    stages = at(tree, "pipeline", "stages")
    if stages is not None and (count := count_of(stages)) is not None:
        yield fact("pp", count, stages, "pipeline.stages")
    experts, enabled = at(tree, "expert_parallel", "autoep_size"), at(tree, "expert_parallel", "enabled")
    is_on = enabled is not None and enabled.scalar is True
    if experts is not None and is_on and (count := count_of(experts)) is not None:
        yield fact("ep", count, experts, "expert_parallel.autoep_size")


def _optimizer(tree: Node) -> Iterator[Fact]:
    kind, rate = at(tree, "optimizer", "type"), at(tree, "optimizer", "params", "lr")
    if kind is not None and isinstance(kind.value, str) and not is_open(kind.value):
        yield fact("optimizer", kind.value, kind, "optimizer.type")
    if rate is not None and (number := number_of(rate)) is not None:
        yield fact("learning_rate", number, rate, "optimizer.params.lr")


def _zero(tree: Node) -> Iterator[Fact]:
    block = tree.table.get("zero_optimization")
    if block is not None and isinstance(block.value, bool):
        yield fact("zero", 1 if block.value else 0, block, "zero_optimization")
        return
    stage = at(block, "stage")
    count = count_of(stage)
    if block is None or stage is None or count is None or count not in (0, 1, 2, 3):
        return
    yield fact("zero", count, stage, "zero_optimization.stage")
    if count == 3:
        yield fact("reshard", True, stage, "zero_optimization.stage")
        copy = at(block, "zero_hpz_partition_size")
        if copy is not None and (ranks := count_of(copy) or 1) > 1:
            yield fact("second_copy", ranks, copy, "zero_optimization.zero_hpz_partition_size")
    for key, name in OFFLOADS.items():
        device = at(block, key, "device")
        if device is not None and device.scalar in ("none", "cpu", "nvme"):
            yield fact(name, str(device.scalar), device, f"zero_optimization.{key}.device")
    for key, name in OLD_OFFLOADS.items():
        old = at(block, key)
        if old is not None and old.scalar is True:
            yield fact(name, "cpu", old, f"zero_optimization.{key}")
