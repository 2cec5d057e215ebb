"""When a manifest is wrong, alone or beside its job. The words are in data/rules/kubernetes.toml."""

from collections.abc import Iterator
from typing import Final

from escala.foreign.facts import count_of, is_open
from escala.foreign.findings import Edit, Finding, finding, replaced
from escala.foreign.jobs import Job
from escala.foreign.keys import KeyCheck, table
from escala.foreign.kubernetes.manifests import Pods, kind_of, pods_of, processes_node
from escala.foreign.places import Node, at
from escala.foreign.readings import Reading, Role

QUEUE: Final = "kueue.x-k8s.io/queue-name"
RESTARTS: Final = ("Always", "OnFailure", "Never", "ExitCode")


def rules_of(job: Job, reading: Reading) -> Iterator[Finding]:
    """All findings of this manifest."""
    tree, kind = reading.document.tree, kind_of(reading.document)
    if not kind or tree is None:
        return
    yield from KeyCheck(table=table("kubernetes"), tool="Kubeflow").findings(tree, kind)
    yield from _queue(tree)
    if kind == "PyTorchJob":
        yield from _pytorchjob(tree)
    if kind == "JobSet":
        yield from _jobset(tree)
    for pods in pods_of(kind, tree):
        yield from _pods(job, kind, tree, pods)
    if kind != "Job":  # pods of a plain job may each train on their own
        yield from _nodes(job, reading)


def _queue(tree: Node) -> Iterator[Finding]:
    """Kueue starts a job that it finds suspended."""
    label = at(tree, "metadata", "labels", QUEUE)
    suspended = at(tree, "spec", "suspend") or at(tree, "spec", "runPolicy", "suspend")
    if suspended is not None and suspended.scalar is True and label is None:
        yield finding("kubernetes-suspended", suspended, edits=(replaced(suspended, "false"),))
    annotated = at(tree, "metadata", "annotations", QUEUE)
    if annotated is not None and label is None:
        yield finding("kueue-annotation", annotated)


def _pytorchjob(tree: Node) -> Iterator[Finding]:
    roles = at(tree, "spec", "pytorchReplicaSpecs")
    master, worker = at(roles, "Master"), at(roles, "Worker")
    elastic = at(tree, "spec", "elasticPolicy")
    if master is not None and (count_of(master.table.get("replicas")) or 1) != 1:
        yield finding(
            "pytorchjob-one-master",
            master.table["replicas"],
            edits=(replaced(master.table["replicas"], "1"),),
        )
    if elastic is not None and master is not None:
        yield finding("pytorchjob-elastic-master", elastic)
    if elastic is not None and worker is not None:
        yield from _elastic(elastic, worker)
    for role in (roles.table if roles is not None else {}).values():
        policy = role.table.get("restartPolicy")
        if policy is not None and str(policy.scalar) not in RESTARTS and not is_open(policy.scalar):
            yield finding("pytorchjob-restart-policy", policy, given=policy.scalar)


def _elastic(elastic: Node, worker: Node) -> Iterator[Finding]:
    """Workers between the least and the most that torchrun is told."""
    least, most = (count_of(elastic.table.get(name)) for name in ("minReplicas", "maxReplicas"))
    count = count_of(worker.table.get("replicas"))
    if count is not None and ((least or 0) > count or (most is not None and most < count)):
        yield finding(
            "pytorchjob-elastic-range",
            worker.table["replicas"],
            count=count,
            least="any" if least is None else least,
            most="any" if most is None else most,
        )


def _jobset(tree: Node) -> Iterator[Finding]:
    for job in (at(tree, "spec", "replicatedJobs") or tree).items:
        spec = at(job, "template", "spec")
        parallel, complete = (count_of(at(spec, name)) for name in ("parallelism", "completions"))
        if parallel is not None and parallel > 1 and complete is not None and complete < parallel:
            node = at(spec, "completions")
            assert node is not None
            yield finding(
                "jobset-completions",
                node,
                edits=(replaced(node, str(parallel)),),
                given=complete,
                pods=parallel,
            )
        policy = at(spec, "template", "spec", "restartPolicy")
        if policy is not None and policy.scalar == "Always":
            yield finding("kubernetes-restart-always", policy, edits=(replaced(policy, "Never"),))


def _pods(job: Job, kind: str, tree: Node, pods: Pods) -> Iterator[Finding]:
    gpus, (processes, place, said) = pods.gpus, _processes(job, kind, tree)
    granted = count_of(gpus)
    if gpus is not None and granted is not None and processes is not None and granted != processes:
        yield finding(
            "kubernetes-too-few-gpus" if granted < processes else "kubernetes-idle-gpus",
            place or gpus,
            edits=_of(gpus, str(processes)) if granted < processes else (),
            granted=granted,
            processes=processes,
            said=said,
        )
    if gpus is None and processes is not None and processes > 1 and _names_resources(pods):
        yield finding("kubernetes-no-gpus", pods.container, processes=processes, said=said)
    several = (processes or granted or 1) > 1
    if several and pods.spec is not None and not _has_shared_memory(pods):
        yield finding("kubernetes-small-shm", pods.container, pods=pods.name)


def _nodes(job: Job, reading: Reading) -> Iterator[Finding]:
    """Pods that the manifest starts against nodes that the launcher speaks of."""
    granted, launched = reading.fact("nodes"), job.facts.get("nodes")
    if granted is None or launched is None or launched.place == granted.place:
        return
    if launched.value != granted.value and isinstance(launched.value, int):
        yield finding(
            "kubernetes-nodes-apart",
            granted.place,
            granted=granted.value,
            launched=launched.value,
            said=launched.said,
        )


def _of(node: Node, text: str) -> tuple[Edit, ...]:
    quote = '"' if isinstance(node.scalar, str) else ""
    return (replaced(node, f"{quote}{text}{quote}"),)


def _names_resources(pods: Pods) -> bool:
    """Whether the manifest itself says what a pod gets; a runtime may say it else."""
    return any(at(pods.container, part, "limits") is not None for part in ("resources", "resourcesPerNode"))


def _processes(job: Job, kind: str, tree: Node) -> tuple[int | None, Node | None, str]:
    """Processes of a node: what the launcher of the job says, else the manifest."""
    for reading in job.readings:
        fact = reading.fact("devices_per_node")
        if reading.role is not Role.ALLOCATION and fact is not None and isinstance(fact.value, int):
            return fact.value, Node(value=None, place=fact.place), fact.said
    node = processes_node(kind, tree)
    return count_of(node), node, "the manifest"


def _has_shared_memory(pods: Pods) -> bool:
    """Whether a volume in memory is mounted at /dev/shm, or the host's memory is shared."""
    spec = pods.spec
    shares = at(spec, "hostIPC")
    if spec is None or (shares is not None and shares.scalar is True):
        return True
    mounts = pods.container.table.get("volumeMounts")
    names = [
        str(mount.table["name"].scalar)
        for mount in (mounts.items if mounts is not None else [])
        if "name" in mount.table and "mountPath" in mount.table
        if str(mount.table["mountPath"].scalar).rstrip("/") == "/dev/shm"
    ]
    return bool(names)
