"""FLOP of one step, as torch counts them: products, convolutions, full attention. Knows no clock.

What ran is counted, so recomputed layers and scores count again. Compiled kernels hide their products.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from escala.measurement.job.job import Runner


def counted_flop(runner: Runner) -> float | None:
    """FLOP of one step on this rank; None where torch saw none."""
    with FlopCounterMode(display=False, custom_mapping=_processor_attention()) as counter:
        runner.step()
    return float(counter.get_total_flops()) or None


def _processor_attention() -> dict[Any, Callable[..., int]]:
    """The attention kernels of processors, which torch's own table lacks (2.13), by its own formulas."""

    def forward(query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> int:
        return int(sdpa_flop_count(query, key, value))

    def backward(gradient: Any, query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> int:
        return int(sdpa_backward_flop_count(gradient, query, key, value))

    return {
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: forward,
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: backward,
    }
