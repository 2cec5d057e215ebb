"""The device that this rank times: which one, what its driver says, how to wait for it. Runs no work.

On cuda nothing here was ever run: written from the documents of PyTorch and nvidia-smi.
"""

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from escala import __version__
from escala.errors import InvalidInput
from escala.formats.bench_record import DeviceFacts, HostFacts
from escala.measurement.bench.host import usable_bytes, usable_cores
from escala.measurement.bench.probe import no_wait
from escala.measurement.bench.request import has_torch
from escala.measurement.bench.smi import smi, smi_facts, topology

FREQUENCIES: Final = Path("/sys/devices/system/cpu/cpu0/cpufreq")
KHZ: Final = 1e3
TORCH, NUMPY = "torch", "numpy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device: its kind, its index among those of the node, its memory, the library that works on it."""

    kind: str
    index: int
    memory_bytes: float
    threads: int
    library: str = TORCH

    @property
    def place(self) -> Any:
        """The device as torch names it."""
        import torch

        return torch.device(self.kind, self.index) if self.kind == "cuda" else torch.device("cpu")

    @property
    def wait(self) -> Callable[[], None]:
        """Waits until the device has done all that was given to it."""
        if self.kind == "cpu":
            return no_wait
        import torch

        return torch.cuda.synchronize  # type: ignore[no-any-return] # torch is not typed here


def present_kind(asked: str | None) -> str:
    """The kind of device to time: what was asked for if it is there, else cuda before cpu."""
    if not has_torch():
        return "cpu"
    import torch

    has_cuda = bool(torch.cuda.is_available())
    if asked == "cuda" and not has_cuda:
        raise InvalidInput("--device cuda: torch finds no CUDA device here; choose cpu, or mend the driver")
    return asked or ("cuda" if has_cuda else "cpu")


def device_of(kind: str, host: HostFacts, local_rank: int, local_size: int) -> Device:
    """The device of a rank: its GPU, or its share of the node's cores and memory."""
    if kind == "cuda":
        return _cuda_device(local_rank)
    threads, memory_bytes = max(1, usable_cores(host) // local_size), usable_bytes(host) / local_size
    if has_torch():
        import torch

        torch.set_num_threads(threads)
    library = TORCH if has_torch() else NUMPY
    return Device(kind=kind, index=0, memory_bytes=memory_bytes, threads=threads, library=library)


def device_facts(device: Device, host: HostFacts) -> DeviceFacts:
    """What the driver, or the kernel, says of the device."""
    if device.kind == "cuda":
        return _cuda_facts(device)
    return DeviceFacts(
        kind="cpu",
        name=f"{device.threads} thread{'s' * (device.threads > 1)} of {host.processor}",
        memory_bytes=device.memory_bytes,
        devices_in_node=1,
        threads=device.threads,
        clock_hz=_frequency("scaling_cur_freq"),
        most_clock_hz=_frequency("cpuinfo_max_freq"),
    )


def versions(device: Device) -> dict[str, str]:
    """Versions of what decides speed."""
    found = {"python": platform.python_version(), "numpy": version("numpy")}
    if device.library == TORCH:
        import torch

        found["torch"] = str(torch.__version__)
        if device.kind == "cuda":
            found["cuda"] = str(torch.version.cuda)
            found["cudnn"] = str(torch.backends.cudnn.version())
            found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return {"escala": __version__, **found}


def _cuda_device(local_rank: int) -> Device:
    import torch

    torch.cuda.set_device(local_rank)
    whole = float(torch.cuda.get_device_properties(local_rank).total_memory)
    return Device(kind="cuda", index=local_rank, memory_bytes=whole, threads=0)


def _cuda_facts(device: Device) -> DeviceFacts:
    import torch

    properties = torch.cuda.get_device_properties(device.index)
    return DeviceFacts(
        kind="cuda",
        name=str(properties.name),
        memory_bytes=device.memory_bytes,
        devices_in_node=torch.cuda.device_count(),
        topology=topology(),
        **smi_facts(smi(f"GPU-{properties.uuid}") if hasattr(properties, "uuid") else ""),
    )


def _frequency(name: str) -> float | None:
    file = FREQUENCIES / name
    text = file.read_text().strip() if os.access(file, os.R_OK) else ""
    return float(text) * KHZ if text.isdigit() else None
