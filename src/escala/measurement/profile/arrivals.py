"""Who arrives last at the collectives of all ranks, and how long the others wait. Needs traces of all.

The n-th collective of a kind in a group is the same one on every rank. Clocks differ between machines by an
offset: a collective that all ranks leave together gives it, as the median difference of the ends.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np

from escala.measurement.profile.read import Trace
from escala.measurement.profile.record import Arrival
from escala.measurement.profile.traffic import ranks_of
from escala.model.columns import F64

TOGETHER: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
STRAGGLER_SHARE: Final = 0.05
"""Assumption: a rank is a straggler that is late by this share of a step, all collectives together."""
Key = tuple[str, str | None]


def arrivals(
    traces: Sequence[Trace], windows: Sequence[F64], steps: int, step_s: float
) -> tuple[Arrival, ...]:
    """Each rank's waiting, in the order of the ranks; empty where collectives cannot be matched."""
    times = _matched([_collectives(trace, window) for trace, window in zip(traces, windows, strict=True)])
    if times is None:
        return ()
    start_s, end_s = times
    offset_s = np.median(end_s - end_s[0], axis=1, keepdims=True)
    arrived_s = start_s - offset_s
    last = np.argmax(arrived_s, axis=0)
    length_s = end_s - start_s
    waited_s = np.clip(arrived_s.max(axis=0) - arrived_s, 0.0, length_s)
    others_s = (arrived_s.sum(axis=0) - arrived_s) / (len(traces) - 1)
    late_s = arrived_s - others_s
    return tuple(
        Arrival(
            rank=trace.rank,
            waits_s=float(waited_s[row].sum()) / steps,
            late_s=float(late_s[row].sum()) / steps,
            last_times=float((last == row).sum()) / steps,
            is_straggler=float(late_s[row].sum()) / steps >= STRAGGLER_SHARE * step_s,
        )
        for row, trace in enumerate(traces)
    )


def _collectives(trace: Trace, window: F64) -> dict[Key, list[tuple[float, float]]]:
    """Start and end of the collectives of all ranks in the recorded steps, in their order."""
    events, found = trace.events, defaultdict[Key, list[tuple[float, float]]](list)
    rows = [row for row, each in events.messages.items() if each.operation in TOGETHER]
    for row in sorted(rows, key=lambda each: events.start_s[each]):
        message = events.messages[row]
        if ranks_of(message, trace) == trace.ranks and window[0, 0] <= events.start_s[row] < window[0, 1]:
            found[message.operation, message.group].append((events.start_s[row], events.end_s[row]))
    return found


def _matched(ranks: Sequence[dict[Key, list[tuple[float, float]]]]) -> tuple[F64, F64] | None:
    """Starts and ends, a row a rank; None where ranks are missing or do not have the same collectives."""
    counts = [{key: len(times) for key, times in each.items()} for each in ranks]
    if len(ranks) < 2 or not counts[0] or any(each != counts[0] for each in counts):
        return None
    times = np.array([[pair for key in sorted(each, key=str) for pair in each[key]] for each in ranks])
    return times[:, :, 0], times[:, :, 1]
