"""Context parallelism: the tokens of a sequence dealt to ranks, which exchange keys and values in attention.

Everything else in a language model works token by token. Documents are told whole to every rank; positions
say which tokens it has.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right

from escala.errors import InvalidInput
from escala.model.plan import ContextKind, Plan
from escala.parallel.batch import Batch
from escala.parallel.dispatch import Exchange
from escala.parallel.huggingface import attentions
from escala.parallel.layouts import Stream
from escala.parallel.mesh import CONTEXT, Mesh
from escala.parallel.nets.attention import Core, Tokens, local_attention, masked_attention, visible
from escala.parallel.parts import Parts, blocks_of
from escala.parallel.ring import Look, Ring, ring_attention

CHANGING_ROTARY: Final = ("dynamic", "longrope")
"""Rotary embeddings whose angles follow the greatest position a rank sees."""


def split_context(chunk: nn.Module, parts: Parts, mesh: Mesh) -> None:
    """Let every attention of a chunk work with the tokens of all context ranks; nothing at degree 1."""
    if mesh.plan.cp == 1:
        return
    core = CORES[mesh.plan.cp_kind](mesh.axis(CONTEXT))
    if mesh.plan.compile:
        core = torch.compiler.disable(core)  # messages of a ring are no part of a graph
    for block in blocks_of(chunk, parts):
        found = attentions(block)
        assert found, f"{type(block).__name__} has no attention"
        for each in found:
            each.core = core


def local_part(batch: Batch, mesh: Mesh) -> Batch:
    """The tokens of a rank's samples that this context rank learns from: all at degree 1."""
    plan = mesh.plan
    if plan.cp == 1:
        return batch
    rows, tokens = batch.inputs.shape
    own = token_table(tokens, plan.cp, plan.cp_kind)[mesh.place(CONTEXT)].to(batch.inputs.device)
    places = own.expand(rows, -1) if batch.positions is None else batch.positions[:, own]
    return replace(batch, inputs=batch.inputs[:, own], targets=batch.targets[:, own], positions=places)


@lru_cache(maxsize=8)
def token_table(tokens: int, ranks: int, kind: ContextKind) -> torch.Tensor:
    """The tokens of every rank in order, (ranks, tokens of a rank).

    Neighbours for Ulysses; else the r-th chunk from the beginning and the r-th from the end, so that causal
    attention is as much work on all ranks.
    """
    chunks = ranks if kind is ContextKind.ULYSSES else 2 * ranks
    if tokens % chunks:
        raise InvalidInput(
            f"{tokens} tokens cannot be dealt to {ranks} context ranks in {chunks} chunks of one size; "
            f"choose a sequence length that {chunks} divides"
        )
    places = torch.arange(tokens).view(chunks, -1)
    return places if chunks == ranks else torch.cat([places[:ranks], places.flip(0)[:ranks]], dim=1)


def by_all_gather(mesh: DeviceMesh) -> Core:
    """Every rank gathers all keys and values; a chunk of queries attends to those up to its end."""
    stream, ranks, place = Stream(mesh=mesh, splits_tokens=True), mesh.size(), mesh.get_local_rank()

    def core(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        documents: torch.Tensor | None = None,
        **look: Any,
    ) -> torch.Tensor:
        tokens, width = query.shape[2] * ranks, key.shape[-1]
        back = token_table(tokens, ranks, ContextKind.ALL_GATHER).flatten().argsort().to(key.device)
        both = stream.whole(torch.cat([key, value], -1))[:, :, back]  # one message, in the order of the row
        mixed = [
            _up_to_end(part, both[..., :width], both[..., width:], chunk, documents, **look)
            for part, chunk in zip(query.chunk(2, 2), (place, 2 * ranks - 1 - place), strict=True)
        ]
        return torch.cat(mixed, 2)

    return core


