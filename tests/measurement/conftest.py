"""A module with the shape of pynvml: two GPUs whose counters a test sets."""

from types import SimpleNamespace
from typing import Any

import pytest


class NVMLError(Exception):
    """As pynvml's."""


class Fake:
    """What of pynvml is used; a number that is None is not supported by the device."""

    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, devices: int = 2, broken: str = "") -> None:
        self.devices, self.broken = devices, broken
        self.power_mw: int | None = 350_000
        self.energy_mj: int | None = 1_000_000_000
        self.busy_percent, self.reasons = 80, 0x04

    def nvmlInit(self) -> None:  # noqa: N802 # pynvml's name
        if self.broken:
            raise NVMLError(self.broken)

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 # pynvml's name
        return self.devices

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
            "nvmlDeviceGetName": lambda handle: b"NVIDIA H100 80GB HBM3",
            "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=self.busy_percent, memory=30),
            "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=70 << 30, total=80 << 30),
            "nvmlDeviceGetPowerUsage": lambda handle: self._told(self.power_mw),
            "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
            "nvmlDeviceGetTotalEnergyConsumption": lambda handle: self._told(self.energy_mj),
            "nvmlDeviceGetClockInfo": lambda handle, kind: {1: 1980, 2: 2619}[kind],
            "nvmlDeviceGetTemperature": lambda handle, sensor: 61,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: self.reasons,
        }
        return answers[name]

    @staticmethod
    def _told(value: int | None) -> int:
        if value is None:
            raise NVMLError("Not Supported")
        return value


@pytest.fixture
def nvml() -> type[Fake]:
    """The module without a GPU behind it."""
    return Fake
