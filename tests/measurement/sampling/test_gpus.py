"""What NVML says becomes base units; what it does not say is None or a gap with its reason."""

import sys
from typing import Any

import pytest

from escala.measurement.sampling.gpus import Gpus, find_gpus


def found(fake: Any, **environment: str) -> tuple[Gpus, str]:
    gpus, gap = find_gpus(fake, environment)
    assert gpus is not None
    return gpus, gap


def test_numbers_of_nvml_in_base_units(nvml):
    fake = nvml()
    gpus, gap = found(fake)

    first = gpus.use()[0]
    fake.energy_mj += 500_000
    one = gpus.use()[0]

    assert (gap, len(gpus.use())) == ("", 2)
    assert (one.index, one.uuid, one.name) == (0, "GPU-0", "NVIDIA H100 80GB HBM3")
    assert (one.busy_share, one.memory_busy_share) == (0.8, 0.3)
    assert (one.used_bytes, one.memory_bytes) == (70 * 2**30, 80 * 2**30)
    assert (one.power_w, one.power_cap_w) == (350.0, 700.0)
    assert (one.sm_clock_hz, one.memory_clock_hz, one.temperature_celsius) == (1.98e9, 2.619e9, 61.0)
    assert one.held_back_by == ("power cap",)
    # 500,000 mJ more than at the first reading
    assert (first.energy_j, one.energy_j) == (0.0, 500.0)


def test_what_a_gpu_does_not_tell_is_none(nvml):
    fake = nvml()
    fake.power_mw = fake.energy_mj = None

    one = found(fake)[0].use()[0]
    assert (one.power_w, one.energy_j, one.busy_share) == (None, None, 0.8)


@pytest.mark.parametrize(
    ("visible", "indices"), [("1", [1]), ("1,0", [1, 0]), ("GPU-1", [1]), ("0, 1", [0, 1]), (None, [0, 1])]
)
def test_only_visible_gpus_are_sampled(nvml, visible: str | None, indices: list[int]):
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}

    assert [each.index for each in found(nvml(), **environment)[0].use()] == indices


def test_gpus_that_nvml_does_not_know_are_said(nvml):
    gpus, gap = found(nvml(), CUDA_VISIBLE_DEVICES="MIG-7")

    assert len(gpus.use()) == 2
    assert gap == "all GPUs are sampled: NVML does not know those of CUDA_VISIBLE_DEVICES"


def test_no_gpu_is_a_gap_with_its_reason(nvml, monkeypatch: pytest.MonkeyPatch):
    assert find_gpus(nvml(), {"CUDA_VISIBLE_DEVICES": ""}) == (None, "no GPU is visible to the command")
    assert find_gpus(nvml(devices=0), {}) == (None, "no GPU is visible to the command")
    assert find_gpus(nvml(broken="Driver Not Loaded"), {}) == (
        None,
        "no GPU: the NVIDIA driver says 'Driver Not Loaded'",
    )
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert find_gpus(None, {}) == (None, "no GPU: nvidia-ml-py is not installed")
