"""escala's own plan.json as facts of a job, as it lies beside the files of every target. Judges no plan."""

from collections.abc import Iterator
from typing import Final

from escala.foreign.documents import Document, Syntax
from escala.foreign.facts import Fact, Value, count_of, fact
from escala.foreign.findings import Finding
from escala.foreign.jobs import Job
from escala.foreign.places import Node, at
from escala.foreign.readings import Reading, Role, VersionIs

NAME: Final = "escala"
TITLE: Final = "escala's plan"
SCHEMA: Final = "escala/plan-file@1"
ALWAYS: Final = (
    *("dp", "zero", "tp", "pp", "cp", "ep", "micro_batch", "recompute", "precision", "fused_loss"),
    *("offload_optimizer", "offload_params", "offload_activations"),
)
"""Fields of a plan that are facts of the same name."""
ABOVE_ONE: Final = {
    "sp": "tp",
    "schedule": "pp",
    "virtual_stages": "pp",
    "cp_kind": "cp",
    "etp": "ep",
    "dispatcher": "ep",
}
"""Fields that mean something only where an axis is longer than one."""
DEGREES: Final = ("dp", "tp", "pp", "cp")


def score(document: Document) -> int:
    """Certain by its schema."""
    schema = at(document.tree, "schema") if document.syntax is Syntax.JSON else None
    return 100 if schema is not None and schema.scalar == SCHEMA else 0


def read(document: Document, version: str | None) -> Reading:
    """What the plan says; a field of a kind that no plan has is no fact."""
    tree = document.tree
    assert tree is not None
    own, engine = at(tree, "escala"), at(tree, "engine")
    return Reading(
        tool=NAME,
        title=TITLE,
        version=version or str(own.scalar if own else "unknown"),
        version_is=VersionIs.GIVEN if version else VersionIs.DETECTED,
        role=Role.CONFIG,
        document=document,
        facts=tuple(_facts(tree)),
        engine=str(engine.scalar) if engine is not None else None,
    )


def rules(job: Job, reading: Reading) -> Iterator[Finding]:
    """None of its own: `escala explain` says what is wrong with a plan."""
    yield from ()


def _facts(tree: Node) -> Iterator[Fact]:
    plan = at(tree, "plan")
    yield from (each for name in ALWAYS for each in _said(name, at(plan, name), f"plan.{name}"))
    yield from (
        each
        for name, axis in ABOVE_ONE.items()
        if _count(plan, axis) > 1
        for each in _said(name, at(plan, name), f"plan.{name}")
    )
    yield from _states(plan)
    yield from _pieces(plan)
    work = at(tree, "workload")
    for name in ("sequence_tokens", "global_batch", "method"):
        yield from _said(name, at(work, name), f"workload.{name}")
    yield from _said("lora_rank", at(work, "lora", "rank"), "workload.lora.rank")
    yield from _said("model", at(work, "network", "catalog"), "workload.network.catalog")
    groups = at(tree, "cluster", "groups")
    if groups is not None and groups.items:
        yield from _said(
            "device", at(groups.items[0], "accelerator", "name"), "cluster.groups.accelerator.name"
        )
        yield from _said(
            "devices_per_node", at(groups.items[0], "devices_per_node"), "cluster.groups.devices_per_node"
        )


def _said(name: str, node: Node | None, key: str) -> Iterator[Fact]:
    value = node.scalar if node is not None else None
    if node is not None and value is not None:
        yield fact(name, value, node, key)


def _states(plan: Node | None) -> Iterator[Fact]:
    """How states are sharded: resharding goes with stage 3, groups only where they are smaller than all."""
    shard, replicas = _count(plan, "shard"), _count(plan, "dp") * _count(plan, "cp")
    node = at(plan, "shard")
    if _count(plan, "zero") == 3:
        yield from _said("reshard", at(plan, "reshard"), "plan.reshard")
    if node is not None and 1 < shard < replicas:
        yield fact("shard", shard, node, "plan.shard")
        yield fact("replicas", replicas // shard, node, "plan.shard")


def _pieces(plan: Node | None) -> Iterator[Fact]:
    """What follows from several fields: devices, accumulation, recomputed layers, whether it compiles."""
    node, devices = at(plan, "dp"), 1
    for axis in DEGREES:
        devices *= _count(plan, axis)
    if node is not None:
        yield fact("devices", devices, node, "plan.dp x tp x pp x cp")
    if _count(plan, "pp") == 1:
        yield from _said("accumulation", at(plan, "micro_batches"), "plan.micro_batches")
    layers, mode = at(plan, "recompute_layers"), at(plan, "compile")
    if layers is not None and _count(plan, "recompute_layers") > 0:
        yield from _said("recompute_layers", layers, "plan.recompute_layers")
    if mode is not None:
        is_on: Value = mode.scalar != "off"
        yield fact("compile", is_on, mode, "plan.compile")


def _count(plan: Node | None, name: str) -> int:
    """A number of the plan; 0 where there is none."""
    return count_of(at(plan, name)) or 0
