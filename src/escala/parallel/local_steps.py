"""Local steps between data-parallel replicas (DiLoCo): every replica trains alone, then all meet.

Replicas are the ranks along the mesh's replicate axis; within a replica nothing changes.
Source: Douillard 2023 (DiLoCo); Douillard 2025 (Streaming DiLoCo) for fragments that meet in turn.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from escala.errors import InvalidInput
from escala.model.plan import LocalWire, Plan
from escala.parallel.mesh import REPLICATE, Mesh
from escala.parallel.outer import Outer

BLOCK: Final = 1024
"""Numbers that share a scale in int8: 4 bytes more in 1,024."""
INT8_MOST: Final = 127.0


@dataclass(slots=True, kw_only=True)
class Fragment:
    """Weights that meet together: where all replicas last agreed, and the momentum of the outer optimizer."""

    weights: list[torch.Tensor]
    agreed: list[torch.Tensor] = field(default_factory=list)
    momenta: list[torch.Tensor] = field(default_factory=list)


def planned(plan: Plan, outer: Outer) -> Outer:
    """The outer optimizer with the fragments of the plan; what no replica can run yet is refused."""
    if plan.local_overlap_steps or plan.local_wire is LocalWire.FP4:
        raise InvalidInput(
            "meetings that travel while replicas train on, and differences in fp4, are planned but not run;"
            " set local_overlap_steps to 0 and local_wire to fp32, bf16 or int8"
        )
    if 1 not in (plan.local_fragments, outer.fragments) and plan.local_fragments != outer.fragments:
        raise InvalidInput(
            f"the plan has {plan.local_fragments} fragments, not {outer.fragments}; leave --fragments out"
        )
    return replace(outer, fragments=max(plan.local_fragments, outer.fragments))


class LocalSteps:
    """Lets replicas meet: call it after every inner step with the number of steps done.

    `kept` holds the outer momentum under the names of the weights, for checkpoints.
    """

    def __init__(self, chunks: Sequence[nn.Module], mesh: Mesh, outer: Outer) -> None:
        steps = mesh.plan.local_steps
        outer = planned(mesh.plan, outer)
        if not 1 <= outer.fragments <= steps:
            raise InvalidInput(
                f"{outer.fragments} fragments cannot meet in turn in {steps} local steps; choose 1 to {steps}"
            )
        self.outer, self.steps, self.wire = outer, steps, mesh.plan.local_wire
        self.settled = 0
        self.group = mesh.ranks.get_group(REPLICATE)
        named = [pair for chunk in chunks for pair in chunk.named_parameters() if pair[1].requires_grad]
        self.kept = Momenta(named)
        pairs = [(_own(each), _own(self.kept.get_buffer(_key(name)))) for name, each in named]
        self.fragments = [_fragment(part) for part in _parts(pairs, outer.fragments)]

    def __call__(self, done: int) -> int:
        """Meet where it is time: bytes that this rank gave to others, 0 in other steps."""
        return sum(self._meet(each) for place, each in enumerate(self.fragments) if self._is_due(place, done))

    def settle(self, done: int) -> int:
        """After the step: also those meet whose time has not come, so that all replicas hold the same.

        Once a step: replicas that hold the same have nothing to tell, but their momentum would go on.
        """
        if done == self.settled:
            return 0
        self.settled = done
        late = [each for place, each in enumerate(self.fragments) if not self._is_due(place, done)]
        return sum(self._meet(each) for each in late)

    def resume(self) -> None:
        """The weights that were just read are those that all agreed on."""
        for part in self.fragments:
            for agreed, weight in zip(part.agreed, part.weights, strict=True):
                agreed.copy_(weight)

    def _is_due(self, place: int, done: int) -> bool:
        """Fragments meet one after the other, evenly over the local steps; the last at their end."""
        late = (len(self.fragments) - 1 - place) * self.steps // len(self.fragments)
        return (done + late) % self.steps == 0

    def _meet(self, part: Fragment) -> int:
        with torch.no_grad():
            gone = torch.cat(
                [(a - w).flatten().float() for a, w in zip(part.agreed, part.weights, strict=True)]
            )
            sent = mean_of(gone, self.group, self.wire)
            differences = gone.split([each.numel() for each in part.weights])
            for weight, agreed, momentum, difference in zip(
                part.weights, part.agreed, part.momenta, differences, strict=True
            ):
                self._update(agreed, momentum, difference.view_as(agreed))
                weight.copy_(agreed)
        return sent

    def _update(self, agreed: torch.Tensor, momentum: torch.Tensor, difference: torch.Tensor) -> None:
        """Nesterov: v = m v + d; w = w - rate (d + m v)."""
        momentum.mul_(self.outer.momentum).add_(difference)
        step = difference + self.outer.momentum * momentum
        agreed.sub_(step.to(agreed.dtype), alpha=self.outer.learning_rate)


def mean_of(values: torch.Tensor, group: Any, wire: LocalWire) -> int:
    """The mean over the group, in place, sent in fewer bits where asked; bytes that this rank sent.

    fp32 and bf16 are all-reduced (2 (n - 1) / n of the payload), int8 with a scale for each block is
    gathered ((n - 1) times the payload), since sums of int8 do not fit int8.
    """
    ranks = dist.get_world_size(group)
    if wire is LocalWire.INT8:
        return _gathered(values, group, ranks)
    message = values if wire is LocalWire.FP32 else values.bfloat16()
    dist.all_reduce(message, group=group)
    values.copy_(message / ranks)
    return 2 * (ranks - 1) * message.numel() * message.element_size() // ranks


def _gathered(values: torch.Tensor, group: Any, ranks: int) -> int:
    padded = nn.functional.pad(values, (0, -len(values) % BLOCK)).view(-1, BLOCK)
    scales = padded.abs().amax(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / INT8_MOST
    small = (padded / scales).round().to(torch.int8)
    every = [torch.empty_like(small) for _ in range(ranks)], [torch.empty_like(scales) for _ in range(ranks)]
    dist.all_gather(every[0], small, group=group)
    dist.all_gather(every[1], scales, group=group)
    total = sum((one.float() * scale for one, scale in zip(*every, strict=True)), torch.zeros_like(padded))
    values.copy_(total.flatten()[: len(values)] / ranks)
    return (ranks - 1) * (small.numel() + scales.numel() * scales.element_size())


def _own(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of a weight or its momentum, sharing its memory."""
    data = tensor.data
    return data.to_local() if isinstance(data, DTensor) else data


