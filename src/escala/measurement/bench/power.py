"""Watts from an energy counter: NVML's of the device, or RAPL's of the processor packages. Invents none.

The NVML part was never run: written from NVIDIA's documents of libnvidia-ml.
"""

import ctypes
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from escala.formats.bench_record import Power
from escala.measurement.bench.counters import NO_COUNTER, RAPL, Joules, rapl_j, watts
from escala.measurement.bench.device import NUMPY, Device
from escala.measurement.bench.probe import clocked
from escala.measurement.bench.ranks import Ranks

WINDOW_S: Final = 1.0
SPIN_CYCLES: Final = 10_000_000
MESSAGE_FLOATS: Final = 2**22
SIDE: Final = {"cpu": 1024, "cuda": 8192}


def power(device: Device, ranks: Ranks) -> Power:
    """Idle, spinning, in products and in all-reduces, a second each, all ranks at once; of the first rank.

    'no counter' where the first rank has none that can be read.
    """
    name, read = _counter(device) if ranks.rank == 0 else (NO_COUNTER.counter, _nothing_read)
    if not ranks.most(float(read() is not None)):
        return NO_COUNTER
    return Power(
        counter=name,
        idle_w=watts(read, lambda: time.sleep(WINDOW_S)),
        spinning_w=watts(read, _until_over(_spin(device))),
        busy_w=watts(read, _until_over(_multiplied(device))),
        collective_w=watts(read, _reduced(device, ranks)) if ranks.groups else None,
    )


def _counter(device: Device) -> tuple[str, Joules]:
    """The first counter that can be read, else the last, which cannot."""
    counters: tuple[tuple[str, Joules], ...] = (("NVML", _nvml(device)), ("RAPL", lambda: rapl_j(RAPL)))
    return next((each for each in counters if each[1]() is not None), counters[-1])


def _until_over(work: Callable[[], object]) -> Callable[[], None]:
    """Again and again for the length of the window."""

    def repeated() -> None:
        end = time.perf_counter() + WINDOW_S
        while time.perf_counter() < end:
            work()

    return repeated


def _spin(device: Device) -> Callable[[], object]:
    """Waiting busily: a kernel that counts cycles, or one thread of a processor that looks at the clock."""
    if device.kind == "cpu":
        return time.perf_counter
    import torch

    return lambda: (torch.cuda._sleep(SPIN_CYCLES), device.wait())


def _multiplied(device: Device) -> Callable[[], object]:
    multiply = _product(device, SIDE[device.kind])
    return lambda: (multiply(), device.wait())


def _reduced(device: Device, ranks: Ranks) -> Callable[[], None]:
    """All-reduces of one message, as many in every rank as fill the window."""
    import torch
    import torch.distributed as dist

    message, group = torch.zeros(MESSAGE_FLOATS, device=device.place), ranks.groups[-1].handle

    def reduce() -> None:
        dist.all_reduce(message, group=group)
        device.wait()

    reduce()
    count = max(1, int(WINDOW_S / ranks.most(clocked(reduce, device.wait))))

    def repeated() -> None:
        for _ in range(count):
            reduce()

    return repeated


def _nothing_read() -> None:
    """Ranks other than the first work and read nothing."""


def _product(device: Device, side: int) -> Callable[[], object]:
    if device.library == NUMPY:
        square = np.random.default_rng(0).standard_normal((side, side), np.float32)
        return lambda: square @ square
    import torch

    matrix = torch.randn(side, side, device=device.place)
    return lambda: torch.mm(matrix, matrix)


def _nvml(device: Device) -> Joules:
    """The energy counter of one GPU in joules; None wherever the library or the device lacks it."""
    library, handle = _opened(_uuid(device))

    def read() -> float | None:
        count = ctypes.c_ulonglong()
        if library is None or library.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(count)) != 0:
            return None
        return count.value * 1e-3

    return read


def _uuid(device: Device) -> object:
    if device.kind == "cpu":
        return None
    import torch

    return getattr(torch.cuda.get_device_properties(device.index), "uuid", None)


def _opened(uuid: object) -> tuple[Any, ctypes.c_void_p]:
    handle = ctypes.c_void_p()
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1") if uuid is not None else None
    except OSError:
        library = None
    if library is None or library.nvmlInit_v2() != 0:
        return None, handle
    found = library.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode(), ctypes.byref(handle))
    return (library if found == 0 else None), handle
