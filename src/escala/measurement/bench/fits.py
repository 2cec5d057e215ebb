"""A line through times of messages: alpha + beta * bytes, with an interval. Knows no clock and no network."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final

from escala.formats.bench_record import Fit, LineFit, Overlap
from escala.model.lines import line

FOLDS: Final = 5
NEAR: Final = 3.0
"""Times the best: slower samples were disturbed; algorithms themselves differ less from call to call."""
Points = Mapping[float, Sequence[float]]
"""Seconds of every repeat by payload in bytes."""


def line_fit(level: str, operation: str, ranks: int, points: Points) -> LineFit | None:
    """The line through the least time of every size; None below two sizes.

    The interval is that of lines through the minima of fifths of the samples, and of all.
    """
    if len(points) < 2:
        return None
    sizes = sorted(points)
    alpha, beta = _through(sizes, points)
    some = [_through(sizes, fold) for fold in _folds(points)]
    typical = typical_line(points)
    return LineFit(
        level=level,
        operation=operation,
        ranks=ranks,
        sizes=len(sizes),
        alpha_s=_fit(alpha, [each for each, _ in some]),
        beta_s_per_byte=_fit(beta, [each for _, each in some]),
        worst_error=max(abs((alpha + beta * size) / min(points[size]) - 1.0) for size in sizes),
        typical_alpha_s=typical[0],
        typical_beta_s_per_byte=typical[1],
    )


def typical_line(points: Points) -> tuple[float, float]:
    """Alpha: what the smallest message takes. Beta: what more the two largest take, over their bytes.

    Of means near the best, since an algorithm may run in several ways, as gloo's between two ranks does. In
    between no line is true: buffers on the way let small messages through, and algorithms change.
    """
    sizes = sorted(points)
    alpha = near_mean(points[sizes[0]])
    largest = {size: max(near_mean(points[size]) - alpha, 0.0) for size in sizes[-2:]}
    return alpha, sum(largest.values()) / sum(largest)


def near_mean(samples: Sequence[float]) -> float:
    """Mean of the samples within three times the best."""
    best = min(samples)
    return fmean(sample for sample in samples if sample <= NEAR * best)


def overlap(
    level: str, payload_bytes: float, compute_s: float, communication_s: float, both_s: float
) -> Overlap:
    """Share of the shorter one that is hidden: (compute + communication - both) / the shorter, 0 to 1."""
    hidden = (compute_s + communication_s - both_s) / min(compute_s, communication_s)
    return Overlap(
        level=level,
        payload_bytes=payload_bytes,
        compute_s=compute_s,
        communication_s=communication_s,
        both_s=both_s,
        hidden_share=min(max(hidden, 0.0), 1.0),
    )


def _through(sizes: Sequence[float], points: Points) -> tuple[float, float]:
    return line(sizes, [min(points[size]) for size in sizes])


def _folds(points: Points) -> list[Points]:
    """Every fifth sample from each of five starts; sizes with fewer samples take part in what they have."""
    folds = [{size: samples[start::FOLDS] for size, samples in points.items()} for start in range(FOLDS)]
    whole = [{size: some or points[size] for size, some in fold.items()} for fold in folds]
    return list(whole)


def _fit(value: float, others: Sequence[float]) -> Fit:
    return Fit(value=value, low=min(value, *others), high=max(value, *others))
