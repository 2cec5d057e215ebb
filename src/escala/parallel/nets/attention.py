"""What attention computes once queries, keys and values are made: one rank's own, masked by documents."""

from collections.abc import Callable

import torch
from torch.nn import functional

Core = Callable[..., torch.Tensor]
"""(query, key, value, *, scale, window, documents, positions) -> mixed values; see `local_attention`."""


def local_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    scale: float,
    window: int | None = None,
    documents: torch.Tensor | None = None,
) -> torch.Tensor:
    """Causal attention of a whole sequence on one rank: softmax(q k / sqrt(d), past of the document) v.

    Shapes: query (n, heads, tokens, dim), key and value (n, key-value heads, tokens, dim), documents
    (n, tokens). `window` limits how many tokens back a query sees.
    """
    mask = None if documents is None and window is None else visible(query.shape[2], documents, window, query)
    grouped = query.shape[1] != key.shape[1]
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=grouped
    )


def visible(
    tokens: int, documents: torch.Tensor | None, window: int | None, like: torch.Tensor
) -> torch.Tensor:
    """Which keys each query sees: (1 or n, 1, tokens, tokens) of bool."""
    place = torch.arange(tokens, device=like.device)
    back = place[:, None] - place
    seen = (back >= 0)[None]
    if window is not None:
        seen = seen & (back < window)
    if documents is not None:
        seen = seen & (documents[:, :, None] == documents[:, None])
    return seen[:, None]