def _up_to_end(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    chunk: int,
    documents: torch.Tensor | None,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """Attention of a chunk of queries to all keys of the row that are not after it."""
    count = query.shape[2]
    first, end = chunk * count, (chunk + 1) * count
    key, value = key[:, :, :end], value[:, :, :end]
    if documents is None and window is None and softcap is None:
        return functional.scaled_dot_product_attention(
            query, key, value, causal_lower_right(count, end), scale=scale, enable_gqa=True
        )
    mask = visible(_span(first, end, documents, key), _span(0, end, documents, key), window)
    return masked_attention(query, key, value, scale=scale, softcap=softcap, mask=mask)


def _span(first: int, end: int, documents: torch.Tensor | None, like: torch.Tensor) -> Tokens:
    own = None if documents is None else documents[:, first:end]
    return Tokens(place=torch.arange(first, end, device=like.device), documents=own)


def by_ulysses(mesh: DeviceMesh) -> Core:
    """Ranks exchange tokens for heads: each attends with some heads to the whole row, and back."""
    ranks = mesh.size()

    def core(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **look: Any) -> torch.Tensor:
        shared = [_for_each_rank(each, ranks) for each in (key, value)]
        wide = [_tokens_for_heads(each, mesh) for each in (query, *shared)]
        return _heads_for_tokens(local_attention(*wide, **look), mesh)

    return core


def _for_each_rank(key: torch.Tensor, ranks: int) -> torch.Tensor:
    """Keys repeated where there are fewer heads of them than ranks, so that each rank has one."""
    return key.repeat_interleave(max(ranks // key.shape[1], 1), dim=1)


def _tokens_for_heads(own: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    """(n, heads, tokens of a rank, dim) to (n, heads of a rank, tokens, dim)."""
    leaving = own.unflatten(1, (mesh.size(), -1)).movedim(1, 0)  # (ranks, n, heads, tokens, dim)
    return _exchanged(leaving, mesh).movedim(0, 2).flatten(2, 3)


def _heads_for_tokens(own: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    """(n, heads of a rank, tokens, dim) to (n, heads, tokens of a rank, dim)."""
    leaving = own.unflatten(2, (mesh.size(), -1)).movedim(2, 0)
    return _exchanged(leaving, mesh).movedim(0, 1).flatten(1, 2)


def _exchanged(leaving: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    """The r-th part goes to rank r; parts that arrive stand in the order of ranks."""
    one_each = [1] * mesh.size()
    arrived: torch.Tensor = Exchange.apply(leaving, one_each, one_each, mesh.get_group())
    return arrived


def by_ring(mesh: DeviceMesh) -> Core:
    """Keys and values go round."""
    group, place, ranks = mesh.get_group(), mesh.get_local_rank(), mesh.size()

    def core(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **look: Any) -> torch.Tensor:
        table = token_table(query.shape[2] * ranks, ranks, ContextKind.RING).to(query.device)
        return ring_attention(query, key, value, Look(**look), Ring(group=group, place=place, table=table))

    return core


CORES: Final[Mapping[ContextKind, Callable[[DeviceMesh], Core]]] = {
    ContextKind.ALL_GATHER: by_all_gather,
    ContextKind.ULYSSES: by_ulysses,
    ContextKind.RING: by_ring,
}


def context_reasons(module: Any, parts: Parts, plan: Plan) -> Iterator[str]:
    """Why context ranks cannot share the sequences of a module; none at degree 1."""
    if plan.cp == 1:
        return
    name = type(module).__name__
    if not parts.takes_documents:
        yield f"{name} is no language model whose tokens could be dealt out; set cp to 1"
        return
    config = getattr(module, "config", None)
    changing = [kind for kind in rotary_kinds(config) if kind in CHANGING_ROTARY]
    if changing:
        yield f"rotary embeddings of kind {changing[0]} change with the tokens a rank sees; set cp to 1"
    if plan.cp_kind is ContextKind.ULYSSES:
        yield from _head_reasons(module, plan)


def rotary_kinds(config: Any) -> list[str]:
    """Kinds of rotary embeddings that a configuration names, by kind of layer where they differ."""
    told = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    tables = [told, *(each for each in told.values() if isinstance(each, dict))]
    return [str(each["rope_type"]) for each in tables if "rope_type" in each]


def _head_reasons(module: nn.Module, plan: Plan) -> Iterator[str]:
    for wide, narrow in sorted({heads_of(each) for each in attentions(module)}):
        own, shared = wide // plan.tp, max(narrow // plan.tp, 1)
        if own % plan.cp or (shared % plan.cp and plan.cp % shared):
            yield (
                f"{own} heads, {shared} of keys, of a tensor rank cannot be dealt to cp={plan.cp} ranks by "
                "ulysses; choose ring or all_gather"
            )


def heads_of(attention: Any) -> tuple[int, int]:
    """Heads of queries and of keys."""
    config = getattr(attention, "config", None)
    if config is None:
        wide, narrow = attention.q_proj.out_features, attention.k_proj.out_features
        return wide // attention.head_dim, narrow // attention.head_dim
    heads = int(config.num_attention_heads)
    return heads, int(getattr(config, "num_key_value_heads", None) or heads)