class Momenta(nn.Module):
    """An outer momentum for each weight, 0 at first and laid out as the weight is."""

    def __init__(self, named: Sequence[tuple[str, nn.Parameter]]) -> None:
        super().__init__()
        for name, each in named:
            self.register_buffer(_key(name), torch.zeros_like(each.data, dtype=torch.float32))


def _key(name: str) -> str:
    """The name of a weight's momentum: buffers have no dots in their names."""
    return f"outer_momentum/{name.replace('.', '/')}"


def _fragment(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> Fragment:
    weights, momenta = [weight for weight, _ in pairs], [momentum for _, momentum in pairs]
    return Fragment(weights=weights, agreed=[each.clone() for each in weights], momenta=momenta)


def _parts(
    pairs: list[tuple[torch.Tensor, torch.Tensor]], count: int
) -> Iterator[list[tuple[torch.Tensor, torch.Tensor]]]:
    """Neighbours together, about as many numbers in each part."""
    total, gone, made = sum(weight.numel() for weight, _ in pairs), 0, 0
    part: list[tuple[torch.Tensor, torch.Tensor]] = []
    for pair in pairs:
        part.append(pair)
        gone += pair[0].numel()
        if gone * count >= total * (made + 1) and made < count - 1:
            yield part
            part, made = [], made + 1
    yield part
