"""DeepSpeed's JSON as facts of a job. Knows its keys, no condition under which they are wrong."""

from collections.abc import Iterator
from typing import Final

from escala.foreign.deepspeed.rules import rules_of
from escala.foreign.documents import Document, Syntax
from escala.foreign.facts import Fact, count_of, fact, is_open
from escala.foreign.findings import Finding
from escala.foreign.jobs import Job
from escala.foreign.places import Node, at
from escala.foreign.readings import Reading, Role, VersionIs

NAME: Final = "deepspeed"
TITLE: Final = "DeepSpeed"
VERSION: Final = "0.19.8"
SURE: Final = frozenset(("zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size"))
LIKELY: Final = frozenset(("fp16", "bf16", "gradient_accumulation_steps", "activation_checkpointing"))
COUNTS: Final = {
    "train_batch_size": "global_batch",
    "train_micro_batch_size_per_gpu": "micro_batch",
    "gradient_accumulation_steps": "accumulation",
}
FORMATS: Final = {"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16"}
OFFLOADS: Final = {"offload_optimizer": "offload_optimizer", "offload_param": "offload_params"}


def score(document: Document) -> int:
    """Certain with ZeRO or batch keys of its own, likely with several that others have too."""
    names = (
        frozenset(document.tree.table) if document.tree and document.syntax is Syntax.JSON else frozenset()
    )
    return 90 if names & SURE else 50 if len(names & LIKELY) > 1 else 0


def read(document: Document, version: str | None) -> Reading:
    """What the document says."""
    assert document.tree is not None
    known = version or VERSION
    return Reading(
        tool=NAME,
        title=TITLE,
        version=known,
        version_is=VersionIs.GIVEN if version else VersionIs.ASSUMED,
        role=Role.CONFIG,
        document=document,
        facts=tuple(_facts(document.tree)),
        engine="deepspeed",
        wanted=frozenset(name for key, name in COUNTS.items() if _is_open(at(document.tree, key))),
    )


def rules(job: Job, reading: Reading) -> Iterator[Finding]:
    """What is wrong with it."""
    return rules_of(job, reading)


def _is_open(node: Node | None) -> bool:
    return node is not None and is_open(node.scalar)


def _facts(tree: Node) -> Iterator[Fact]:
    for key, name in COUNTS.items():
        node = tree.table.get(key)
        count = count_of(node)
        if node is not None and count is not None:
            yield fact(name, count, node, key)
    for key, precision in FORMATS.items():
        node = at(tree, key, "enabled")
        if node is not None and node.scalar is True:
            yield fact("precision", precision, tree.table[key], f"{key}.enabled")
    yield from _zero(tree)
    degree = at(tree, "tensor_parallel", "autotp_size")
    if degree is not None and (count := count_of(degree)) is not None:
        yield fact("tp", count, degree, "tensor_parallel.autotp_size")
    length = tree.table.get("sequence_parallel_size")
    if length is not None and (count := count_of(length)) is not None:
        yield fact("cp", count, length, "sequence_parallel_size")
        yield fact("cp_kind", "ulysses", length, "sequence_parallel_size")


def _zero(tree: Node) -> Iterator[Fact]:
    stage = at(tree, "zero_optimization", "stage")
    count = count_of(stage)
    if stage is None or count is None:
        return
    yield fact("zero", count, stage, "zero_optimization.stage")
    if count == 3:
        yield fact("reshard", True, stage, "zero_optimization.stage")
    for key, name in OFFLOADS.items():
        device = at(tree, "zero_optimization", key, "device")
        if device is not None and device.scalar in ("none", "cpu", "nvme"):
            yield fact(name, str(device.scalar), device, f"zero_optimization.{key}.device")
