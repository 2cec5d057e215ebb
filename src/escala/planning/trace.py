"""A timeline as Chrome trace events, which Perfetto and chrome://tracing open. Knows the format, no model.

One process a pipeline rank with two threads, compute and network, and a counter of the activations kept.
Source: Trace Event Format, version of 2016 (object format; "X" complete, "C" counter, "M" metadata events).
"""

from collections.abc import Iterator
from typing import Any, Final

from escala.planning.schedules import Kind
from escala.planning.timeline import Phase, Span, Timeline, held_over_time

Event = dict[str, Any]

COMPUTE: Final = 0
NETWORK: Final = 1
THREADS: Final = {COMPUTE: "compute", NETWORK: "network"}
COLOURS: Final = {
    Kind.F: "thread_state_running",
    Kind.B: "thread_state_iowait",
    Kind.W: "thread_state_runnable",
}
"""Names of the viewer's own palette: green, orange, blue."""
ON_NETWORK: Final = frozenset({"gradient_sync", "sharding"})
MICROSECONDS_PER_S: Final = 1e6


def trace(timeline: Timeline) -> dict[str, Any]:
    """The trace as the object that goes into the file."""
    plan = timeline.plan
    return {
        "traceEvents": list(_events(timeline)),
        "displayTimeUnit": "ms",
        "metadata": {
            "schedule": plan.schedule.name.lower().replace("_", "-"),
            "pp": plan.pp,
            "virtual_stages": plan.virtual_stages,
            "micro_batches": plan.micro_batches,
            "pipeline_s": timeline.pipeline_s,
            "step_s": timeline.step_s,
            "bubble_share": timeline.bubble_share,
        },
    }


def _events(timeline: Timeline) -> Iterator[Event]:
    plan = timeline.plan
    for rank, spans in enumerate(timeline.spans):
        yield from _names(rank)
        for span in spans:
            yield _task(span)
            if span.receive_s > 0:
                yield _receive(span)
        for when_s, held_bytes in held_over_time(plan, spans, timeline.kept_bytes):
            yield _counter(rank, when_s, held_bytes)
        yield from (_after(phase, rank) for phase in timeline.phases if phase.end_s > phase.start_s)


def _names(rank: int) -> Iterator[Event]:
    """Names of the process and its threads, in the order of the ranks."""
    yield _metadata("process_name", rank, COMPUTE, {"name": f"pipeline rank {rank}"})
    yield _metadata("process_sort_index", rank, COMPUTE, {"sort_index": rank})
    for thread, name in THREADS.items():
        yield _metadata("thread_name", rank, thread, {"name": name})
        yield _metadata("thread_sort_index", rank, thread, {"sort_index": thread})


def _metadata(name: str, rank: int, thread: int, values: dict[str, Any]) -> Event:
    return {"ph": "M", "name": name, "pid": rank, "tid": thread, "ts": 0, "args": values}


def _task(span: Span) -> Event:
    name = f"{span.kind.name}{span.micro_batch}"
    event = _complete(name, span.kind.name, (span.rank, COMPUTE), (span.start_s, span.end_s))
    values = {"stage": span.stage, "micro_batch": span.micro_batch}
    return {**event, "cname": COLOURS[span.kind], "args": values}


def _receive(span: Span) -> Event:
    name = f"receive for {span.kind.name}{span.micro_batch}"
    times_s = span.start_s - span.receive_s, span.start_s
    event = _complete(name, "receive", (span.rank, NETWORK), times_s)
    return {**event, "args": {"stage": span.stage, "micro_batch": span.micro_batch}}


def _after(phase: Phase, rank: int) -> Event:
    thread = NETWORK if phase.name in ON_NETWORK else COMPUTE
    return _complete(phase.name.replace("_", " "), "step", (rank, thread), (phase.start_s, phase.end_s))


def _complete(name: str, category: str, lane: tuple[int, int], times_s: tuple[float, float]) -> Event:
    """One bar on the thread of a rank, from start to end."""
    start_s, end_s = times_s
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": lane[0],
        "tid": lane[1],
        "ts": start_s * MICROSECONDS_PER_S,
        "dur": (end_s - start_s) * MICROSECONDS_PER_S,
    }


def _counter(rank: int, when_s: float, held_bytes: float) -> Event:
    values = {"bytes": held_bytes}
    moment = when_s * MICROSECONDS_PER_S
    return {"ph": "C", "name": "kept activations", "pid": rank, "tid": COMPUTE, "ts": moment, "args": values}
