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
from escala.measurement.profile.traffic import group_of
from escala.model.columns import F64

TOGETHER: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
STRAGGLER_SHARE: Final = 0.05
"""Assumption: others have to wait this share of a step for a rank before it is called a straggler."""
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
    mean_s = waited_s.sum(axis=0) / (len(traces) - 1)
    return tuple(
        _arrival(trace.rank, waited_s[row], mean_s, last == row, steps, step_s)
        for row, trace in enumerate(traces)
    )


def _arrival(rank: int, waited_s: F64, mean_s: F64, is_last: F64, steps: int, step_s: float) -> Arrival:
    caused_s = float(mean_s[is_last].sum())
    is_most = caused_s >= float(mean_s.sum()) / 2
    return Arrival(
        rank=rank,
        waits_s=float(waited_s.sum()) / steps,
        is_waited_for_s=caused_s / steps,
        last_times=float(is_last.sum()) / steps,
        is_straggler=is_most and caused_s / steps >= STRAGGLER_SHARE * step_s,
    )


def _collectives(trace: Trace, window: F64) -> dict[Key, list[tuple[float, float]]]:
    """Start and end of the collectives of all ranks in the recorded steps, in their order."""
    events, found = trace.events, defaultdict[Key, list[tuple[float, float]]](list)
    rows = [row for row, each in events.messages.items() if each.operation in TOGETHER]
    for row in sorted(rows, key=lambda each: events.start_s[each]):
        message = events.messages[row]
        group = group_of(message, trace)
        ranks = message.ranks if group is None else group.ranks
        if ranks == trace.ranks and window[0, 0] <= events.start_s[row] < window[0, 1]:
            found[message.operation, message.group].append((events.start_s[row], events.end_s[row]))
    return found


def _matched(ranks: Sequence[dict[Key, list[tuple[float, float]]]]) -> tuple[F64, F64] | None:
    """Starts and ends, a row a rank; None where ranks are missing or do not have the same collectives."""
    counts = [{key: len(times) for key, times in each.items()} for each in ranks]
    if len(ranks) < 2 or not counts[0] or any(each != counts[0] for each in counts):
        return None
    times = np.array([[pair for key in sorted(each, key=str) for pair in each[key]] for each in ranks])
    return times[:, :, 0], times[:, :, 1]
