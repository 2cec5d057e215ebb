"""What carries messages: bytes beside the payload, and the pauses of those who look for messages.

Knows seconds and columns; no fleet, no rule by which a round ends.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from escala.federated.phases import MESSAGE_OVERHEAD_BYTES
from escala.model.columns import F64


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """A message of p bytes takes framing * p + overhead; nobody pauses where seconds are 0.

    A node that has ended its work looks for more every `node_look_s`; while it works, every `reply_look_s`
    whether it is done. The server looks every `server_look_s`. A reply that is still on its way it tries
    again after `retry_s`, then after twice as long each time, at most `longest_retry_s`, each by chance
    shorter or longer by up to `retry_spread`, and nothing else meanwhile. A server that does not know who is
    busy asks also clients that still work for an older round; they begin when they have ended that.
    With `pulls` the process of a client starts when its message begins to come, and so many of its threads
    try likewise until it is there; with none it starts when the message is there.
    """

    framing: float = 1.0
    down_overhead_bytes: float = MESSAGE_OVERHEAD_BYTES
    up_overhead_bytes: float = MESSAGE_OVERHEAD_BYTES
    node_look_s: float = 0.0
    reply_look_s: float = 0.0
    server_look_s: float = 0.0
    retry_s: float = 0.0
    longest_retry_s: float = 0.0
    retry_spread: float = 0.0
    pulls: int = 0
    knows_busy: bool = True


IDEAL: Final = Transport()
FLOWER: Final = Transport(
    node_look_s=3.0,
    reply_look_s=0.5,
    server_look_s=0.2,
    retry_s=1.0,
    longest_retry_s=10.0,
    retry_spread=0.2,
    pulls=2,
    knows_busy=False,
)
"""Pauses of `escala federate run`. Sources: flwr 1.42, supernode/start_client_internal.py (3 s, 0.5 s; the
task of a message is made before its objects are pulled), supercore/constant.py and
inflatable/inflatable_utils.py (1 s to 10 s, 20 %, two at once); `clocks.POLL_S` (0.2 s)."""


class Carrier(StrEnum):
    """What carries messages, as scenarios name it: nothing that pauses, or Flower."""

    IDEAL = "ideal"
    FLOWER = "flower"


TRANSPORTS: Final = {Carrier.IDEAL: IDEAL, Carrier.FLOWER: FLOWER}


def waits_s(transport: Transport, busy_until_s: F64, now_s: float) -> F64:
    """Seconds until a client takes up what it is asked now: when it has ended, else at its next look."""
    idle_s = now_s - busy_until_s
    return np.asarray(np.maximum(looked_s(idle_s, transport.node_look_s), 0.0) - idle_s)


def looked_s(after_s: F64, every_s: float) -> F64:
    """The first look at or after so many seconds, where looks are at 0, every_s, 2 * every_s, ..."""
    return np.asarray(np.ceil(after_s / every_s) * every_s) if every_s else after_s


def before_work_s(transport: Transport, start_s: F64, there_s: F64, draws: np.random.Generator) -> F64:
    """From when a message is there until its work begins: start-up, or what is left until a try finds it.

    `there_s` counts from when the message begins to come; the slowest of the threads that try counts. Shapes
    (k,).
    """
    if not transport.pulls:
        return start_s
    now_s = np.repeat(start_s[:, None], transport.pulls, axis=1)
    pause_s = transport.retry_s
    while (waits := now_s < there_s[:, None]).any():
        pauses_s = pause_s * (1.0 + transport.retry_spread * draws.uniform(-1.0, 1.0, now_s.shape))
        now_s = np.where(waits, now_s + pauses_s, now_s)
        pause_s = min(2.0 * pause_s, transport.longest_retry_s)
    return np.asarray(now_s.max(axis=1) - there_s)


def taken_s(
    transport: Transport, begins_s: F64, there_s: F64, last_s: float | None, draws: np.random.Generator
) -> F64:
    """When the server has each reply that begins to arrive and then is there; infinite where it never has.

    It looks until `last_s`. What a look finds is taken one by one, in the order in which it began, and is
    had all together; so a reply that is found and slow holds the others up, and a deadline too.
    """
    if not transport.server_look_s:
        return there_s if last_s is None else np.where(there_s <= last_s, there_s, np.inf)
    order = np.argsort(begins_s, kind="stable")
    waiting, taken, now_s = order[np.isfinite(begins_s[order])], np.full(len(begins_s), np.inf), 0.0
    while waiting.size:
        found = waiting[begins_s[waiting] <= now_s]
        for row in found:
            now_s = _tried_s(transport, now_s, float(there_s[row]), draws)
        taken[found], waiting = now_s, waiting[len(found) :]
        if last_s is not None and now_s >= last_s:
            break
        now_s = min(_next_look_s(transport, now_s, begins_s[waiting]), np.inf if last_s is None else last_s)
    return taken


def _next_look_s(transport: Transport, now_s: float, begins_s: F64) -> float:
    """The first look after this one that finds something."""
    ahead_s = np.maximum(begins_s - now_s, transport.server_look_s).min(initial=np.inf)
    return now_s + float(looked_s(ahead_s, transport.server_look_s))


def _tried_s(transport: Transport, now_s: float, there_s: float, draws: np.random.Generator) -> float:
    """The first try at or after the time when a reply is there."""
    if not transport.retry_s:
        return max(now_s, there_s)
    pause_s = transport.retry_s
    while now_s < there_s:
        now_s += pause_s * (1.0 + transport.retry_spread * draws.uniform(-1.0, 1.0))
        pause_s = min(2.0 * pause_s, transport.longest_retry_s)
    return now_s
