"""Names of scalars that trainers give to TensorBoard, W&B, MLflow and CSV loggers. Knows no file format.

Source: the code that logs them. torchtitan components/metrics.py; Megatron-LM training.py (its writer);
Lightning ThroughputMonitor and DeviceStatsMonitor; MLflow and W&B system metrics.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from escala.measurement.logs.samples import Sample, Samples, What
from escala.units import GIB

# name (a group is the device), what it is, factor to base units
NAMES: Final[Sequence[tuple[str, What, float]]] = (
    (r"time_metrics/end_to_end\(s\)", What.STEP_S, 1.0),
    (r"iteration-time", What.STEP_S, 1.0),
    (r"throughput\(tps\)", What.TOKENS_PER_S_PER_DEVICE, 1.0),
    (r"tflops", What.FLOP_PER_S_PER_DEVICE, 1e12),
    (r"mfu\(%\)", What.MFU, 0.01),
    (r"memory/max_active\(GiB\)", What.ALLOCATED_BYTES, GIB),
    (r"memory/max_reserved\(GiB\)", What.RESERVED_BYTES, GIB),
    (r"mem-max-allocated-bytes", What.ALLOCATED_BYTES, 1.0),
    (r"mem-reserved-bytes", What.RESERVED_BYTES, 1.0),
    (r"world-size", What.DEVICES, 1.0),
    (r"batch-size", What.GLOBAL_BATCH, 1.0),
    (r"train/device/flops_per_sec", What.FLOP_PER_S_PER_DEVICE, 1.0),
    (r"train/device/mfu", What.MFU, 1.0),
    (r"train/device/samples_per_sec", What.SAMPLES_PER_S_PER_DEVICE, 1.0),
    (r"train/device/items_per_sec", What.TOKENS_PER_S_PER_DEVICE, 1.0),
    (r"DeviceStatsMonitor\.on_train_batch_end/allocated_bytes\.all\.peak", What.ALLOCATED_BYTES, 1.0),
    (r"DeviceStatsMonitor\.on_train_batch_end/reserved_bytes\.all\.peak", What.RESERVED_BYTES, 1.0),
    (r"(?:train[/_])?train_samples_per_second", What.SAMPLES_PER_S, 1.0),
    (r"system/gpu_(\d+)_power_usage_watts", What.POWER_W, 1.0),
    (r"system/gpu_(\d+)_memory_usage_megabytes", What.DEVICE_BYTES, 1e6),
    (r"system\.gpu\.(\d+)\.powerWatts", What.POWER_W, 1.0),
    (r"system\.gpu\.(\d+)\.memoryAllocatedBytes", What.DEVICE_BYTES, 1.0),
)
_PATTERNS: Final = tuple((re.compile(name), what, factor) for name, what, factor in NAMES)


@lru_cache(maxsize=4096)
def _meaning(name: str) -> tuple[What, float, str] | None:
    """What a scalar of that name is, its factor and its device."""
    for pattern, what, factor in _PATTERNS:
        found = pattern.fullmatch(name)
        if found is not None:
            return what, factor, f"gpu {found[1]}" if found.groups() else ""
    return None


def scalar(name: str, value: float, step: int | None, at_s: float | None) -> Samples:
    """The sample of a named scalar; nothing where the name is not known."""
    meaning = _meaning(name)
    if meaning is not None:
        what, factor, lane = meaning
        yield Sample(what, value * factor, step, lane, at_s)
