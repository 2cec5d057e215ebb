"""When a DeepSpeed file is wrong, alone or beside its job. The words are in data/rules/deepspeed.toml."""

from collections.abc import Iterator
from typing import Final

from escala.foreign.deepspeed import batches, blocks, texts
from escala.foreign.deepspeed.launching import lines
from escala.foreign.documents import Syntax
from escala.foreign.facts import count_of, is_open
from escala.foreign.findings import Finding, finding
from escala.foreign.jobs import Job
from escala.foreign.keys import KeyCheck, table
from escala.foreign.places import Node, at, every
from escala.foreign.readings import Reading

FILLERS: Final = ("transformers", "trl", "accelerate", "axolotl", "llamafactory", "torchtune", "lightning")
"""Tools that fill in "auto" before DeepSpeed reads the file."""
FILLED_BY: Final = "--per_device_train_batch_size"
NEEDED: Final = frozenset(
    ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
)
"""Keys with which DeepSpeed counts at once; in blocks it drops "auto" and takes its default."""


def rules_of(job: Job, reading: Reading) -> Iterator[Finding]:
    """All findings of this file or of its launch lines."""
    tree = reading.document.tree
    if tree is None or reading.document.syntax is not Syntax.JSON:
        yield from _launches(reading)
        return
    real, found = texts.numbers(tree, table("deepspeed"))
    yield from found
    yield from KeyCheck(table=table("deepspeed"), tool=reading.title).findings(real)
    is_filled = fills(job)
    yield from batches.findings(job, real, is_filled)
    yield from blocks.findings(job, reading, real)
    if not is_filled:
        yield from _autos(job, tree)


def _launches(reading: Reading) -> Iterator[Finding]:
    """Launches on several nodes that nothing names."""
    for line in lines(reading.document):
        nodes = line.options.get("num_nodes")
        if nodes is not None and (count_of(nodes) or 1) > 1 and not {"hostfile", "H"} & line.options.keys():
            yield finding("deepspeed-nodes-without-hosts", nodes, nodes=count_of(nodes))


def fills(job: Job) -> bool:
    """Whether a tool of the job fills in "auto"."""
    micro = job.facts.get("micro_batch")
    return job.reads(*FILLERS) or (micro is not None and micro.said == FILLED_BY)


def _autos(job: Job, tree: Node) -> Iterator[Finding]:
    """The first "auto" of each kind: where DeepSpeed counts with it, and where it takes its default."""
    open_keys = [(name, tree.table[name]) for name in sorted(NEEDED & tree.table.keys())]
    for name in ("optimizer", "scheduler"):
        params = at(tree, name, "params")
        open_keys += [(f"{name}.params", node) for _, node in every(params)] if params is not None else []
    rule = "deepspeed-auto" if _initializes(job) else "deepspeed-auto-alone"
    yield from _first_auto(rule, open_keys)
    blocks = [(name, block) for name, block in tree.table.items() if name not in ("optimizer", "scheduler")]
    for name, block in blocks:
        yield from _first_auto("deepspeed-auto-default", [(f"{name}.{k}", n) for k, n in block.table.items()])


def _first_auto(rule: str, keys: list[tuple[str, Node]]) -> Iterator[Finding]:
    """The first of some values that is left open; one is enough to tell."""
    for name, node in keys:
        if is_open(node.scalar):
            yield finding(rule, node, key=name)
            return


def _initializes(job: Job) -> bool:
    """Whether code of the job hands the file to DeepSpeed itself."""
    documents = (*(each.document for each in job.readings), *job.unread)
    return any(each.code is not None and "deepspeed.initialize(" in each.text for each in documents)
