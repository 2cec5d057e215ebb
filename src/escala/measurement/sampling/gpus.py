"""What NVML tells of the GPUs that the command may use. Written from NVIDIA's header; never run on a GPU."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final

from escala.measurement.sampling.sample import GpuUse

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
MHZ: Final = 1e6
HELD_BACK: Final = {
    0x02: "set clocks",
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}
"""Bits of nvmlClocksEventReasons but idle, which is no fault. Source: nvml.h, clocks event reasons."""


@dataclass(slots=True)
class Gpus:
    """GPUs by the handles of NVML; joules are counted from the first reading."""

    nvml: Any
    handles: Mapping[int, Any]
    began_j: dict[int, float] = field(default_factory=dict)

    def use(self) -> tuple[GpuUse, ...]:
        """One entry for each GPU; what a GPU does not tell is None."""
        return tuple(self._one(index, handle) for index, handle in self.handles.items())

    def _one(self, index: int, handle: Any) -> GpuUse:
        nvml = self.nvml
        rates = self._asked(nvml.nvmlDeviceGetUtilizationRates, handle)
        memory = self._asked(nvml.nvmlDeviceGetMemoryInfo, handle)
        return GpuUse(
            index=index,
            uuid=_text(self._asked(nvml.nvmlDeviceGetUUID, handle)),
            name=_text(self._asked(nvml.nvmlDeviceGetName, handle)),
            busy_share=None if rates is None else rates.gpu / 100,
            memory_busy_share=None if rates is None else rates.memory / 100,
            used_bytes=None if memory is None else float(memory.used),
            memory_bytes=None if memory is None else float(memory.total),
            power_w=self._number(1e-3, nvml.nvmlDeviceGetPowerUsage, handle),
            power_cap_w=self._number(1e-3, nvml.nvmlDeviceGetEnforcedPowerLimit, handle),
            energy_j=self._energy_j(index, handle),
            sm_clock_hz=self._number(MHZ, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            memory_clock_hz=self._number(MHZ, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            temperature_celsius=self._number(
                1.0, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU
            ),
            held_back_by=self._held_back_by(handle),
        )

    def _energy_j(self, index: int, handle: Any) -> float | None:
        counted_j = self._number(1e-3, self.nvml.nvmlDeviceGetTotalEnergyConsumption, handle)
        return None if counted_j is None else counted_j - self.began_j.setdefault(index, counted_j)

    def _held_back_by(self, handle: Any) -> tuple[str, ...]:
        bits = self._asked(self.nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0
        return tuple(name for bit, name in HELD_BACK.items() if int(bits) & bit)

    def _number(self, factor: float, ask: Callable[..., Any], *arguments: Any) -> float | None:
        found = self._asked(ask, *arguments)
        return None if found is None else float(found) * factor

    def _asked(self, ask: Callable[..., Any], *arguments: Any) -> Any:
        """The answer of NVML; None where the device or the driver does not know."""
        try:
            return ask(*arguments)
        except self.nvml.NVMLError:
            return None


def find_gpus(
    nvml: ModuleType | None = None, environment: Mapping[str, str] = os.environ
) -> tuple[Gpus | None, str]:
    """The GPUs that CUDA_VISIBLE_DEVICES names, all where it names none; or None, and why."""
    try:
        nvml = nvml or _library()
        nvml.nvmlInit()
        handles = {i: nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())}
    except ModuleNotFoundError:
        return None, "no GPU: nvidia-ml-py is not installed"
    except nvml.NVMLError as error:  # type: ignore[union-attr] # it is a module where NVML itself answers
        return None, f"no GPU: the NVIDIA driver says '{error}'"
    names = [name.strip() for name in environment.get(VISIBLE, ",".join(map(str, handles))).split(",")]
    uuids = {_text(nvml.nvmlDeviceGetUUID(handle)): index for index, handle in handles.items()}
    chosen = [int(name) if name.isdigit() else uuids.get(name) for name in names if name]
    if any(index not in handles for index in chosen):
        return Gpus(nvml, handles), f"all GPUs are sampled: NVML does not know those of {VISIBLE}"
    kept = {index: handles[index] for index in chosen if index is not None}
    return (Gpus(nvml, kept), "") if kept else (None, "no GPU is visible to the command")


def _library() -> Any:
    import pynvml

    return pynvml


def _text(given: Any) -> str:
    """A name as text; older bindings give bytes."""
    return given.decode("utf-8", "replace") if isinstance(given, bytes) else str(given or "")
