"""When AutoModel's YAML is wrong, alone or beside its job. The words are in data/rules/automodel.toml."""

from collections.abc import Iterator
from math import prod
from typing import Final

from escala.foreign.facts import count_of
from escala.foreign.findings import Finding, finding, replaced
from escala.foreign.jobs import Job
from escala.foreign.places import Node, at

MISSING: Final = {
    "ddp": ("tp_size", "pp_size", "cp_size", "ep_size"),
    "megatron_fsdp": ("pp_size", "ep_size"),
}
"""Sizes above 1 that a strategy refuses."""
MANAGER: Final = "FSDP2Manager"


def strategy_of(tree: Node) -> str:
    """Name of the strategy; fsdp2 where none is said."""
    node = at(tree, "distributed", "strategy")
    name = str(node.scalar).lower() if node is not None and node.scalar is not None else "fsdp2"
    return "megatron_fsdp" if name in ("mfsdp", "megatron-fsdp") else name


def rules_of(job: Job, tree: Node) -> Iterator[Finding]:
    """All findings of this file."""
    block = tree.table.get("distributed")
    if block is not None:
        yield from _strategy(tree, block)
        yield from _pipeline(tree, block)
        yield from _ranks(job, tree, block)
    ignored = at(tree, "model", "backend", "enable_deepep")
    if ignored is not None:
        yield finding("automodel-deepep-ignored", ignored)


def _size(block: Node, key: str) -> int:
    return count_of(at(block, key)) or 1


def _strategy(tree: Node, block: Node) -> Iterator[Finding]:
    name = strategy_of(tree)
    for key in MISSING.get(name, ()):
        if _size(block, key) > 1:
            size = _size(block, key)
            yield finding("automodel-strategy", block.table[key], strategy=name, key=key, size=size)
    if name != "fsdp2" and _size(block, "dp_replicate_size") > 1:
        node, size = block.table["dp_replicate_size"], _size(block, "dp_replicate_size")
        yield finding("automodel-strategy", node, strategy=name, key="dp_replicate_size", size=size)
    target = at(block, "_target_")
    is_other = target is not None and not str(target.scalar).endswith(MANAGER)
    if target is not None and is_other and "strategy" not in block.table:
        yield finding("automodel-manager", target, target=str(target.scalar).rpartition(".")[2])
    recompute = at(block, "activation_checkpointing")
    if name == "megatron_fsdp" and recompute is not None and recompute.scalar == "selective":
        yield finding("automodel-selective", recompute)


def _pipeline(tree: Node, block: Node) -> Iterator[Finding]:
    stages, pipeline = _size(block, "pp_size"), at(block, "pipeline")
    if stages > 1 and pipeline is None:
        yield finding("automodel-pipeline-missing", block.table["pp_size"], stages=stages)
    elif stages == 1 and pipeline is not None:
        yield finding("automodel-pipeline-idle", pipeline)
    elif stages > 1 and pipeline is not None:
        local = count_of(at(tree, "step_scheduler", "local_batch_size"))
        part = at(pipeline, "pp_microbatch_size")
        size = count_of(part) or 1
        if local and local % size:
            yield finding("automodel-pipeline-batch", part or pipeline, local=local, size=size)


def _ranks(job: Job, tree: Node, block: Node) -> Iterator[Finding]:
    """Data parallel ranks are what devices leave; batch, replicas and experts divide them."""
    devices = job.sure("devices")
    inner = prod(_size(block, key) for key in ("tp_size", "pp_size", "cp_size"))
    if devices is None or devices < 1:
        return
    if devices % inner:
        key = next((key for key in ("tp_size", "pp_size", "cp_size") if key in block.table), "")
        yield finding("automodel-world", block.table.get(key, block), devices=devices, product=inner)
        return
    ranks, replicas = devices // inner, _size(block, "dp_replicate_size")
    if replicas > 1 and (ranks % replicas or replicas >= ranks):
        node = block.table["dp_replicate_size"]
        yield finding("automodel-replicas", node, replicas=replicas, ranks=ranks)
    experts, others = _size(block, "ep_size"), ranks * _size(block, "tp_size") * _size(block, "cp_size")
    if others % experts:
        yield finding("automodel-experts", block.table["ep_size"], experts=experts, ranks=others)
    yield from _batch(tree, ranks)


def _batch(tree: Node, ranks: int) -> Iterator[Finding]:
    batch, local = (
        count_of(at(tree, "step_scheduler", key)) for key in ("global_batch_size", "local_batch_size")
    )
    node = at(tree, "step_scheduler", "global_batch_size")
    if node is not None and batch and local and batch % (local * ranks):
        near = -(-batch // (local * ranks)) * local * ranks
        edits = (replaced(node, str(near)),)
        yield finding("automodel-batch", node, edits=edits, batch=batch, local=local, ranks=ranks, near=near)
