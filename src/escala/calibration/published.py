"""From the printed quantity to seconds of a step and bytes: which column, by which convention of FLOP.

Conventions differ by source by up to 4/3 and more: TFLOP/s and utilisation are turned back into seconds with
the work that the source counted. Step time, tokens/s and samples/s need no convention and come first.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from escala.calibration.failure import Unreadable
from escala.calibration.rows import Row
from escala.calibration.software import Counter, Software
from escala.model.flops import forward_flop, model_flop, reference_peak_flop_per_s
from escala.model.problem import Problem
from escala.units import GIB


class Convention(StrEnum):
    """Which work a source counts in TFLOP/s and utilisation."""

    MODEL = "model: full attention, output layer, no recompute"
    HARDWARE = "hardware: recompute counted, 96 B s L h^2 (1 + s/6h + V/16Lh)"
    SIZE = "size: 8 N a token"
    HALVED = "model with halved causal attention"


class Quantity(StrEnum):
    """Which printed column the seconds come from."""

    STEP_TIME = "step time"
    TOKENS = "tokens/s"
    DEVICE_TOKENS = "tokens/s per device"
    SAMPLES = "samples/s"
    FLOP = "TFLOP/s"
    MFU = "MFU"
    HFU = "HFU"
    NONE = "none"


# By source; what is not listed counts model FLOP. README tables and papers of each source.
_CONVENTIONS: Final[Mapping[str, Convention]] = {
    r"sc21|megatron-lm readme \(202|mt-nlg|bloom.*production|glm-130b": Convention.HARDWARE,
    r"bigscience": Convention.SIZE,
    r"tiering|custom-model|tpu training recipes|ironwood": Convention.HALVED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Seconds of one step with the column and convention they come from, and the peak memory."""

    step_s: float | None
    quantity: Quantity
    convention: Convention | None
    memory_bytes: float | None
    counter: Counter
    ran_out: bool


def convention(row: Row) -> Convention:
    """Which work this source counts."""
    words = row.source.lower()
    return next(
        (kind for pattern, kind in _CONVENTIONS.items() if re.search(pattern, words)), Convention.MODEL
    )


def published(row: Row, problem: Problem, sw: Software, printed_tokens: int) -> Published:
    """What the row prints, in base units; `printed_tokens` is the sequence length that its rates count."""
    step_s, quantity = _step_s(row, problem, printed_tokens)
    memory_bytes, counter = _memory(row, sw)
    ran_out = re.search(r"\bOOM\b|out of memory", row.other) is not None
    if step_s is None and memory_bytes is None and not ran_out:
        raise Unreadable("no quantity to compare with")
    kind = convention(row) if quantity in (Quantity.FLOP, Quantity.MFU, Quantity.HFU) else None
    return Published(
        step_s=None if ran_out else step_s,
        quantity=quantity,
        convention=kind,
        memory_bytes=None if ran_out else memory_bytes,
        counter=counter,
        ran_out=ran_out,
    )


def _step_s(row: Row, problem: Problem, printed_tokens: int) -> tuple[float | None, Quantity]:
    samples, devices = problem.workload.global_batch, row.devices or 1
    tokens = float(samples * printed_tokens)
    rates = (
        (row.tokens_per_s, tokens, Quantity.TOKENS),
        (row.device_tokens_per_s, tokens / devices, Quantity.DEVICE_TOKENS),
        (row.samples_per_s, float(samples), Quantity.SAMPLES),
    )
    if row.step_s:
        return row.step_s, Quantity.STEP_TIME
    for rate, amount, quantity in rates:
        if rate:
            return amount / rate, quantity
    return _from_work(row, problem, devices)


def _from_work(row: Row, problem: Problem, devices: int) -> tuple[float | None, Quantity]:
    work, peak = counted_flop(row, problem), reference_peak_flop_per_s(problem)
    if row.device_tflop_per_s:
        return work / (row.device_tflop_per_s * 1e12 * devices), Quantity.FLOP
    if row.mfu_percent:
        return model_flop(problem.workload) / (row.mfu_percent / 100 * peak * devices), Quantity.MFU
    if row.hfu_percent:
        return work / (row.hfu_percent / 100 * peak * devices), Quantity.HFU
    return None, Quantity.NONE


def counted_flop(row: Row, problem: Problem) -> float:
    """FLOP of one step as the source counts them."""
    work = problem.workload
    match convention(row):
        case Convention.MODEL:
            return model_flop(work)
        case Convention.SIZE:
            return 8.0 * _parameters(row) * work.global_batch * work.sequence_tokens
        case Convention.HARDWARE:
            return _hardware_flop(problem)
        case Convention.HALVED:
            products, attention, head = forward_flop(work.network, work.sequence_tokens)
            return 3.0 * work.global_batch * (products + attention / 2 + head)


def _parameters(row: Row) -> float:
    try:
        return float(row.parameters_billion) * 1e9
    except ValueError:
        raise Unreadable("parameters that the source counts not printed") from None


def _hardware_flop(problem: Problem) -> float:
    """96 B s L h^2 (1 + s / 6h + V / 16 L h): Narayanan 2021, equation 3."""
    work, stack = problem.workload, problem.workload.network.main
    vocab = stack.head.outputs if stack.head else 0
    tokens, hidden, layers = work.sequence_tokens, stack.hidden, stack.layers
    extra = 1 + tokens / (6 * hidden) + vocab / (16 * layers * hidden)
    return 96.0 * work.global_batch * tokens * layers * hidden**2 * extra


# What "GB" means where it is not 1e9 bytes. nvidia-smi prints MiB, and BigScience's tables read 16 GB on
# cards of 16,160 MiB and 80 GB on cards of 81,251 MiB: thousands of MiB (the cards have fewer GiB than that).
_GB_BYTES: Final[Mapping[str, float]] = {r"bigscience": 1000.0 * 2**20}


def _unit_bytes(row: Row) -> float:
    if row.memory_unit.startswith("GiB"):
        return GIB
    words = row.source.lower()
    return next((size for pattern, size in _GB_BYTES.items() if re.search(pattern, words)), 1e9)


def _memory(row: Row, sw: Software) -> tuple[float | None, Counter]:
    if not row.memory:
        return None, sw.counter
    counter = Counter.DEVICE if "nvidia-smi" in row.memory_unit else sw.counter
    if "peak active" in row.memory_unit:
        counter = Counter.ALLOCATED
    return row.memory * _unit_bytes(row), counter
