"""Samples of unequal length: tokens of a row, keys of a query, how uneven replicas are. Knows no kernel.

A row is one sequence of a micro-batch. Lengths are equally likely, drawn independently, cut at the sequence.
Times take the mean row (`timed_shape`); memory is that of a row as long as the sequence.
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

from escala.model.columns import F64, I64
from escala.model.matmuls import Shape, stack_shape
from escala.model.network import Stack
from escala.model.plan import ContextKind, Plans
from escala.model.problem import Problem
from escala.model.workload import Batching, Workload

PADDING: Final = (Batching.PADDED, Batching.GROUPED)
"""Ways in which a row holds one sample; otherwise it is full."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowLengths:
    """Tokens of a row: the mean of the length, of its square, cube and fourth power. Shapes: (n,)."""

    tokens: F64
    squared_tokens: F64
    cubed_tokens: F64
    fourth_tokens: F64

    @property
    def key_tokens(self) -> F64:
        """Mean length of the row that a token is in: mean square / mean."""
        return self.squared_tokens / self.tokens


def is_full(workload: Workload) -> bool:
    """Whether every row is one sequence without padding or documents: what all other formulas assume."""
    return workload.lengths.batching in (Batching.FULL, Batching.PACKED)


def sample_tokens(workload: Workload) -> F64:
    """Lengths of samples in rising order, cut at the sequence."""
    given = np.sort(np.array(workload.lengths.quantile_tokens, np.float64))
    return np.minimum(given, workload.sequence_tokens)


def row_lengths(workload: Workload, samples: F64 | I64) -> RowLengths:
    """Powers of the longest of so many samples, to which a micro-batch is padded, or of one sample.

    The k-th of K equally likely lengths is the longest of n with probability (k / K)^n - ((k - 1) / K)^n.
    Grouped by length, all samples of a step are about as long, so that a row is its own length.
    """
    tokens = sample_tokens(workload)
    draws = samples if workload.lengths.batching is Batching.PADDED else np.ones_like(samples)
    few, group = np.unique(draws, return_inverse=True)
    ends = np.arange(len(tokens) + 1) / len(tokens)
    chance = np.diff(ends[None, :] ** few.astype(np.float64)[:, None], axis=1)
    first, second, third, fourth = ((chance @ tokens**power)[group] for power in (1, 2, 3, 4))
    return RowLengths(tokens=first, squared_tokens=second, cubed_tokens=third, fourth_tokens=fourth)


def row_tokens(problem: Problem, plans: Plans) -> F64 | float:
    """Tokens that a row holds on average, padding included: those of its longest sample, or the sequence."""
    workload = problem.workload
    if workload.lengths.batching not in PADDING:
        return float(workload.sequence_tokens)
    return row_lengths(workload, plans.micro_batch).tokens


def key_tokens(problem: Problem, plans: Plans) -> F64 | float:
    """Length that queries look back over on average: of their row, or of their document under masks."""
    workload = problem.workload
    if is_full(workload):
        return float(workload.sequence_tokens)
    return row_lengths(workload, plans.micro_batch).key_tokens


def timed_shape(problem: Problem, plans: Plans, stack: Stack) -> Shape:
    """The shape of the mean micro-batch: its tokens, and the length that its queries look back over."""
    if stack.tokens or is_full(problem.workload):
        return stack_shape(plans, stack, problem.workload.sequence_tokens)
    tokens, keys = row_tokens(problem, plans), key_tokens(problem, plans)
    return Shape.of(plans, tokens, keys, stack.streams_per_sample)


def timed_share(problem: Problem, plans: Plans, stack: Stack) -> F64 | float:
    """Tokens of a mean row / sequence."""
    return 1.0 if stack.tokens else row_tokens(problem, plans) / problem.workload.sequence_tokens


def dynamic_share(problem: Problem, plans: Plans) -> F64:
    """Exchanges of dynamic over static context parallelism: E(l (c - 1)) / (E(l) (cp - 1)), 1 where static.

    A sequence of l tokens is shared by c ranks, the least power of two (at most cp) that leaves each at most
    sequence / cp tokens. Keys and values of the others go to each of the c ranks; heads (Ulysses) go once:
    (c - 1) / c and (cp - 1) / cp in place of c - 1 and cp - 1.
    Source: counting; Megatron-Core, hybrid context parallelism (max_seqlen_per_dp_cp_rank).
    """
    if not (plans.dynamic_cp & (plans.cp > 1)).any() or is_full(problem.workload):
        return np.ones(len(plans))
    tokens, cp = sample_tokens(problem.workload), plans.cp.astype(np.float64)
    wanted = tokens[None, :] * cp[:, None] / problem.workload.sequence_tokens
    ranks = np.minimum(2.0 ** np.ceil(np.log2(np.maximum(wanted, 1.0))), cp[:, None])
    is_sent_once = plans.cp_kind == ContextKind.ULYSSES
    copies = np.where(is_sent_once[:, None], (ranks - 1) / ranks, ranks - 1)
    most = np.where(is_sent_once, (cp - 1) / cp, cp - 1)
    share = (tokens * copies).mean(axis=1) / (tokens.mean() * np.maximum(most, 1e-300))
    return np.where((plans.dynamic_cp == 1) & (cp > 1), share, 1.0)


