"""Attention of some queries to some keys, and what is needed to add that of other keys. Knows no ranks.

Beside the mixed values comes the logarithm of the sum of exponentials of each query's scores: two parts of
one softmax are merged by it, and backward of each part needs no other. PyTorch's kernel for CPU gives both;
elsewhere, and where a cap bends scores, they are written out for some heads at a time.
"""

from dataclasses import dataclass
from typing import Final

import torch

from escala.parallel.nets.attention import scores_of

CPU_KERNEL: Final = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
CPU_BACKWARD: Final = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
SCORES: Final = 2**26
"""Most scores that are written out at a time, 256 MiB of fp32: heads are worked on group by group."""
Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """How queries see keys: all, those before them (causal, as many queries as keys), or as a mask tells."""

    scale: float
    softcap: float | None = None
    is_causal: bool = False
    mask: torch.Tensor | None = None

    def full_mask(self, queries: int, keys: int, device: torch.device) -> torch.Tensor | None:
        """The mask that says the same; none where all is seen."""
        if not self.is_causal:
            return self.mask
        return torch.ones(queries, keys, dtype=torch.bool, device=device).tril()


def attended(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, sight: Sight
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(scores) v and log(sum(exp(scores))) in fp32; 0 and minus infinity where no key is seen.

    Shapes: query (n, heads, queries, dim), key and value (n, key-value heads, keys, dim); the logarithms
    (n, heads, queries).
    """
    key, value = spread(query, key), spread(query, value)
    if sight.softcap is None and query.device.type == "cpu":
        return _by_cpu_kernel(query, key, value, sight)
    groups = _groups(query, key)
    parts = [_written_out(query[:, each], key[:, each], value[:, each], sight) for each in groups]
    return torch.cat([each[0] for each in parts], 1), torch.cat([each[1] for each in parts], 1)


def attended_backward(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    whole: tuple[torch.Tensor, torch.Tensor],
    sight: Sight,
) -> Gradients:
    """Gradients of queries, keys and values of one part, from answer and logarithms of the whole softmax."""
    heads = key.shape[1]
    wide = spread(query, key), spread(query, value)
    given = (gradient, query, *wide, *whole)
    if sight.softcap is None and query.device.type == "cpu":
        bias = _bias(sight, query)
        found = CPU_BACKWARD(*given, 0.0, sight.is_causal, attn_mask=bias, scale=sight.scale)
    else:
        groups = _groups(query, wide[0])
        parts = [_written_out_backward([each[:, some] for each in given], sight) for some in groups]
        found = tuple(torch.cat(each, 1) for each in zip(*parts, strict=True))
    return found[0], gathered(found[1], heads), gathered(found[2], heads)


def merged(
    one: tuple[torch.Tensor, torch.Tensor], other: tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two parts of one softmax as one; each query sees a key in the first."""
    total = torch.logaddexp(one[1], other[1])
    shares = ((each[1] - total).exp()[..., None] for each in (one, other))
    return sum(share * each[0] for share, each in zip(shares, (one, other), strict=True)), total


def spread(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Keys for every head of the queries, where groups of heads share them."""
    return key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)


def gathered(gradient: torch.Tensor, heads: int) -> torch.Tensor:
    """Gradients of shared keys, added up over their heads."""
    return gradient.unflatten(1, (heads, -1)).sum(2)


def _by_cpu_kernel(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, sight: Sight
) -> tuple[torch.Tensor, torch.Tensor]:
    bias = _bias(sight, query)
    mixed, logarithms = CPU_KERNEL(query, key, value, 0.0, sight.is_causal, attn_mask=bias, scale=sight.scale)
    if sight.mask is not None:  # the kernel says 0 where no key is seen
        logarithms = logarithms.masked_fill(~sight.mask.any(-1), -torch.inf)
    return mixed.float(), logarithms


def _bias(sight: Sight, query: torch.Tensor) -> torch.Tensor | None:
    """A mask as the CPU's kernel takes it: added to scores."""
    if sight.mask is None:
        return None
    return torch.zeros_like(sight.mask, dtype=query.dtype).masked_fill(~sight.mask, -torch.inf)


def _groups(query: torch.Tensor, key: torch.Tensor) -> list[slice]:
    """Heads whose scores are written out at a time, at least one."""
    count = max(SCORES // (len(query) * query.shape[2] * key.shape[2]), 1)
    return [slice(first, first + count) for first in range(0, query.shape[1], count)]


def _written_out(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, sight: Sight
) -> tuple[torch.Tensor, torch.Tensor]:
    scores = _scores(query, key, sight)
    logarithms = scores.logsumexp(-1)
    return (_shares(scores, logarithms).to(value.dtype) @ value).float(), logarithms


def _written_out_backward(given: list[torch.Tensor], sight: Sight) -> Gradients:
    gradient, query, key, value, mixed, logarithms = given
    scores = _scores(query, key, sight)
    shares = _shares(scores, logarithms)
    spent = (gradient.float() * mixed.float()).sum(-1, keepdim=True)
    bent = shares * ((gradient @ value.transpose(-1, -2)).float() - spent)
    if sight.softcap is not None:
        bent = bent * (1 - (scores.nan_to_num(neginf=0.0) / sight.softcap).square())
    slope = (bent * sight.scale).to(query.dtype)
    return (
        slope @ key,
        slope.transpose(-1, -2) @ query,
        shares.to(gradient.dtype).transpose(-1, -2) @ gradient,
    )


def _scores(query: torch.Tensor, key: torch.Tensor, sight: Sight) -> torch.Tensor:
    scores = scores_of(query, key, sight.scale, sight.softcap)
    mask = sight.full_mask(query.shape[2], key.shape[2], query.device)
    return scores if mask is None else scores.masked_fill(~mask, -torch.inf)


def _shares(scores: torch.Tensor, logarithms: torch.Tensor) -> torch.Tensor:
    """Shares of keys in a softmax; none of a query that sees no key."""
    return (scores - logarithms.nan_to_num(neginf=0.0)[..., None]).exp()
