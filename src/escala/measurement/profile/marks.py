"""When a rank is in which phase, by what its processor runs: annotations first, then the backward pass's own
operations. Knows times of the processor; where a device works is told by what launched it.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.measurement.profile.columns import Events, Kind
from escala.measurement.profile.intervals import NOTHING, both, closed, raw, union, without
from escala.measurement.profile.names import OPTIMIZER_STEP, is_backward, is_data, is_phase
from escala.model.columns import F64, Bool

# Assumption: what follows within this time was called at once; PyTorch needs some 10 µs to call an operation.
CALL_GAP_S: Final = 100e-6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Marks:
    """Spans of the phases, none in two; what is in none of them is forward."""

    data: F64
    backward: F64
    optimizer: F64


def marks(events: Events) -> Marks:
    """The phases of a rank."""
    annotated = events.of(Kind.ANNOTATION)
    data = _spans(events, annotated & events.named(is_data))
    forward = _spans(events, annotated & events.named(lambda name: is_phase("forward", name)))
    optimizer = _spans(events, annotated & events.named(lambda name: is_phase("optimizer", name)))
    nodes = _spans(events, events.of(Kind.OP) & events.named(is_backward))
    told = _spans(events, annotated & events.named(lambda name: is_phase("backward", name)))
    backward = without(union(told, closed(nodes, CALL_GAP_S)), data)
    steps = _spans(events, annotated & events.named(OPTIMIZER_STEP.match))
    prepared = without(_prepared(backward, steps), union(forward, data))
    optimizer = without(union(_after_closure(optimizer, nodes), prepared), data)
    return Marks(data=data, backward=without(backward, optimizer), optimizer=optimizer)


def _spans(events: Events, rows: Bool) -> F64:
    return union(raw(events.start_s[rows], events.end_s[rows]))


def _after_closure(optimizer: F64, nodes: F64) -> F64:
    """Optimizer steps without the forward and backward that some trainers run inside of them."""
    if not len(nodes):
        return optimizer
    last = np.searchsorted(nodes[:, 1], optimizer[:, 1], "right") - 1
    ends = np.where(last >= 0, nodes[last, 1], -np.inf)
    return np.column_stack((np.maximum(optimizer[:, 0], ends), optimizer[:, 1]))


def _prepared(backward: F64, steps: F64) -> F64:
    """From the end of a backward pass to the optimizer step that follows it: clipping and unscaling."""
    if not len(backward) or not len(steps):
        return NOTHING
    last = np.searchsorted(backward[:, 1], steps[:, 0], "right") - 1
    before = np.concatenate(([-np.inf], steps[:-1, 1]))
    is_next = (last >= 0) & (backward[np.maximum(last, 0), 1] > before)
    return union(raw(backward[last[is_next], 1], steps[is_next, 0]))


def by_phase(spans: F64, given: Marks) -> dict[str, F64]:
    """The spans of forward, backward and optimizer among these, which hold no loading of data."""
    backward, optimizer = both(spans, given.backward), both(spans, given.optimizer)
    return {
        "forward": without(without(spans, backward), optimizer),
        "backward": backward,
        "optimizer": optimizer,
    }
