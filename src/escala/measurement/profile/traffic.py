"""Messages of a rank summed by collective and process group: bytes, seconds, bus rate, what is exposed."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from escala.measurement.profile.intervals import both, raw, total_s, union, without
from escala.measurement.profile.messages import Message
from escala.measurement.profile.read import Group, Trace
from escala.measurement.profile.record import Traffic
from escala.measurement.profile.timeline import Timeline
from escala.model.collectives import gather_wire_bytes
from escala.model.columns import F64

GATHERS: Final = ("all_gather", "reduce_scatter", "all_to_all")
Key = tuple[str, str | None, int | None]


def traffic(trace: Trace, moments: Timeline, steps: int) -> tuple[Traffic, ...]:
    """The messages of one rank in a step, by collective and group, those with most exposed time first.

    A moment that several expose counts for the first of them, so that the rows add up.
    """
    rows: dict[Key, list[int]] = defaultdict(list)
    events = trace.events
    for row, each in sorted(events.messages.items()):
        if len(both(moments.window, raw(events.start_s[[row]], events.end_s[[row]]))):
            rows[_key(each, trace)].append(row)
    found = {key: _spans(trace, moments, each) for key, each in rows.items()}
    left, table = moments.exposed, list[Traffic]()
    for key in sorted(found, key=lambda key: -total_s(both(found[key], moments.exposed))):
        whole = _row(trace, key, rows[key], total_s(found[key]) / steps, steps)
        table.append(replace(whole, exposed_s=total_s(both(found[key], left)) / steps))
        left = without(left, found[key])
    return tuple(table)


def _key(message: Message, trace: Trace) -> Key:
    group = group_of(message, trace)
    title = message.group_title or message.group
    return message.operation, title if group is None else group.title, ranks_of(message, trace)


def group_of(message: Message, trace: Trace) -> Group | None:
    """The group of a message; where messages do not say it, the only one of several ranks in the run."""
    if message.group is not None:
        return next((each for each in trace.groups if each.name == message.group), None)
    shared = [each for each in trace.groups if each.ranks > 1]
    return shared[0] if len(shared) == 1 else None


def ranks_of(message: Message, trace: Trace) -> int | None:
    """Ranks in the group of a message; where it does not say it, the one size of all groups."""
    if message.ranks is not None:
        return message.ranks
    group = group_of(message, trace)
    sizes = {each.ranks for each in trace.groups if each.ranks > 1} if group is None else {group.ranks}
    return sizes.pop() if len(sizes) == 1 else None


def payload_bytes(message: Message, ranks: int | None) -> float | None:
    """Bytes as the model counts them: a gather's are those of all ranks, where the trace has one rank's."""
    given = message.payload_bytes
    if given is None or message.ranks is not None or message.operation != "all_gather":
        return given
    return None if ranks is None else given * ranks


def wire_bytes(operation: str, payload: float, ranks: int) -> float:
    """What each rank of a ring sends: twice a gather for all-reduce, once for gathers, else the payload."""
    if operation not in (*GATHERS, "all_reduce"):
        return payload
    sent = float(gather_wire_bytes(np.array([payload]), np.array([float(ranks)]))[0])
    return 2 * sent if operation == "all_reduce" else sent


def _spans(trace: Trace, moments: Timeline, rows: Sequence[int]) -> F64:
    return both(moments.window, union(raw(trace.events.start_s[rows], trace.events.end_s[rows])))


def _row(trace: Trace, key: Key, rows: Sequence[int], message_s: float, steps: int) -> Traffic:
    """One row, as if nothing hid it."""
    operation, title, ranks = key
    payloads = [payload_bytes(trace.events.messages[row], ranks) for row in rows]
    known = [each for each in payloads if each is not None]
    payload = sum(known) / steps if len(known) == len(payloads) else None
    rate = None
    if payload and ranks is not None and message_s > 0:
        rate = wire_bytes(operation, payload, ranks) / message_s
    return Traffic(
        operation=operation,
        group=title,
        ranks=ranks,
        messages=len(rows) / steps,
        payload_bytes=payload,
        message_s=message_s,
        exposed_s=message_s,
        bus_bytes_per_s=rate,
    )
