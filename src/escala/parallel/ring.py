"""Attention of a sequence whose tokens lie on a ring of ranks: keys and values go round, queries stay.

Each rank holds the r-th chunk of tokens from the beginning and the r-th from the end, so that all have as
much to do under a causal mask. Softmaxes over what has passed are merged exactly; in backward keys and values
go round once more and carry their gradients home.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from escala.parallel.attended import Sight, attended, attended_backward, merged
from escala.parallel.nets.attention import Tokens, visible


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """Ranks in their order and this rank's place; `table` has the tokens of each rank, (ranks, tokens)."""

    group: dist.ProcessGroup
    place: int
    table: torch.Tensor

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return len(self.table)

    def pass_on(self, tensor: torch.Tensor) -> tuple[torch.Tensor, list[dist.Work]]:
        """Send a tensor to the next rank; what arrives from the one before once messages are waited for."""
        arriving = torch.empty_like(tensor)
        ranks = dist.get_process_group_ranks(self.group)
        after, before = ranks[(self.place + 1) % self.ranks], ranks[self.place - 1]
        messages = [
            dist.P2POp(dist.isend, tensor, after, self.group),
            dist.P2POp(dist.irecv, arriving, before, self.group),
        ]
        return arriving, dist.batch_isend_irecv(messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How scores are made and what is seen of them, as attention is told."""

    scale: float
    window: int | None = None
    softcap: float | None = None
    documents: torch.Tensor | None = None

    @property
    def is_plain(self) -> bool:
        """Whether a query sees all tokens before it."""
        return self.window is None and self.documents is None


def ring_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, look: Look, ring: Ring
) -> torch.Tensor:
    """Causal attention of this rank's queries to all keys of the ring."""
    mixed: torch.Tensor = _RingAttention.apply(query, key, value, look, ring)
    return mixed


class _RingAttention(torch.autograd.Function):
    """Forward and backward of a ring; answer and logarithms are all that is kept beside the inputs."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, look: Look, ring: Ring
    ) -> torch.Tensor:
        """Mixed values of this rank's queries."""
        with torch.autocast(query.device.type, enabled=False):
            mixed, logarithms = _forward(query, torch.cat([key, value], -1), look, ring)
        ctx.save_for_backward(query, key, value, mixed, logarithms)
        ctx.look, ctx.ring = look, ring
        return mixed.to(query.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Gradients of this rank's queries, keys and values."""
        query, key, value, mixed, logarithms = ctx.saved_tensors
        with torch.autocast(query.device.type, enabled=False):
            both = torch.cat([key, value], -1)
            whole = mixed.to(query.dtype), logarithms
            found = _backward(gradient.contiguous(), query, both, whole, ctx.look, ctx.ring)
        return (*found, None, None)


def _forward(
    query: torch.Tensor, both: torch.Tensor, look: Look, ring: Ring
) -> tuple[torch.Tensor, torch.Tensor]:
    found = None
    for rank, held in _rounds(both, ring):
        queries, keys, sight = _seen(rank, look, ring)
        part = attended(query[:, :, queries], *_split(held[:, :, keys], query.shape[-1]), sight)
        if found is None:
            found = part
        elif queries == slice(None):
            found = merged(found, part)
        else:
            later = merged((found[0][:, :, queries], found[1][:, :, queries]), part)
            found[0][:, :, queries], found[1][:, :, queries] = later
    assert found is not None
    return found


def _backward(
    gradient: torch.Tensor,
    query: torch.Tensor,
    both: torch.Tensor,
    whole: tuple[torch.Tensor, torch.Tensor],
    look: Look,
    ring: Ring,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    of_query = torch.zeros_like(query, dtype=torch.float32)
    carried = torch.zeros_like(both, dtype=torch.float32)
    for rank, held in _rounds(both, ring):
        queries, keys, sight = _seen(rank, look, ring)
        own = [each[:, :, queries] for each in (gradient, query, *whole)]
        part = attended_backward(
            own[0], own[1], *_split(held[:, :, keys], query.shape[-1]), (own[2], own[3]), sight
        )
        of_query[:, :, queries] += part[0]
        carried[:, :, keys] += torch.cat(part[1:], -1)
        carried = _waited(*ring.pass_on(carried))  # after as many rounds as ranks it is home
    of_key, of_value = _split(carried, query.shape[-1])
    return of_query.to(query.dtype), of_key.to(query.dtype), of_value.to(query.dtype)


def _rounds(both: torch.Tensor, ring: Ring) -> Iterator[tuple[int, torch.Tensor]]:
    """Keys and values of every rank, this one's first: the next arrive while those at hand are worked on."""
    held = both.contiguous()
    for turn in range(ring.ranks):
        is_last = turn == ring.ranks - 1
        arriving = None if is_last else ring.pass_on(held)
        yield (ring.place - turn) % ring.ranks, held
        if arriving is not None:
            held = _waited(*arriving)


def _waited(arriving: torch.Tensor, messages: list[dist.Work]) -> torch.Tensor:
    for message in messages:
        message.wait()
    return arriving


def _split(both: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of what went round as one message."""
    return both[..., :width].contiguous(), both[..., width:].contiguous()


def _seen(rank: int, look: Look, ring: Ring) -> tuple[slice, slice, Sight]:
    """Which queries of this rank have to look at which keys of another, and how.

    Of a rank before this one in the order every query sees the first half of the keys and none the second; of
    a later one the second half of the queries sees all keys and the first none.
    """
    sight = Sight(scale=look.scale, softcap=look.softcap, is_causal=rank == ring.place and look.is_plain)
    half, everything = ring.table.shape[1] // 2, slice(None)
    queries = slice(half, None) if rank > ring.place else everything
    keys = slice(half) if rank < ring.place else everything
    if look.is_plain:
        return queries, keys, sight
    mask = visible(_tokens(ring.place, queries, look, ring), _tokens(rank, keys, look, ring), look.window)
    return queries, keys, Sight(scale=look.scale, softcap=look.softcap, mask=mask)


def _tokens(rank: int, part: slice, look: Look, ring: Ring) -> Tokens:
    place = ring.table[rank, part]
    return Tokens(place=place, documents=None if look.documents is None else look.documents[:, place])
