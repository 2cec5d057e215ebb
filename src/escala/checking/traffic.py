"""What goes over which link in a step, and whether more nodes pay: bytes, seconds, the job on one node."""

from dataclasses import dataclass, replace
from typing import Final

from escala.checking.judging import Judged, judged
from escala.model.estimate import work_of
from escala.model.plan import Plans
from escala.planning.why import resized

KINDS: Final = {
    "tensor_bytes": ("tensor parallel", "tensor_parallel_s"),
    "context_bytes": ("context parallel", "context_parallel_s"),
    "expert_bytes": ("expert parallel", "expert_parallel_s"),
    "transfer_bytes": ("between stages", "transfer_s"),
    "sharding_bytes": ("sharded weights and gradients", "sharding_s"),
    "gradient_bytes": ("gradients of replicas", "gradient_sync_s"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One kind of traffic: bytes that a device sends in a step, and the outermost link that they cross.

    `exposed_s` is what is left of their time beside computation.
    """

    kind: str
    title: str
    link: str
    sent_bytes: float
    exposed_s: float
    is_between_nodes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OneNode:
    """The same job on one node of the cluster: its step, its rate, and how much of it more nodes keep."""

    devices: int
    step_s: float
    tokens_per_s: float
    speedup: float
    ideal: float


def flows(given: Judged) -> tuple[Flow, ...]:
    """Traffic by kind, the largest first."""
    problem = given.problem
    done = work_of(problem, Plans.of(given.plan))
    found = []
    for name, (title, term) in KINDS.items():
        sent = float(getattr(done.sent, name)[0])
        if sent > 0:
            link = problem.cluster.links[int(done.levels[name][0])]
            flow = Flow(
                kind=name.removesuffix("_bytes"),
                title=title,
                link=link.name,
                sent_bytes=sent,
                exposed_s=float(getattr(given.estimate.time, term)[0]),
                is_between_nodes=link.domain_devices > problem.cluster.devices_per_node,
            )
            found.append(flow)
    return tuple(sorted(found, key=lambda flow: -flow.sent_bytes))


def on_one_node(given: Judged) -> OneNode | None:
    """The plan with fewer replicas on one node; None where it has one, or the model needs more."""
    problem, plan = given.problem, given.plan
    per_node, inner = problem.cluster.devices_per_node, plan.tp * plan.pp * plan.cp
    if problem.cluster.nodes < 2 or per_node % inner:
        return None
    dp = per_node // inner
    whole = plan.shard == plan.dp * plan.cp
    shard = dp * plan.cp if whole else min(plan.shard, dp * plan.cp)
    fewer = replace(plan, dp=dp, shard=shard if plan.zero else 1)
    work = replace(problem.workload, global_batch=dp * plan.micro_batch * plan.micro_batches)
    node = replace(problem, cluster=resized(problem.cluster, per_node), workload=work)
    alone = judged(node, fewer, given.second_copy)
    rate, own = given.device_tokens_per_s * plan.devices, alone.device_tokens_per_s * per_node
    return OneNode(
        devices=per_node,
        step_s=alone.step_s,
        tokens_per_s=own,
        speedup=rate / own,
        ideal=plan.devices / per_node,
    )