def useful_row_tokens(workload: Workload) -> float:
    """Tokens of a row that are no padding: the mean length, or the whole sequence where samples fill it."""
    padded = workload.lengths.batching in PADDING
    return float(sample_tokens(workload).mean()) if padded else float(workload.sequence_tokens)


def useful_shares(workload: Workload) -> tuple[float, float]:
    """Useful work over that of full rows: of products (tokens) and of attention (tokens * length).

    Samples packed without masks attend to each other: all of it counts.
    """
    share = useful_row_tokens(workload) / workload.sequence_tokens
    if is_full(workload):
        return share, 1.0
    tokens = sample_tokens(workload)
    return share, share * float((tokens**2).mean() / tokens.mean()) / workload.sequence_tokens


def uneven_s(problem: Problem, plans: Plans, linear_s: F64, attention_s: F64) -> F64:
    """Waiting for the replica whose samples are longest: expected maximum over replicas - mean, of a step.

    Of one micro-batch: padded, the longest of all replicas' samples against the longest of one's; under
    masks deviation * normal score, at most a row that is one document. Sharded weights meet in each
    micro-batch; other replicas once a step, whose sums deviate sqrt(micro-batches) times as much. Grouped
    samples are alike on all replicas. Dynamic context parallelism deals sequences by their work to all
    ranks: what remains uneven is left out.
    `linear_s` and `attention_s` are those of the mean micro-batch, which grow with length and its square.
    Source: order statistics; Blom 1958 for the score of the largest of n normal values.
    """
    how = problem.workload.lengths.batching
    if how is Batching.PADDED:
        once_s, deviation_s = _padded(problem, plans, linear_s, attention_s)
    elif how is Batching.MASKED:
        once_s, deviation_s = _masked(problem, plans, attention_s)
    else:
        return np.zeros(len(plans))
    many = plans.micro_batches.astype(np.float64)
    summed_s = deviation_s * np.sqrt(many) * largest_score(plans.dp)
    waiting_s = np.where(plans.zero >= 3, many * once_s, np.minimum(many * once_s, summed_s))
    return np.where((plans.dynamic_cp == 1) & (plans.cp > 1), 0.0, waiting_s)


def _padded(problem: Problem, plans: Plans, linear_s: F64, attention_s: F64) -> tuple[F64, F64]:
    """Wait of one micro-batch and its deviation: seconds = linear * M / E(M) + attention * M^2 / E(M^2)."""
    own = row_lengths(problem.workload, plans.micro_batch)
    worst = row_lengths(problem.workload, plans.micro_batch * plans.dp)
    a, b = linear_s / own.tokens, attention_s / own.squared_tokens
    once_s = a * (worst.tokens - own.tokens) + b * (worst.squared_tokens - own.squared_tokens)
    variance = a * a * (own.squared_tokens - own.tokens**2) + b * b * (
        own.fourth_tokens - own.squared_tokens**2
    )
    variance = variance + 2 * a * b * (own.cubed_tokens - own.tokens * own.squared_tokens)
    return once_s, np.sqrt(np.maximum(variance, 0.0))


def _masked(problem: Problem, plans: Plans, attention_s: F64) -> tuple[F64, F64]:
    """Wait of one micro-batch and its standard deviation: attention grows with the squares of documents.

    Of rows that documents fill, the sum of squares varies as that of (l^2 - l E(l^2) / E(l)).
    """
    tokens, full = sample_tokens(problem.workload), problem.workload.sequence_tokens
    mean, square = tokens.mean(), (tokens**2).mean()
    documents = plans.micro_batch * full / mean
    spread = np.std(tokens**2 - tokens * square / mean) / square / np.sqrt(documents)
    deviation_s = attention_s * spread
    most_s = attention_s * (full * mean / square - 1.0)
    return np.minimum(deviation_s * largest_score(plans.dp), most_s), deviation_s


def largest_score(counts: I64) -> F64:
    """Expected largest of n standard normal values: Phi^-1((n - 0.375) / (n + 0.25)), 0 for one.

    Source: Blom 1958; within 0.02 of the exact ones.
    """
    few, group = np.unique(counts, return_inverse=True)
    scores = [NormalDist().inv_cdf((n - 0.375) / (n + 0.25)) if n > 1 else 0.0 for n in few]
    return np.array(scores, np.float64)[group]
