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

WINDOW_S: Final = 1.0
SIDE: Final = {"cpu": 1024, "cuda": 8192}


def power(device: Device) -> Power:
    """Idle and under matrix products, a second each; 'no counter' where none can be read."""
    for name, read in (("NVML", _nvml(device)), ("RAPL", lambda: rapl_j(RAPL))):
        if read() is not None:
            idle = watts(read, lambda: time.sleep(WINDOW_S))
            return Power(counter=name, idle_w=idle, busy_w=watts(read, _busy(device)))
    return NO_COUNTER


def _busy(device: Device) -> Callable[[], None]:
    multiply = _product(device, SIDE[device.kind])

    def work() -> None:
        end = time.perf_counter() + WINDOW_S
        while time.perf_counter() < end:
            multiply()
            device.wait()

    return work


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
