"""Where a manifest of each kind says its nodes, processes, pods and commands. Knows no rule."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from escala.foreign.documents import Document
from escala.foreign.facts import count_of
from escala.foreign.places import Node, at

GROUPS: Final = {
    "TrainJob": "trainer.kubeflow.org",
    "PyTorchJob": "kubeflow.org",
    "JobSet": "jobset.x-k8s.io",
    "Job": "batch",
}
GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu", "google.com/tpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """Equal pods of a job: how many, what runs in each, what each is granted; `spec` is that of the pod."""

    name: str
    count: int | None
    counted: Node | None
    container: Node
    spec: Node | None

    @property
    def words(self) -> list[Node]:
        """The command with its arguments."""
        return [*_items(self.container, "command"), *_items(self.container, "args")]

    @property
    def gpus(self) -> Node | None:
        """The devices of each pod."""
        for part in ("limits", "requests"):
            for resources in ("resources", "resourcesPerNode"):
                table = at(self.container, resources, part)
                for name in GPUS:
                    if table is not None and name in table.table:
                        return table.table[name]
        return None


def kind_of(document: Document) -> str | None:
    """The kind of a manifest that trains; "" for another kind of Kubernetes; None for what is no manifest."""
    if document.tree is None:
        return None
    version, kind = (document.tree.table.get(name) for name in ("apiVersion", "kind"))
    if version is None or kind is None or not isinstance(version.scalar, str):
        return None
    named = str(kind.scalar)
    return named if version.scalar.partition("/")[0] == GROUPS.get(named) else ""


def pods_of(kind: str, tree: Node) -> list[Pods]:
    """The pods of a job; of several containers the one that has devices, else the first."""
    return [each for each in _PODS[kind](tree) if each is not None]


def processes_node(kind: str, tree: Node) -> Node | None:
    """The processes of each node, where the manifest says them."""
    return at(tree, *{"TrainJob": ("spec", "trainer", "numProcPerNode")}.get(kind, ("spec", "nprocPerNode")))


def nodes_of(kind: str, tree: Node) -> tuple[int, Node] | None:
    """The number of nodes and where it is said."""
    if kind == "TrainJob":
        node = at(tree, "spec", "trainer", "numNodes")
        count = count_of(node)
        return (count, node) if count is not None and node is not None else None
    said = [(each.count, each.counted) for each in pods_of(kind, tree) if _runs_devices(each, tree, kind)]
    places = [node for _, node in said if node is not None]
    if not said or not places or any(count is None for count, _ in said):
        return None
    return sum(count or 0 for count, _ in said), places[-1]


def _runs_devices(pods: Pods, tree: Node, kind: str) -> bool:
    """Whether pods take part in training: where some pods have devices, those without do not."""
    return pods.gpus is not None or all(each.gpus is None for each in pods_of(kind, tree))


def _items(node: Node, name: str) -> list[Node]:
    each = node.table.get(name)
    return each.items if each is not None else []


def _trainjob(tree: Node) -> Iterator[Pods | None]:
    trainer = at(tree, "spec", "trainer")
    if trainer is not None:
        counted = trainer.table.get("numNodes")
        yield Pods(name="trainer", count=count_of(counted), counted=counted, container=trainer, spec=None)


def _pytorchjob(tree: Node) -> Iterator[Pods | None]:
    roles = at(tree, "spec", "pytorchReplicaSpecs")
    for name, role in (roles.table if roles is not None else {}).items():
        yield _of(name, role.table.get("replicas"), at(role, "template", "spec"), 1)


def _jobset(tree: Node) -> Iterator[Pods | None]:
    for job in _items(tree.table.get("spec", tree), "replicatedJobs"):
        inner = at(job, "template", "spec")
        counted = at(inner, "parallelism")
        replicas, each = count_of(job.table.get("replicas")), count_of(counted)
        times = 1 if "replicas" not in job.table else replicas
        name = str(job.table["name"].scalar) if "name" in job.table else ""
        pods = _of(name, counted, at(inner, "template", "spec"), 1)
        if pods is not None and times not in (None, 1) and each is not None:
            counted = job.table["replicas"]
            pods = Pods(
                name=name,
                count=each * (times or 1),
                counted=counted,
                container=pods.container,
                spec=pods.spec,
            )
        elif pods is not None and counted is None and "replicas" in job.table:
            pods = _of(name, job.table["replicas"], at(inner, "template", "spec"), 1)
        yield pods


def _job(tree: Node) -> Iterator[Pods | None]:
    yield _of("job", at(tree, "spec", "parallelism"), at(tree, "spec", "template", "spec"), 1)


def _of(name: str, counted: Node | None, spec: Node | None, default: int) -> Pods | None:
    containers = _items(spec, "containers") if spec is not None else []
    if not containers:
        return None
    several = [
        Pods(
            name=name,
            count=count_of(counted) if counted is not None else default,
            counted=counted,
            container=each,
            spec=spec,
        )
        for each in containers
    ]
    return next((each for each in several if each.gpus is not None), several[0])


_PODS: Final = {"TrainJob": _trainjob, "PyTorchJob": _pytorchjob, "JobSet": _jobset, "Job": _job}
