"""Tiny traces in the shape that PyTorch's profiler writes. Times are in microseconds, as in the files."""

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from escala.measurement.profile.read import Trace, read_traces

Event = dict[str, Any]
MAIN, WIRE, STREAM, NCCL_STREAM = (1, 1), (1, 2), (0, 7), (0, 20)


def span(category: str, name: str, lane: tuple[int, int], start: float, length: float, **args: Any) -> Event:
    event = {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": lane[0],
        "tid": lane[1],
        "ts": start,
        "dur": length,
    }
    return {**event, "args": {key.replace("_", " "): value for key, value in args.items()}}


def op(name: str, start: float, length: float, **args: Any) -> Event:
    return span("cpu_op", name, MAIN, start, length, **args)


def mark(name: str, start: float, length: float) -> Event:
    return span("user_annotation", name, MAIN, start, length)


def product(start: float, length: float, **args: Any) -> Event:
    """A product of two fp32 matrices of 100 × 100: 2 * 100 ** 3 = 2e6 FLOP."""
    shapes = {"Input Dims": [[100, 100], [100, 100]], "Input type": ["float", "float"]}
    event = op("aten::mm", start, length, **args)
    return {**event, "args": {**event["args"], **shapes}}


def backward(start: float, length: float) -> Event:
    return op("autograd::engine::evaluate_function: MmBackward0", start, length)


def gloo(start: float, length: float, elements: int = 1000) -> Event:
    event = span("user_annotation", "gloo:all_reduce", WIRE, start, length)
    return {**event, "args": {"Input Dims": [[elements]], "Input type": ["float"]}}


def launched(
    name: str,
    called: float,
    start: float,
    length: float,
    number: int,
    lane: tuple[int, int] = STREAM,
    **more: Any,
) -> list[Event]:
    """A kernel with the call that launched it, and the arguments that CUPTI gives it."""
    call = span(
        "cuda_runtime", "cudaLaunchKernel", MAIN, called, 2, External_id=number, cbid=211, correlation=number
    )
    kernel = span("kernel", name, lane, start, length, External_id=number, device=0, stream=lane[1])
    kernel["args"] |= {"correlation": number, "grid": [24, 1, 1], "block": [256, 1, 1], **more}
    return [call, kernel]


def nccl(
    called: float, start: float, length: float, number: int, elements: int, ranks: int = 2
) -> list[Event]:
    """An all-reduce as NCCL's kernel shows it since PyTorch 2.2, with the collective's arguments."""
    return launched(
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        called,
        start,
        length,
        number,
        NCCL_STREAM,
        **{
            "Collective name": "allreduce",
            "In msg nelems": elements,
            "Out msg nelems": elements,
            "Group size": ranks,
            "dtype": "BFloat16",
            "In split size": "[]",
            "Out split size": "[]",
            "Process Group Name": "0",
            "Process Group Description": "default_pg",
            "Process Group Ranks": str(list(range(ranks))),
        },
    )


def memory(at: float, allocated: int, kind: int = 0) -> Event:
    args = {
        "Total Reserved": 0,
        "Total Allocated": allocated,
        "Bytes": 1,
        "Device Id": -1,
        "Device Type": kind,
    }
    name = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": at}
    return {**name, "args": args}


def document(
    events: list[Event],
    rank: int | None = None,
    ranks: int = 2,
    device: str | None = None,
    backend: str = "gloo",
) -> dict[str, Any]:
    """The whole file."""
    about: dict[str, Any] = {
        "schemaVersion": 1,
        "deviceProperties": [] if device is None else [{"id": 0, "name": device, "numSms": 132}],
        "record_shapes": 1,
    }
    if rank is not None:
        group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cpu:gloo", "pg_size": ranks}
        about["distributedInfo"] = {
            "backend": backend,
            "rank": rank,
            "world_size": ranks,
            "pg_count": 1,
            "pg_config": [{**group, "ranks": list(range(ranks))}],
        }
    times = {"displayTimeUnit": "ms", "baseTimeNanoseconds": 1_790_000_000_000_000_000}
    return {**about, **times, "traceEvents": events, "traceName": "trace.json"}


def write(path: Path, events: list[Event], **about: Any) -> Path:
    """Write a trace, packed where the name says so."""
    text = json.dumps(document(events, **about), indent=1).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.fixture
def kineto() -> ModuleType:
    """The functions of this file."""
    return sys.modules[__name__]


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., tuple[Trace, ...]]:
    """Events of rank 0, rank 1, ... as traces; one list of events is a run of one rank."""

    def give(*ranks: list[Event], **about: Any) -> tuple[Trace, ...]:
        for rank, events in enumerate(ranks):
            one = {"rank": rank, "ranks": len(ranks)} if len(ranks) > 1 else {}
            write(tmp_path / f"rank{rank}.json", events, **one, **about)
        return read_traces([str(tmp_path)])

    return give
