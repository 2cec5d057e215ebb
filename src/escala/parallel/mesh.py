"""The process groups of a plan: one ordered mesh of ranks. Knows ranks; knows nothing of modules.

Axes, outermost first: pp (stages), replicate and shard (together the data-parallel ranks), cp, tp. Where the
axes lie on the machine is the plan's placement; the mesh keeps this order whatever the placement is.
"""

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Final

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from escala.errors import InvalidInput
from escala.model.plan import Plan

PIPELINE, REPLICATE, SHARD, CONTEXT, TENSOR = "pp", "replicate", "shard", "cp", "tp"
ORDER: Final = (PIPELINE, REPLICATE, SHARD, CONTEXT, TENSOR)
DATA: Final = (REPLICATE, SHARD)
"""Ranks that learn from other samples."""
LOSS: Final = (REPLICATE, SHARD, CONTEXT)
"""Ranks that learn from other tokens."""


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """A plan's ranks as a mesh, and this process's place in it."""

    plan: Plan
    device: torch.device
    ranks: DeviceMesh
    experts: DeviceMesh | None

    def axis(self, *names: str) -> DeviceMesh:
        """The ranks that differ from this one along the named axes only, in one dimension."""
        if names not in self._axes:  # cutting a mesh takes longer than many a message
            part = self.ranks[names]
            self._axes[names] = part if len(names) == 1 else part._flatten("_".join(names))
        return self._axes[names]

    def group(self, *names: str) -> dist.ProcessGroup:
        """The process group of the ranks along the named axes."""
        return self.axis(*names).get_group()

    def size(self, *names: str) -> int:
        """Ranks along the named axes together."""
        return prod(self.ranks.size(ORDER.index(name)) for name in names)

    def place(self, *names: str) -> int:
        """This rank's number along the named axes, counted like digits."""
        own, result = self.ranks.get_coordinate(), 0
        assert own is not None
        for name in names:
            result = result * self.size(name) + own[ORDER.index(name)]
        return result

    @property
    def together(self) -> tuple[str, ...]:
        """Axes of ranks that learn from other tokens in every step: not of replicas with local steps."""
        return LOSS[1:] if self.plan.local_steps > 1 else LOSS

    @property
    def team(self) -> tuple[str, ...]:
        """Axes of all ranks that make a step together."""
        return (PIPELINE, *self.together, TENSOR)

    @cached_property
    def _axes(self) -> dict[tuple[str, ...], DeviceMesh]:
        """What `axis` has cut so far."""
        return {}

    @cached_property
    def sharding(self) -> DeviceMesh:
        """Where states are sharded: shard and cp as one axis, with the replicas before it in HSDP."""
        sharded = self.axis(SHARD, CONTEXT)
        if self.size(REPLICATE) == 1 or REPLICATE not in self.together:
            return sharded
        return DeviceMesh._concatenate([self.ranks[REPLICATE], sharded])


def mesh_of(plan: Plan, device: torch.device) -> Mesh:
    """The mesh of a plan over all ranks of the default process group."""
    world = dist.get_world_size()
    if world != plan.devices:
        raise InvalidInput(f"the plan is made for {plan.devices} ranks and {world} run; start as many")
    replicate, shard = shard_degrees(plan)
    order = _ranks(plan)
    shape = (plan.pp, replicate, shard, plan.cp, plan.tp)
    ranks = DeviceMesh(device.type, order.reshape(shape), mesh_dim_names=ORDER)
    return Mesh(plan=plan, device=device, ranks=ranks, experts=_experts(plan, order, device))


def shard_degrees(plan: Plan) -> tuple[int, int]:
    """Replicas x shards that the data-parallel ranks are: all replicas without ZeRO."""
    if plan.zero == 0:
        return plan.dp, 1
    shard = max(plan.shard // plan.cp, 1)
    return plan.dp // shard, shard


def _ranks(plan: Plan) -> torch.Tensor:
    """Ranks by (pp, dp, cp, tp), wherever the placement puts each axis."""
    outer = plan.placement.split("-")[::-1]
    placed = torch.arange(plan.devices).reshape([getattr(plan, name) for name in outer])
    return placed.permute([outer.index(name) for name in ("pp", "dp", "cp", "tp")])


def _experts(plan: Plan, order: torch.Tensor, device: torch.device) -> DeviceMesh | None:
    """(pp, copies of experts, ep, etp): expert ranks are neighbours among dp x cp (x tp when etp is 1)."""
    if plan.ep * plan.etp == 1:
        return None
    copies = plan.dp * plan.cp * plan.tp // (plan.ep * plan.etp)
    shape = (plan.pp, copies, plan.ep, plan.etp)
    return DeviceMesh(device.type, order.reshape(shape), mesh_dim_names=("pp", "copies", "ep", "etp"))
