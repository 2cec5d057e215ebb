"""Seconds of one collective on plain numbers: payload, ranks, wire speed, latency. Knows no plan.

Payload conventions: all-gather and reduce-scatter count the whole tensor (all ranks' parts together),
all-reduce the tensor that every rank holds, all-to-all what one rank sends to all.
"""

import numpy as np

from escala.model.columns import F64


def gather_wire_bytes(payload_bytes: F64, ranks: F64) -> F64:
    """What each rank sends in an all-gather or reduce-scatter: (ranks - 1) / ranks * payload.

    Source: Thakur, Rabenseifner, Gropp 2005, section 4 (ring).
    """
    return (ranks - 1) / ranks * payload_bytes


def gather_s(payload_bytes: F64, ranks: F64, wire_bytes_per_s: F64, latency_s: F64) -> F64:
    """All-gather or reduce-scatter: latency + (ranks - 1) / ranks * payload / wire speed.

    Shapes: all (n,). Source: Thakur, Rabenseifner, Gropp 2005, section 4 (ring).
    """
    wire_bytes = gather_wire_bytes(payload_bytes, ranks)
    return np.where(ranks > 1, latency_s + wire_bytes / wire_bytes_per_s, 0.0)


def all_reduce_s(payload_bytes: F64, ranks: F64, wire_bytes_per_s: F64, latency_s: F64) -> F64:
    """All-reduce: 2 * latency + 2 * (ranks - 1) / ranks * payload / wire speed.

    Shapes: all (n,). Source: Thakur, Rabenseifner, Gropp 2005, section 4 (reduce-scatter then all-gather).
    """
    wire_bytes = 2 * gather_wire_bytes(payload_bytes, ranks)
    return np.where(ranks > 1, 2 * latency_s + wire_bytes / wire_bytes_per_s, 0.0)


def all_to_all_s(
    payload_bytes: F64, ranks: F64, inside: F64, fast_bytes_per_s: F64, slow_bytes_per_s: F64, latency_s: F64
) -> F64:
    """All-to-all: latency + the slower of what stays in the fast domain and what leaves it.

    `inside` ranks of the group share the fast domain; the rest is reached at the slow speed. Both parts go at
    the same time over different wires. Shapes: all (n,).
    Source: pairwise exchange, Thakur, Rabenseifner, Gropp 2005, section 5.
    """
    fast_s = (inside - 1) / ranks * payload_bytes / fast_bytes_per_s
    slow_s = (ranks - inside) / ranks * payload_bytes / slow_bytes_per_s
    return np.where(ranks > 1, latency_s + np.maximum(fast_s, slow_s), 0.0)


def fused_exchange_s(
    fast_copy_s: F64, slow_copy_s: F64, choices: int, ranks: F64, inside: F64, latency_s: F64
) -> F64:
    """All-to-all of a fused dispatcher: a token goes once to each rank, and once to each domain of ranks.

    `..._copy_s` is the time to send one copy of the tokens of a rank. Of n places a token with k choices
    reaches n (1 - (1 - 1/n)^k) when experts are chosen at random. Slow: copies to the other domains; fast:
    from where they arrive to the ranks of the domain. Both at the same time. Shapes: (n,).
    Source: DeepSeek-AI 2024 (DeepSeek-V3), section 3.2.2: over InfiniBand once a node, then over NVLink.
    """
    domains = ranks / inside
    to_ranks = domains * (inside - 1) * (1 - (1 - 1 / ranks) ** choices)
    to_domains = (domains - 1) * (1 - (1 - 1 / domains) ** choices)
    return np.where(ranks > 1, latency_s + np.maximum(to_ranks * fast_copy_s, to_domains * slow_copy_s), 0.0)


def send_s(payload_bytes: F64, wire_bytes_per_s: F64, latency_s: F64) -> F64:
    """Point to point: latency + payload / wire speed. Source: Hockney 1994."""
    return latency_s + payload_bytes / wire_bytes_per_s
