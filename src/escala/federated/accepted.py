"""Which reply of a client counts, and why another does not. Knows what was sent; trusts nothing."""

from collections.abc import Mapping
from math import isfinite
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from escala.federated.flower import ArrayRecord, Arrays, Message, arrays_of, payload_bytes

WEIGHT: Final = "num-examples"
ARRAYS: Final = "arrays"
METRICS: Final = "metrics"
MOST_TIMES: Final = 4
"""A reply may hold so many times the bytes that were sent, and SPARE_BYTES; assumed, no codec needs it."""
SPARE_BYTES: Final = 1 << 16
# what a broken array raises when NumPy reads it: header, length, type, an archive instead of an array
UNREADABLE: Final = (ValueError, TypeError, EOFError, OSError, KeyError, MemoryError, SyntaxError, BadZipFile)

# reasons, as rounds and the ledger name them
ERROR, GONE, SILENT, LATE = "error", "gone", "silent", "late"
TOO_LARGE, WRONG_SHAPE, NOT_FINITE, WRONG_COUNT = "too-large", "wrong-shape", "not-finite", "wrong-count"
GONE_CODES: Final = (3, 4, 5, 8)
"""Flower's codes for messages, replies and nodes that are not available any more, and for dead processes."""


def fault_of(reply: Message, sent_bytes: int) -> str | None:
    """Why a reply cannot count whatever its arrays hold; nothing where it can."""
    if reply.has_error():
        return GONE if reply.error.code in GONE_CODES else ERROR
    if payload_bytes(reply) > MOST_TIMES * sent_bytes + SPARE_BYTES:
        return TOO_LARGE
    if ARRAYS not in reply.content.array_records:
        return WRONG_SHAPE
    count = reply.content.metric_records.get(METRICS, {}).get(WEIGHT)
    if not isinstance(count, int | float) or not isfinite(count) or count <= 0:
        return WRONG_COUNT
    return None


def fault_of_metrics(reply: Message) -> str | None:
    """Metrics that are not finite spoil every mean that they go into."""
    for value in reply.content.metric_records[METRICS].values():
        if not np.isfinite(np.asarray(value, np.float64)).all():
            return NOT_FINITE
    return None


def fault_beside(reply: Message, sent: Message) -> str | None:
    """What was sent beside the weights (a variate) has to come back in the same form."""
    for name, record in sent.content.array_records.items():
        if name == ARRAYS:
            continue
        back = read(reply.content.array_records.get(name, ArrayRecord({})))
        fault = WRONG_SHAPE if back is None else fault_of_arrays(back, arrays_of(record))
        if fault is not None:
            return fault
    return None


def read(record: ArrayRecord) -> Arrays | None:
    """The arrays of a record; nothing where one of them cannot be read."""
    try:
        read = {name: each.numpy() for name, each in record.items()}
    except UNREADABLE:
        return None
    return read if all(isinstance(each, np.ndarray) for each in read.values()) else None


def fault_of_arrays(arrays: Mapping[str, NDArray[Any]], sent: Mapping[str, NDArray[Any]]) -> str | None:
    """Names, shapes and kinds of numbers have to be those that were sent, and every number finite."""
    if arrays.keys() != sent.keys():
        return WRONG_SHAPE
    for name, each in sent.items():
        if arrays[name].shape != each.shape or arrays[name].dtype != each.dtype:
            return WRONG_SHAPE
    finite = all(np.isfinite(each).all() for each in arrays.values() if each.dtype.kind in "fc")
    return None if finite else NOT_FINITE
