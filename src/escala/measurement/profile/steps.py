"""Where the recorded steps begin and end: the profiler's own marks, else the user's, else the optimizer's."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.measurement.profile.columns import NO_ID, ON_DEVICE, Events, Kind
from escala.measurement.profile.intervals import NOTHING, raw
from escala.measurement.profile.names import OPTIMIZER_STEP, STEP, is_own_step
from escala.model.columns import F64

WHOLE: Final = "the whole trace as one step: nothing in it tells steps apart"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Windows:
    """The steps as spans one after the other, and how they were found; `numbers` are the profiler's."""

    how: str
    spans: F64
    numbers: tuple[int, ...]

    @property
    def window(self) -> F64:
        """From the start of the first step to the end of the last."""
        return np.array([[self.spans[0, 0], self.spans[-1, 1]]])


def windows(events: Events) -> Windows:
    """The steps of a trace."""
    for how, spans, numbers in (
        ("ProfilerStep# marks", *_profiler_steps(events)),
        ("marks of the training loop", _own_steps(events), ()),
        ("ends of optimizer steps", _between_optimizer_steps(events), ()),
    ):
        if len(spans):
            return Windows(how=how, spans=_to_the_device_end(events, spans), numbers=numbers)
    whole = np.array([[events.start_s.min(), events.end_s.max()]])
    return Windows(how=WHOLE, spans=whole, numbers=())


def _profiler_steps(events: Events) -> tuple[F64, tuple[int, ...]]:
    rows = np.flatnonzero(events.of(Kind.ANNOTATION) & events.named(STEP.match))
    rows = rows[np.argsort(events.start_s[rows])]
    found = [STEP.match(events.names[each]) for each in events.name[rows]]
    return _joined(raw(events.start_s[rows], events.end_s[rows])), tuple(int(m[1]) for m in found if m)


def _own_steps(events: Events) -> F64:
    """Annotations of the training loop that are named after a step and come more than once."""
    rows = np.flatnonzero(events.of(Kind.ANNOTATION) & events.named(is_own_step))
    rows = rows[np.argsort(events.start_s[rows])]
    spans = raw(events.start_s[rows], events.end_s[rows])
    is_apart = len(spans) > 1 and bool(np.all(spans[1:, 0] >= spans[:-1, 1]))
    return _joined(spans) if is_apart else NOTHING


def _between_optimizer_steps(events: Events) -> F64:
    """From the end of one optimizer step to the end of the next."""
    rows = np.flatnonzero(events.of(Kind.ANNOTATION) & events.named(OPTIMIZER_STEP.match))
    ends = np.sort(events.end_s[rows])
    return np.column_stack((ends[:-1], ends[1:])) if len(ends) > 1 else NOTHING


def _joined(spans: F64) -> F64:
    """Each step lasts until the next begins."""
    if not len(spans):
        return NOTHING
    return np.column_stack((spans[:, 0], np.append(spans[1:, 0], spans[-1, 1])))


def _to_the_device_end(events: Events, spans: F64) -> F64:
    """The last step lasts until the device has done what was launched in it."""
    is_call = events.of(Kind.LAUNCH) & (events.start_s >= spans[0, 0]) & (events.start_s < spans[-1, 1])
    calls = np.setdiff1d(events.correlation[is_call], [NO_ID])
    launched = np.isin(events.correlation, calls) & events.of(*ON_DEVICE)
    if not launched.any():
        return spans
    last = max(float(spans[-1, 1]), float(events.end_s[launched].max()))
    return np.vstack((spans[:-1], [[spans[-1, 0], last]]))
