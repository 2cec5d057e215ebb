"""The same plan on another number of devices: data parallelism follows, all else stays. Prices nothing."""

from dataclasses import dataclass, replace
from math import gcd

from escala.errors import InvalidInput
from escala.model.plan import Plan
from escala.model.problem import Problem
from escala.planning.why import resized


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The job on so many devices: the problem on a part of the cluster, and the plan."""

    problem: Problem
    plan: Plan

    @property
    def devices(self) -> int:
        """Devices of the plan."""
        return self.plan.devices


def case_of(problem: Problem, plan: Plan, devices: int, *, is_weak: bool) -> Case:
    """The same plan with another data-parallel degree: the global batch kept, or the samples of a device."""
    copy = plan.tp * plan.pp * plan.cp
    if devices % copy:
        raise InvalidInput(
            f"{devices} devices do not hold copies of tp x pp x cp = {copy}; give multiples of it"
        )
    made = _shared(replace(plan, dp=devices // copy), plan)
    if not is_weak:
        made = _batched(made, plan.dp * plan.micro_batch * plan.micro_batches)
    batch = made.dp * made.micro_batch * made.micro_batches
    work = replace(problem.workload, global_batch=batch)
    return Case(problem=replace(problem, workload=work, cluster=resized(problem.cluster, devices)), plan=made)


def _shared(made: Plan, plan: Plan) -> Plan:
    """States over all ranks as before, or in groups of the same size; nothing to share on one rank."""
    ranks = made.dp * made.cp
    if ranks % plan.ep:
        raise InvalidInput(f"ep = {plan.ep} does not divide dp x cp = {ranks} of {made.devices} devices")
    if plan.zero == 0 or ranks == 1:
        return replace(made, zero=0, shard=1, reshard=False)
    shard = ranks if plan.shard == plan.dp * plan.cp else min(plan.shard, ranks)
    if ranks % shard:
        raise InvalidInput(f"groups of {shard} do not divide dp x cp = {ranks} of {made.devices} devices")
    return replace(made, shard=shard)


def _batched(made: Plan, global_batch: int) -> Plan:
    """The same global batch: other micro-batches in number, smaller ones where it has to be."""
    if global_batch % made.dp:
        raise InvalidInput(
            f"{made.dp} replicas on {made.devices} devices do not divide the global batch {global_batch}; "
            "give other numbers of devices, or --weak"
        )
    samples = global_batch // made.dp
    micro_batch = gcd(made.micro_batch, samples)
    return replace(made, micro_batch=micro_batch, micro_batches=samples // micro_batch)
