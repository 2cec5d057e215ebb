"""When a cluster or a strategy of TensorFlow is wrong. The words are in data/rules/tensorflow.toml."""

from collections import Counter
from collections.abc import Iterator
from typing import Final, cast

from escala.foreign.findings import Finding, finding
from escala.foreign.jobs import Job
from escala.foreign.places import at
from escala.foreign.readings import Reading
from escala.foreign.script.code import Code
from escala.foreign.tensorflow.clusters import Cluster

STRATEGIES: Final = ("MirroredStrategy", "MultiWorkerMirroredStrategy")
OLD: Final = "distribute.experimental.MultiWorkerMirroredStrategy"


def rules_of(job: Job, reading: Reading) -> Iterator[Finding]:
    """All findings of this document."""
    clusters = cast(tuple[Cluster, ...], reading.extra["clusters"])
    for cluster in clusters:
        yield from _shape(cluster)
        yield from _addresses(cluster)
    yield from _differing(job, reading, clusters)
    code = cast(Code | None, reading.extra["code"])
    if code is not None:
        yield from _strategies(job, code)


def _shape(cluster: Cluster) -> Iterator[Finding]:
    """Tables, lists and the task that is one of them."""
    kinds = at(cluster.tree, "cluster")
    if kinds is None or not kinds.table or any(not node.items for node in kinds.table.values()):
        yield finding("tf-config-shape", cluster.place, what="cluster has to name lists of addresses")
        return
    if cluster.kind is None or at(cluster.tree, "task", "index") is None:
        yield finding("tf-config-shape", cluster.place, what="task has to have type and index")
        return
    addresses = cluster.tasks.get(cluster.kind)
    if addresses is None and cluster.kind != "evaluator":
        known = ", ".join(cluster.tasks)
        yield finding("tf-config-task", cluster.place, given=cluster.kind, known=known)
    elif addresses is not None and not cluster.is_open:
        index = cluster.index
        if index is None or not 0 <= index < len(addresses):
            said = index if index is not None else "no whole number"
            yield finding(
                "tf-config-index", cluster.place, given=said, kind=cluster.kind, most=len(addresses) - 1
            )


def _addresses(cluster: Cluster) -> Iterator[Finding]:
    every = [address for addresses in cluster.tasks.values() for address in addresses]
    if cluster.is_open:
        return
    for address, times in Counter(every).items():
        if times > 1:
            yield finding("tf-config-twice", cluster.place, address=address)
        if not address.rpartition(":")[2].isdigit():
            yield finding("tf-config-port", cluster.place, address=address)
    chiefs = len(cluster.tasks.get("chief", []))
    if chiefs > 1:
        yield finding("tf-config-chiefs", cluster.place, count=chiefs)


def _differing(job: Job, reading: Reading, clusters: tuple[Cluster, ...]) -> Iterator[Finding]:
    """Hosts that are told different clusters; each is compared with the first of the job."""
    every = [
        (each, cluster)
        for each in job.readings
        if each.tool == reading.tool
        for cluster in cast(tuple[Cluster, ...], each.extra["clusters"])
    ]
    for cluster in clusters:
        first = every[0][1]
        if cluster.tasks != first.tasks and not (cluster.is_open or first.is_open):
            where = f"{first.place.file}:{first.place.line}"
            yield finding("tf-config-differs", cluster.place, where=where)


def _strategies(job: Job, code: Code) -> Iterator[Finding]:
    for call in code.called(*STRATEGIES):
        name = code.dotted(call.func)
        nodes = job.count("nodes") or 1
        if name.endswith(".MirroredStrategy") and nodes > 1:
            yield finding("tf-mirrored-nodes", code.place(call), nodes=nodes)
        if name.endswith(OLD):
            place = code.place(call.func)
            new = code.document.text[place.start : place.end].replace("experimental.", "")
            edit = code.edit(place.start, place.end, new)
            yield finding("tf-strategy-experimental", place, edits=(edit,))
        if "scope" not in code.attributes and code.called("compile", "Sequential", "fit"):
            yield finding("tf-scope-unused", code.place(call))
    for call in code.calls:
        if ".mixed_precision.experimental." in code.dotted(call.func):
            yield finding("tf-policy-experimental", code.place(call))
    yield from _batches(code)


def _batches(code: Code) -> Iterator[Finding]:
    """A batch with a fixed size under a strategy is that of all replicas."""
    if not code.called(*STRATEGIES) or "num_replicas_in_sync" in code.attributes:
        return
    for call in code.called("batch"):
        size = code.count(call.args[0]) if call.args else None
        if size is not None:
            yield finding("tf-batch-of-all", code.place(call), batch=size)
            return
