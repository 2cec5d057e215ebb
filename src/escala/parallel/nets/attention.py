"""What attention computes once queries, keys and values are made: one rank's own, masked by documents."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

Core = Callable[..., torch.Tensor]
"""(query, key, value, *, scale, window, softcap, documents) -> mixed values; see `local_attention`."""


def local_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    documents: torch.Tensor | None = None,
) -> torch.Tensor:
    """Causal attention of a whole sequence on one rank: softmax(q k / sqrt(d), past of the document) v.

    Shapes: query (n, heads, tokens, dim), key and value (n, key-value heads, tokens, dim), documents
    (n, tokens). `window` limits how many tokens back a query sees; `softcap` c bends scores to c tanh(s / c).
    """
    if documents is None and window is None and softcap is None:
        grouped = query.shape[1] != key.shape[1]
        return functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scale, enable_gqa=grouped
        )
    place = torch.arange(query.shape[2], device=query.device)
    tokens = Tokens(place=place, documents=documents)
    return masked_attention(
        query, key, value, scale=scale, softcap=softcap, mask=visible(tokens, tokens, window)
    )


def masked_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    scale: float,
    softcap: float | None,
    mask: torch.Tensor,
) -> torch.Tensor:
    """softmax(q k scale where the mask is true) v; every query has to see a key."""
    if softcap is not None:
        scores, spread = scores_of(query, key, scale, softcap), query.shape[1] // key.shape[1]
        shares = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1).to(value.dtype)
        return shares @ value.repeat_interleave(spread, dim=1)
    grouped = query.shape[1] != key.shape[1]
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=scale, enable_gqa=grouped
    )


def scores_of(
    query: torch.Tensor, key: torch.Tensor, scale: float, softcap: float | None = None
) -> torch.Tensor:
    """Scores q k scale in float32, bent by the cap: (n, heads, queries, keys)."""
    keys = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    scores = (query @ keys.transpose(-1, -2)).float() * scale
    return scores if softcap is None else softcap * torch.tanh(scores / softcap)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Where tokens stand in their row, (tokens,), and the document of each, (n, tokens); None: one a row."""

    place: torch.Tensor
    documents: torch.Tensor | None


def visible(queries: Tokens, keys: Tokens, window: int | None) -> torch.Tensor:
    """Which keys each query sees: (1 or n, 1, queries, keys) of bool."""
    back = queries.place[:, None] - keys.place
    seen = (back >= 0)[None]
    if window is not None:
        seen = seen & (back < window)
    if queries.documents is not None and keys.documents is not None:
        seen = seen & (queries.documents[:, :, None] == keys.documents[:, None])
    return seen[:, None]
