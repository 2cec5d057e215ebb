"""What a traced block holds and moves, for many plans, and what its plans lack. Knows no part's meaning."""

from typing import Final

import numpy as np

from escala.model.columns import F64, I64, Bool
from escala.model.network import Block
from escala.model.plan import Plans
from escala.model.precision import compute_bytes
from escala.model.traces import Footprint, Traced

FORMATS: Final = ("fp32", "autocast", "bf16")
NOT_TRACED: Final = ("tp", "pp", "cp", "ep", "etp", "selective", "compile", "fused-loss", "fp8")
"""What needs to know the parts of a network or another software, by the names of `rejects.needs`."""


def traced_part(block: Block) -> Traced | None:
    """The traced numbers of a block; None for a block that is described by its parts."""
    return next((part for part in block.parts if isinstance(part, Traced)), None)


def format_codes(plans: Plans, autocasts: Bool | bool = False) -> I64:
    """Which of `FORMATS` each plan runs in: 16 bit under autocast or as a whole, else fp32."""
    sixteen = np.where(autocasts, FORMATS.index("autocast"), FORMATS.index("bf16"))
    return np.asarray(np.where(compute_bytes(plans.precision) > 2.0, 0, sixteen), np.int64)


def footprint_bytes(part: Traced, codes: I64, samples: F64, name: str) -> F64:
    """Bytes of a micro-batch: bytes of a sample * samples + those of any batch, in the format of each plan.

    A format that was not seen stands as the largest of the others; its plans carry a reject bit.
    """
    seen = [getattr(part, each) for each in FORMATS]
    one, once = (
        _filled([_value(each, key) for each in seen]) for key in (f"{name}_bytes", f"{name}_once_bytes")
    )
    return np.asarray(one[codes] * samples + once[codes], np.float64)


def was_not_seen(part: Traced, codes: I64) -> Bool:
    """Plans in whose number format the block did not run."""
    return np.array([getattr(part, each) is None for each in FORMATS])[codes]


def is_convolutional(part: Traced) -> bool:
    """Whether convolutions do most of the work of a block."""
    return sum(each.flop for each in part.products if each.channels) > part.flop / 2


def _value(seen: Footprint | None, name: str) -> float:
    return np.nan if seen is None else float(getattr(seen, name, 0.0))


def _filled(values: list[float]) -> F64:
    column = np.array(values)
    return np.where(np.isnan(column), np.nanmax(column), column)
