"""When a DeepSpeed file is wrong, alone or beside its job. The words are in data/rules/deepspeed.toml."""

from collections.abc import Iterator

from escala.foreign.facts import count_of
from escala.foreign.findings import Edit, Finding, finding, replaced
from escala.foreign.jobs import Job
from escala.foreign.places import Node, at
from escala.foreign.readings import Reading


def rules_of(job: Job, reading: Reading) -> Iterator[Finding]:
    """All findings of this file."""
    tree = reading.document.tree
    assert tree is not None
    yield from _batch(job, tree)
    yield from _offload(tree)


def _batch(job: Job, tree: Node) -> Iterator[Finding]:
    """train_batch_size = micro-batch * accumulation * data parallel ranks."""
    batch, micro = (
        count_of(tree.table.get("train_batch_size")),
        count_of(tree.table.get("train_micro_batch_size_per_gpu")),
    )
    steps = count_of(tree.table.get("gradient_accumulation_steps"))
    if batch is None or micro is None or steps is None:
        return
    devices, node = job.count("devices"), tree.table["train_batch_size"]
    if devices is None:
        ranks = batch / (micro * steps)
        fitting = (
            f"only with {int(ranks)} data parallel ranks"
            if ranks.is_integer() and ranks >= 1
            else "with no number of ranks"
        )
        yield finding("deepspeed-batch-fixed", node, batch=batch, micro=micro, steps=steps, fitting=fitting)
    elif batch != micro * steps * devices:
        edit = replaced(node, str(micro * steps * devices))
        yield finding(
            "deepspeed-batch-product",
            node,
            edits=(edit,),
            batch=batch,
            micro=micro,
            steps=steps,
            ranks=devices,
            product=micro * steps * devices,
        )


def _offload(tree: Node) -> Iterator[Finding]:
    stage, params = (
        count_of(at(tree, "zero_optimization", "stage")),
        at(tree, "zero_optimization", "offload_param"),
    )
    device = at(params, "device")
    if stage is not None and stage < 3 and params is not None and (device is None or device.scalar != "none"):
        yield finding("deepspeed-offload-param-stage", params, stage=stage, edits=_stage_three(tree))


def _stage_three(tree: Node) -> tuple[Edit, ...]:
    node = at(tree, "zero_optimization", "stage")
    return (replaced(node, "3"),) if node is not None else ()
