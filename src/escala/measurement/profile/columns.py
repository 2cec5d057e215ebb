"""What a trace holds as columns: one row an event, names as numbers. Knows Kineto's keys, reads no file.

Kept are the events that take time on a processor or a device, memory events and the arguments that say which
product or collective an event is; flows, Python frames and overheads are left out. Times are seconds after
the first event.
"""

from array import array
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from escala.measurement.profile.messages import Message, of_annotation, of_kernel
from escala.measurement.profile.names import PRODUCTS, is_message, is_message_kernel
from escala.measurement.profile.shapes import Product, product
from escala.model.columns import F64, I64, Bool

MICROSECOND_S: Final = 1e-6
NO_ID: Final = -1


# Microseconds since 1970 are some 2e15.
Moment = Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]


class Kind(IntEnum):
    """What an event is, by Kineto's category."""

    OP = 0
    ANNOTATION = 1
    KERNEL = 2
    COPY = 3
    FILL = 4
    LAUNCH = 5


KINDS: Final = {
    "cpu_op": Kind.OP,
    "user_annotation": Kind.ANNOTATION,
    "kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.COPY,
    "gpu_memset": Kind.FILL,
    "cuda_runtime": Kind.LAUNCH,
    "cuda_driver": Kind.LAUNCH,
    "privateuse1_runtime": Kind.LAUNCH,
    "xpu_runtime": Kind.LAUNCH,
}
ON_DEVICE: Final = (Kind.KERNEL, Kind.COPY, Kind.FILL)
MEMORY: Final = "[memory]"
COLUMNS: Final = ("name", "kind", "lane", "correlation", "shape")


class Arguments(msgspec.Struct, frozen=True):
    """The arguments of an event that are read."""

    correlation: int = NO_ID
    device: Any = None
    dims: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input type")
    concrete: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Concrete Inputs")
    collective: Any = msgspec.field(default=None, name="Collective name")
    in_elements: Any = msgspec.field(default=None, name="In msg nelems")
    out_elements: Any = msgspec.field(default=None, name="Out msg nelems")
    group_size: Any = msgspec.field(default=None, name="Group size")
    dtype: Any = None
    group: Any = msgspec.field(default=None, name="Process Group Name")
    group_title: Any = msgspec.field(default=None, name="Process Group Description")
    allocated: Any = msgspec.field(default=None, name="Total Allocated")
    reserved: Any = msgspec.field(default=None, name="Total Reserved")
    device_kind: Any = msgspec.field(default=None, name="Device Type")
    device_id: Any = msgspec.field(default=None, name="Device Id")


class Event(msgspec.Struct, frozen=True):
    """One event of the list as it stands in the file."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: Moment | None = None
    dur: Moment | None = None
    args: Arguments = Arguments()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Events:
    """The events that take time, in the order of their lane and start; parents before what they hold.

    A lane is a thread of a process or a stream of a device. `correlation` joins a kernel to the call that
    launched it; -1 where there is none. `shape` is the same number for inputs of
    the same shapes, or of none that is recorded. `products` holds the work of operations
    with shapes and `messages` what is sent, by row. Shapes: all (n,).
    """

    names: tuple[str, ...]
    name: I64
    kind: NDArray[np.int8]
    lane: I64
    start_s: F64
    end_s: F64
    correlation: I64
    shape: I64
    products: dict[int, Product]
    messages: dict[int, Message]

    def __len__(self) -> int:
        return len(self.name)

    def of(self, *kinds: Kind) -> Bool:
        """Which events are of one of the kinds."""
        return np.isin(self.kind, kinds)

    def named(self, wanted: Any) -> Bool:
        """Which events have a name that the function accepts; asked once a name."""
        return np.array([bool(wanted(each)) for each in self.names], bool)[self.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The most bytes on one device by counter; `reserved_bytes` is None where none is counted."""

    device: str
    allocated_bytes: float
    reserved_bytes: float | None


class Builder:
    """Takes events and gives their columns."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._lanes: dict[tuple[int | str | None, int | str | None], int] = {}
        self._shapes: dict[bytes, int] = {}
        self._whole = {name: array("q") for name in COLUMNS}
        self._times = {name: array("d") for name in ("start", "duration")}
        self._products: dict[int, Product] = {}
        self._messages: dict[int, Message] = {}
        self._held: dict[str, list[float]] = {}

    def add(self, events: list[Event]) -> None:
        """Keep what is asked of these events."""
        for each in events:
            kind = KINDS.get(each.cat)
            if kind is not None and each.ph == "X" and each.ts is not None and each.dur is not None:
                self._keep(each, kind, each.ts, each.dur)
            elif each.name == MEMORY:
                self._hold(each.args)

    def _keep(self, event: Event, kind: Kind, start_us: float, duration_us: float) -> None:
        name = self._names.setdefault(event.name, len(self._names))
        lane = self._lanes.setdefault((event.pid, event.tid), len(self._lanes))
        args, row = event.args, len(self._whole["name"])
        if kind is Kind.OP and event.name in PRODUCTS:
            if (work := product(event.name, args.dims, args.types, args.concrete)) is not None:
                self._products[row] = work
        elif kind is Kind.KERNEL and is_message_kernel(event.name):
            self._messages[row] = of_kernel(event.name, args)
        elif kind is Kind.ANNOTATION and is_message(event.name):
            self._messages[row] = of_annotation(event.name, args)
        shape = self._shapes.setdefault(bytes(args.dims), len(self._shapes))
        values = (name, kind, lane, args.correlation, shape)
        for column, value in zip(self._whole.values(), values, strict=True):
            column.append(value)
        self._times["start"].append(start_us)
        self._times["duration"].append(duration_us)

    def _hold(self, args: Arguments) -> None:
        if not isinstance(args.allocated, int | float) or not isinstance(args.reserved, int | float | None):
            return
        is_processor = args.device_kind == 0
        device = "processor" if is_processor else f"device {args.device_id}"
        held = self._held.setdefault(device, [0.0, 0.0])
        held[0] = max(held[0], args.allocated)
        held[1] = max(held[1], args.reserved or 0.0)

    def held(self) -> tuple[Held, ...]:
        """The most memory of every device that was seen."""
        return tuple(
            Held(device=device, allocated_bytes=most[0], reserved_bytes=most[1] or None)
            for device, most in sorted(self._held.items())
        )

    def events(self) -> tuple[Events, float]:
        """The columns, sorted, and the moment of the first event in the file's own clock."""
        columns = {name: np.frombuffer(each, np.int64) for name, each in self._whole.items()}
        start = np.frombuffer(self._times["start"], np.float64)
        first = float(start.min()) if len(start) else 0.0
        start_s = (start - first) * MICROSECOND_S
        end_s = start_s + np.frombuffer(self._times["duration"], np.float64) * MICROSECOND_S
        order = np.lexsort((-end_s, start_s, columns["lane"]))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return Events(
            names=tuple(self._names),
            name=columns["name"][order],
            kind=columns["kind"][order].astype(np.int8),
            lane=columns["lane"][order],
            start_s=start_s[order],
            end_s=end_s[order],
            correlation=columns["correlation"][order],
            shape=columns["shape"][order],
            products={int(place[row]): each for row, each in self._products.items()},
            messages={int(place[row]): each for row, each in self._messages.items()},
        ), first * MICROSECOND_S
