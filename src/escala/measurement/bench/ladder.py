"""The teaching ladder: one matrix product in plain Python, NumPy, torch and CuPy, and what a transfer costs.

Rungs whose library is missing say so. The GPU rungs were never run.
"""

import importlib
import importlib.util
import platform
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

LADDER_SCHEMA: Final = "escala/ladder@1"
SIDE: Final = {"python": 96, "library": 1024}
WINDOW_S: Final = 1.0
FLOAT_BYTES: Final = 4
Rows = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One way to multiply two square matrices, or to move one: its best seconds, or why it was not run."""

    name: str
    side: int
    best_s: float | None = None
    flop_per_s: float | None = None
    bytes_per_s: float | None = None
    times_first: float | None = None
    skipped: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The document of `escala bench --ladder`: rungs from the slowest language to the fastest device."""

    schema: str
    machine: str
    rungs: tuple[Rung, ...]


def ladder() -> Ladder:
    """All rungs of this machine."""
    side = SIDE["library"]
    first = _rung("plain Python, fp64", SIDE["python"], _python(SIDE["python"]))
    others = [_rung("NumPy, fp32", side, _numpy(side)), *_torch_rungs(side), *_cupy_rungs(side)]
    return Ladder(
        schema=LADDER_SCHEMA,
        machine=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        rungs=(_beside(first, first), *(_beside(each, first) for each in others)),
    )


def product(a: Rows, b: Rows) -> list[list[float]]:
    """A product as the definition says it: rows times columns."""
    columns = list(zip(*b, strict=True))
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in columns] for row in a]


def least_s(work: Callable[[], object]) -> float:
    """The least seconds of repeats within a window, after one that warms up."""
    work()
    end, best = time.perf_counter() + WINDOW_S, float("inf")
    while True:
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
        if time.perf_counter() > end:
            return best


def _python(side: int) -> Callable[[], object]:
    a, b = ([[random.random() for _ in range(side)] for _ in range(side)] for _ in range(2))
    return lambda: product(a, b)


def _numpy(side: int) -> Callable[[], object]:
    a, b = (np.random.default_rng(0).standard_normal((side, side), np.float32) for _ in range(2))
    return lambda: a @ b


def _torch_rungs(side: int) -> list[Rung]:
    if importlib.util.find_spec("torch") is None:
        return [Rung(name="torch", side=side, skipped="not installed: pip install 'escala[torch]'")]
    torch: Any = importlib.import_module("torch")
    a, b = (torch.randn(side, side) for _ in range(2))
    found = [_rung("torch on the CPU, fp32", side, lambda: a @ b)]
    if not torch.cuda.is_available():
        return [*found, Rung(name="torch on a GPU, and transfers", side=side, skipped="no CUDA device here")]
    wait = torch.cuda.synchronize
    there, half = (a.cuda(), b.cuda()), (a.cuda().bfloat16(), b.cuda().bfloat16())
    return [
        *found,
        _rung("torch on the GPU, fp32", side, lambda: (there[0] @ there[1], wait())),
        _rung("torch on the GPU, bf16", side, lambda: (half[0] @ half[1], wait())),
        _rung("the same with both transfers", side, lambda: (a.cuda() @ b.cuda()).cpu()),
        _moved("one matrix to the GPU", side, lambda: (a.cuda(), wait())),
    ]


def _cupy_rungs(side: int) -> list[Rung]:
    if importlib.util.find_spec("cupy") is None:
        return [Rung(name="CuPy", side=side, skipped="not installed")]
    cupy: Any = importlib.import_module("cupy")
    a, b = (cupy.random.standard_normal((side, side), dtype=cupy.float32) for _ in range(2))
    return [_rung("CuPy, fp32", side, lambda: (a @ b, cupy.cuda.Device().synchronize()))]


def _rung(name: str, side: int, work: Callable[[], object]) -> Rung:
    best = least_s(work)
    return Rung(name=name, side=side, best_s=best, flop_per_s=2.0 * side**3 / best)


def _moved(name: str, side: int, work: Callable[[], object]) -> Rung:
    best = least_s(work)
    return Rung(name=name, side=side, best_s=best, bytes_per_s=FLOAT_BYTES * side**2 / best)


def _beside(rung: Rung, first: Rung) -> Rung:
    """The rung with how many times the rate of the first one it reaches."""
    rate, least = rung.flop_per_s, first.flop_per_s
    return rung if rate is None or least is None else replace(rung, times_first=rate / least)
