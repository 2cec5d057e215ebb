"""Whether the batch of a DeepSpeed file goes with the ranks of its job."""

from collections.abc import Iterator

from escala.foreign.facts import count_of
from escala.foreign.findings import Finding, finding, replaced
from escala.foreign.jobs import Job
from escala.foreign.places import Node, at


def findings(job: Job, tree: Node, is_filled: bool) -> Iterator[Finding]:
    """train_batch_size = micro-batch * accumulation * data parallel ranks."""
    batch, micro, steps = (
        count_of(tree.table.get(name))
        for name in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    )
    ranks = data_ranks(job)
    given = [each for each in (batch, micro, steps) if each is not None]
    if any(each <= 0 for each in given):
        return
    node = tree.table.get("train_batch_size")
    if batch is None or node is None:
        if not is_filled and not {"train_batch_size", "train_micro_batch_size_per_gpu"} & tree.table.keys():
            yield finding("deepspeed-batch-missing", tree)
        return
    if micro is not None and steps is not None:
        yield from _product(node, batch, micro, steps, ranks)
    elif ranks is not None and batch % (ranks * (micro or 1) * (steps or 1)):
        parts = ranks * (micro or 1) * (steps or 1)
        yield finding("deepspeed-batch-divides", node, batch=batch, parts=parts, ranks=ranks)
    stage = count_of(at(tree, "zero_optimization", "stage"))
    if stage == 3 and is_filled:
        yield finding("deepspeed-batch-zero-3", node, batch=batch)


def data_ranks(job: Job) -> int | None:
    """Data parallel ranks = devices / (tp * sequence parallel * pp); None where that is open or not whole."""
    devices = job.sure("devices")
    inside = (job.count("tp") or 1) * (job.count("cp") or 1) * (job.count("pp") or 1)
    if devices is None or devices < 1 or inside < 1 or devices % inside:
        return None
    return devices // inside


def _product(node: Node, batch: int, micro: int, steps: int, ranks: int | None) -> Iterator[Finding]:
    if ranks is None:
        wanted = batch / (micro * steps)
        fitting = (
            f"only with {int(wanted)} data parallel ranks"
            if wanted.is_integer() and wanted >= 1
            else "with no number of ranks"
        )
        yield finding("deepspeed-batch-fixed", node, batch=batch, micro=micro, steps=steps, fitting=fitting)
    elif batch != micro * steps * ranks:
        product = micro * steps * ranks
        yield finding(
            "deepspeed-batch-product",
            node,
            edits=(replaced(node, str(product)),),
            batch=batch,
            micro=micro,
            steps=steps,
            ranks=ranks,
            product=product,
        )
