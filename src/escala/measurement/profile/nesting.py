"""Operations inside operations: what each does itself, between those that it calls. Knows times, no names."""

from dataclasses import dataclass

import numpy as np

from escala.model.columns import F64, I64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Innermost:
    """For every moment of a lane the innermost event: spans with the event's place. Shapes: (k, 2), (k,)."""

    spans: F64
    place: I64

    def self_s(self, events: int) -> F64:
        """Seconds that each event is itself the innermost."""
        lengths_s = self.spans[:, 1] - self.spans[:, 0]
        return np.bincount(self.place, lengths_s, minlength=events).astype(np.float64)


def innermost(lane: I64, start_s: F64, end_s: F64) -> Innermost:
    """Each moment belongs to the event that began last and has not ended.

    Events come in the order of lane and start, those that hold others first.
    """
    events = np.flatnonzero(end_s > start_s)
    lane, start_s, end_s = lane[events], start_s[events], end_s[events]
    parent = parents(lane, start_s, end_s)
    own = np.arange(len(events))
    # At one moment: first ends, the inner before the outer, then starts, the outer before the inner.
    times = np.concatenate((end_s, start_s))
    is_start = np.repeat([0, 1], len(events))
    order = np.lexsort((np.concatenate((-own, own)), is_start, times, np.tile(lane, 2)))
    label = np.concatenate((parent, own))[order]
    moments, lanes = times[order], np.tile(lane, 2)[order]
    is_span = (label[:-1] >= 0) & (lanes[1:] == lanes[:-1]) & (moments[1:] > moments[:-1])
    spans = np.column_stack((moments[:-1], moments[1:]))[is_span]
    return Innermost(spans=spans, place=events[label[:-1][is_span]])


def parents(lane: I64, start_s: F64, end_s: F64) -> I64:
    """The event around each event, -1 where there is none; events come in the order of lane and start."""
    found, open_events = np.full(len(lane), -1, np.int64), list[int]()
    lanes, starts, ends = lane.tolist(), start_s.tolist(), end_s.tolist()
    for event, start in enumerate(starts):
        while open_events and (lanes[open_events[-1]] != lanes[event] or ends[open_events[-1]] <= start):
            open_events.pop()
        if open_events:
            found[event] = open_events[-1]
        open_events.append(event)
    return found
