"""Attention to selected or pooled keys: how many, how wide a score is, and what their kernels keep."""

import numpy as np

from escala.model.columns import F64
from escala.model.network import Attention, AttentionKind


def core_width(part: Attention) -> int:
    """Query + value width of a score; where latent keys are selected, the low rank twice + the rotary part.

    A selection differs from query to query, so the kernel reads the latent keys as they are, one for all
    heads, and both maps of the keys move to queries and outputs.
    Source: DeepSeek-AI 2025 (DeepSeek-V3.2), section 2.1 (MQA mode) and appendix A.
    """
    if part.kind is AttentionKind.SPARSE and part.kv_rank:
        return 2 * part.kv_rank + part.rope_head_dim
    return part.head_dim + part.value_head_dim


def selected_bytes(part: Attention, query: int, out: int) -> float:
    """Bytes a token of attention to selected keys: 2 q + 2 (k + v) + 2 out + 4 heads, or in the low rank."""
    if not part.kv_rank:
        return 2.0 * (query + part.key_value_width + out) + 4.0 * part.heads
    low = part.heads * (2 * part.kv_rank + part.rope_head_dim)
    return 2.0 * (query + low + out) + 4.0 * part.heads


def pooled_keys(part: Attention, length: F64 | float) -> F64 | float:
    """Pooled keys of a sequence: length // pooled tokens, none without pooling."""
    return np.floor_divide(length, part.pooled_tokens) if part.pooled_tokens else 0.0


def seen_pooled_keys(part: Attention, length: F64 | float) -> F64 | float:
    """Pooled keys that the last query sees: all of them, or at most the selected ones."""
    found = pooled_keys(part, length)
    return np.minimum(found, part.top_tokens) if part.top_tokens and part.pooled_tokens else found


def mean_pooled_keys(part: Attention, length: F64 | float) -> F64 | float:
    """Pooled keys that a query sees on average: the mean of min(t // m, k) over t = 1 to length.

    With j = min(length // m, k): (m j (j - 1) / 2 + j (length - m j + 1)) / length. A key is seen once its
    last token is there. Source: counting.
    """
    return _mean_keys(part.pooled_tokens, seen_pooled_keys(part, length), length)


def _mean_keys(pool: int, most: F64 | float, length: F64 | float) -> F64 | float:
    return (pool * most * (most - 1.0) / 2.0 + most * (length - pool * most + 1.0)) / length


def indexed_keys(part: Attention, length: F64 | float) -> tuple[F64 | float, F64 | float]:
    """Keys that an indexer scores for a query, on average and at most: all before it, pooled or not."""
    if part.pooled_tokens:
        every = pooled_keys(part, length)
        return _mean_keys(part.pooled_tokens, every, length), every
    return (length + 1) / 2 if part.is_causal else length, length


def pool_outputs(part: Attention, dim: int) -> int:
    """Numbers that the maps of a pool make of a token: values and gates of each series."""
    return 2 * part.series * dim if part.pooled_tokens else 0


def pool_parameters(part: Attention, hidden: int, dim: int) -> int:
    """Both maps of a pool, a bias for each position in it, and a norm: whole on every tensor rank.

    Source: DeepSeek-AI 2026 (DeepSeek-V4), section 2.3; modules of transformers 5.24.
    """
    if not part.pooled_tokens:
        return 0
    return hidden * pool_outputs(part, dim) + part.pooled_tokens * part.series * dim + dim


def pool_bytes(part: Attention) -> float:
    """Bytes a token that pooling keeps: 8 for each value (its copy, its weight in fp32 and in 16 bit).

    And the pooled key with its norm in fp32, 8 + 2 bytes for each `pooled_tokens`.
    Source: DeepseekV4CSACompressor of transformers 5.24, traced.
    """
    if not part.pooled_tokens:
        return 0.0
    return 8.0 * part.series * part.head_dim + 10.0 * part.head_dim / part.pooled_tokens


def pooled_numbers(part: Attention) -> float:
    """Numbers a token that stay in a cache of pooled keys: (keys + keys of the indexer) / pooled tokens."""
    if not part.pooled_tokens:
        return 0.0
    return (part.key_value_width + (part.index_dim if part.index_heads else 0)) / part.pooled_tokens
