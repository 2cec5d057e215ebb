"""The ways of tokens to the experts they chose and back. Knows ranks and stacked experts; knows no plan.

Experts of a rank run on what has arrived even where nothing has: all their weights then have a gradient, if
only zero, and no rank misses a message of backward.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.nn import functional

from escala.parallel.layouts import Stream

Run = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(tokens, chosen, weights) -> weighted sums over the experts that each token chose, (tokens, hidden)."""


class Experts:
    """The experts that a rank has of a stack, all or some."""

    def __init__(self, module: Any) -> None:
        self.module = module

    @property
    def count(self) -> int:
        """How many they are."""
        return len(self.module.gate_up_proj)

    def run(self, tokens: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Each expert on its own tokens, which stand one expert after the other."""
        groups = tokens.split(counts.tolist())
        return torch.cat([self._one(expert, group) for expert, group in enumerate(groups)])

    def _one(self, expert: int, tokens: torch.Tensor) -> torch.Tensor:
        module = self.module
        activate = getattr(module, "activate", None) or module._apply_gate
        wide = functional.linear(tokens, module.gate_up_proj[expert])
        return functional.linear(activate(wide), module.down_proj[expert])


def divided(run: Run, stream: Stream) -> Run:
    """Experts of which each rank has some of the width: all tokens go in, the sum over ranks comes out."""

    def call(tokens: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        everywhere = stream.whole(chosen) if stream.splits_tokens else chosen
        return stream.summed(run(stream.whole(tokens), everywhere, stream.whole(weights)))

    return call


def by_all_gather(experts: Experts, mesh: DeviceMesh) -> Run:
    """Every rank gets all tokens, works for those that chose its experts; sums go back to their owners."""
    stream, place = Stream(mesh=mesh, splits_tokens=True), mesh.get_local_rank()

    def call(tokens: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        here = stream.whole(chosen) - place * experts.count
        return stream.summed(on_own(experts, stream.whole(tokens), here, stream.whole(weights)))

    return call


def on_own(
    experts: Experts, tokens: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Weighted sums over a rank's own experts alone, numbered from 0; other choices add nothing."""
    count = experts.count
    flat = torch.where((chosen >= 0) & (chosen < count), chosen, count).flatten()
    counts = flat.bincount(minlength=count + 1)[:count]
    order = flat.argsort(stable=True)[: int(counts.sum())]
    token = order // chosen.shape[-1]
    made = experts.run(tokens[token], counts) * weights.flatten()[order, None]
    return torch.zeros_like(tokens).index_add(0, token, made.to(tokens.dtype))


def by_all_to_all(experts: Experts, mesh: DeviceMesh) -> Run:
    """Each token is sent to the ranks of the experts it chose; what they make is weighted when it is back."""
    group, ranks = mesh.get_group(), mesh.size()

    def call(tokens: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        flat = chosen.flatten()
        order = flat.argsort(stable=True)
        leaving = flat.bincount(minlength=ranks * experts.count).view(ranks, -1)
        arriving = torch.empty_like(leaving)
        dist.all_to_all_single(arriving, leaving, group=group)
        out, back = leaving.sum(1).tolist(), arriving.sum(1).tolist()
        arrived = Exchange.apply(tokens[order // chosen.shape[-1]], out, back, group)
        made = _by_expert(experts, arrived, arriving)
        returned = Exchange.apply(made, back, out, group)[order.argsort()]
        shares = returned.view(*chosen.shape, -1) * weights[..., None]
        return shares.sum(1).to(tokens.dtype)

    return call


def _by_expert(experts: Experts, arrived: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Run what stands by rank and then expert, and keep that order; counts are (ranks, experts)."""
    numbers = torch.arange(experts.count, device=counts.device).repeat(len(counts))
    order = numbers.repeat_interleave(counts.flatten()).argsort(stable=True)
    return experts.run(arrived[order], counts.sum(0))[order.argsort()]


class Exchange(torch.autograd.Function):
    """Rows sent to ranks in order, so many to each; gradients go the way back."""

    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, sent: list[int], received: list[int], group: dist.ProcessGroup
    ) -> torch.Tensor:
        """Rows that arrive, by rank."""
        ctx.sent, ctx.received, ctx.group = sent, received, group
        return _exchanged(rows, sent, received, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        """Gradients of the rows that were sent."""
        return _exchanged(gradient, ctx.received, ctx.sent, ctx.group), None, None, None


def _exchanged(
    rows: torch.Tensor, sent: list[int], received: list[int], group: dist.ProcessGroup
) -> torch.Tensor:
    rows = rows.contiguous()  # else the order of rows is that of memory, and nobody says so
    found = rows.new_empty((sum(received), *rows.shape[1:]))
    dist.all_to_all_single(found, rows, received, sent, group=group)
    return found
