"""One rank's recorded steps as sets of moments: working, calling, messages, data. Says no verdict.

On an accelerator its own timeline decides, and the processor only says why it has nothing to do; without one
the operations of the processor are the timeline.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.measurement.profile.columns import NO_ID, Events, Kind
from escala.measurement.profile.intervals import both, closed, holds, raw, union, without
from escala.measurement.profile.marks import CALL_GAP_S, Marks, by_phase, marks
from escala.measurement.profile.names import (
    is_message_kernel,
    is_product,
    is_product_kernel,
    is_upload_copy,
    is_waiting,
    is_wrapper,
)
from escala.measurement.profile.nesting import innermost, parents
from escala.measurement.profile.steps import Windows
from escala.model.columns import F64, I64, Bool

# Assumption: an operation that is as a rule itself busy for less has done no more than being called: PyTorch
# needs some 2 to 5 µs for one on a processor, and the profiler adds as much.
LEAST_WORK_S: Final = 10e-6
Ridges = Mapping[str, float]
"""FLOP a byte, by number format, from which on the device's products and not its memory are the limit."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """Sets of moments inside the recorded steps of one rank.

    `compute`, `memory` and `calling` are apart from each other and are the rank's `busy` time on a processor;
    on a device calling is the time in which it waits for launches. `messages` may be behind any of them.
    """

    has_device: bool
    window: F64
    phases: dict[str, F64]
    busy: F64
    compute: F64
    memory: F64
    calling: F64
    data: F64
    messages: F64
    pieces: I64

    @property
    def exposed(self) -> F64:
        """Messages behind which nothing goes on."""
        return without(without(self.messages, self.busy), self.data)


def timeline(events: Events, steps: Windows, ridges: Ridges) -> Timeline:
    """The moments of one rank; products below the ridge of their format (FLOP a byte) count as memory."""
    has_device = bool(events.of(Kind.KERNEL).any())
    build = _of_device if has_device else _of_processor
    return build(events, steps.window, marks(events), _thin(events, ridges))


def _thin(events: Events, ridges: Ridges) -> Bool:
    """Which operations are products that move so many bytes that memory limits them."""
    is_thin = np.zeros(len(events), bool)
    rows = [
        row
        for row, each in events.products.items()
        if each.flop < ridges.get(each.number_format, 0.0) * each.moved_bytes
    ]
    is_thin[rows] = True
    return is_thin


def _of_processor(events: Events, window: F64, given: Marks, is_thin: Bool) -> Timeline:
    rows = np.flatnonzero(events.of(Kind.OP))
    inner = innermost(events.lane[rows], events.start_s[rows], events.end_s[rows])
    own_s = _usual_s(inner.self_s(len(rows)), events.name[rows], events.shape[rows])
    is_ours = ~events.named(lambda name: is_waiting(name) or is_wrapper(name))[rows]
    is_work = is_ours & (own_s >= LEAST_WORK_S)
    is_compute = is_work & events.named(is_product)[rows] & ~is_thin[rows]
    data = both(window, given.data)
    busy = _inside(window, closed(union(inner.spans[is_ours[inner.place]]), CALL_GAP_S), data)
    compute = _inside(window, union(inner.spans[is_compute[inner.place]]), data)
    memory = without(_inside(window, union(inner.spans[(is_work & ~is_compute)[inner.place]]), data), compute)
    return Timeline(
        has_device=False,
        window=window,
        phases=by_phase(busy, given),
        busy=busy,
        compute=compute,
        memory=memory,
        calling=without(without(busy, compute), memory),
        data=data,
        messages=both(window, _spans(events, _message_rows(events))),
        pieces=rows[is_work],
    )


def _usual_s(own_s: F64, name: I64, shape: I64) -> F64:
    """The median of the operations with the same name and shapes, the lower one of two.

    One that the system holds up for a moment works no more than the others.
    """
    order = np.lexsort((own_s, shape, name))
    is_first = np.ones(len(order), bool)
    is_first[1:] = (np.diff(name[order]) != 0) | (np.diff(shape[order]) != 0)
    first = np.flatnonzero(is_first)
    counts = np.diff(np.append(first, len(order)))
    usual_s = np.empty(len(order))
    usual_s[order] = np.repeat(own_s[order][first + (counts - 1) // 2], counts)
    return usual_s


def _of_device(events: Events, window: F64, given: Marks, is_thin: Bool) -> Timeline:
    is_message = events.of(Kind.KERNEL) & events.named(is_message_kernel)
    is_upload = events.of(Kind.COPY) & events.named(is_upload_copy)
    is_work = events.of(Kind.KERNEL, Kind.COPY, Kind.FILL) & ~is_message & ~is_upload
    callers = _callers(events)
    is_compute = is_work & _computes(events, _launchers(events, callers), is_thin)
    busy, messages = both(window, _spans(events, is_work)), both(window, _spans(events, is_message))
    compute = both(window, _spans(events, is_compute))
    free = without(without(window, busy), messages)
    data = both(free, union(given.data, _spans(events, is_upload)))
    calls = closed(_spans(events, events.of(Kind.OP, Kind.LAUNCH)), CALL_GAP_S)
    return Timeline(
        has_device=True,
        window=window,
        phases=_launched(events, np.flatnonzero(is_work), callers, given, busy),
        busy=busy,
        compute=compute,
        memory=without(busy, compute),
        calling=both(without(free, data), calls),
        data=data,
        messages=messages,
        pieces=np.flatnonzero(is_work),
    )


def _callers(events: Events) -> I64:
    """For each event of a device the call that launched it, -1 where none is recorded."""
    calls = np.flatnonzero(events.of(Kind.LAUNCH) & (events.correlation != NO_ID))
    calls = calls[np.argsort(events.correlation[calls], kind="stable")]
    if not len(calls):
        return np.full(len(events), -1, np.int64)
    known = events.correlation[calls]
    at = np.minimum(np.searchsorted(known, events.correlation), len(calls) - 1)
    return np.where(known[at] == events.correlation, calls[at], -1)


def _launchers(events: Events, callers: I64) -> I64:
    """For each event of a device the operation that made the call, -1 where none is recorded.

    The "External id" of a kernel says the same in newer traces only.
    """
    rows = np.flatnonzero(events.of(Kind.OP, Kind.LAUNCH))
    around = np.full(len(events), -1, np.int64)
    inside = parents(events.lane[rows], events.start_s[rows], events.end_s[rows])
    around[rows] = np.where(inside >= 0, rows[inside], -1)
    return np.where(callers >= 0, around[callers], -1)


def _computes(events: Events, launcher: I64, is_thin: Bool) -> Bool:
    """Which kernels are products: by their operation, or by their own name."""
    by_operation = events.of(Kind.OP) & events.named(is_product)
    of_launcher = (launcher >= 0) & by_operation[launcher]
    is_kernel = events.of(Kind.KERNEL) & events.named(is_product_kernel)
    return (of_launcher | is_kernel) & ~((launcher >= 0) & is_thin[launcher])


def _launched(events: Events, rows: I64, callers: I64, given: Marks, busy: F64) -> dict[str, F64]:
    """The device's work by the phase in which it was launched; work of two phases at once counts once."""
    by = callers[rows]
    moments = np.where(by >= 0, events.start_s[by], events.start_s[rows])
    is_backward, is_optimizer = holds(given.backward, moments), holds(given.optimizer, moments)
    spans = raw(events.start_s[rows], events.end_s[rows])
    backward = both(busy, union(spans[is_backward]))
    optimizer = without(both(busy, union(spans[is_optimizer])), backward)
    return {
        "forward": without(without(busy, backward), optimizer),
        "backward": backward,
        "optimizer": optimizer,
    }


def _message_rows(events: Events) -> Bool:
    found = np.zeros(len(events), bool)
    found[list(events.messages)] = True
    return found


def _inside(window: F64, spans: F64, data: F64) -> F64:
    return without(both(window, spans), data)


def _spans(events: Events, rows: Bool) -> F64:
    return union(raw(events.start_s[rows], events.end_s[rows]))
