"""Number formats of training: what each recipe computes in, keeps high, and moves. Knows no device."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from escala.model.plan import Plans, Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionRecipe:
    """One recipe: bytes of a computed weight, of an activation, of a linear input, and which peak it uses.

    `peak` names the Accelerator field of the linear maps; attention, head and router use `high_peak`.
    `cast_passes` counts extra memory passes over the hidden stream per layer for casting and scaling.
    """

    name: str
    peak: str
    high_peak: str
    compute_bytes: float
    linear_bytes: float
    is_scaled: bool = False
    cast_passes: float = 0.0
    high: str = "norms, softmax, loss and reductions in fp32"


# cast_passes 8: published fp8 runs of torchtitan, NeMo and Megatron-Bridge are explained by eight extra
# passes over the hidden stream for casts and scales (step-time study on 1,590 published rows, 2026-11-30)
_SCALED: Final = "attention, head, embedding, router and norms in bf16; gradients reduced in bf16 or fp32"
RECIPES: Final = (
    PrecisionRecipe(name="fp32", peak="fp32", high_peak="fp32", compute_bytes=4, linear_bytes=4),
    PrecisionRecipe(name="tf32", peak="tf32", high_peak="tf32", compute_bytes=4, linear_bytes=4),
    PrecisionRecipe(name="fp16", peak="fp16", high_peak="fp16", compute_bytes=2, linear_bytes=2),
    PrecisionRecipe(name="bf16", peak="bf16", high_peak="bf16", compute_bytes=2, linear_bytes=2),
    *(
        PrecisionRecipe(
            name=name,
            peak=peak,
            high_peak="bf16",
            compute_bytes=2,
            linear_bytes=linear_bytes,
            is_scaled=True,
            cast_passes=8.0,
            high=_SCALED,
        )
        for name, peak, linear_bytes in (
            ("fp8-tensorwise", "fp8", 1.0),
            ("fp8-rowwise", "fp8", 1.0),
            ("fp8-blockwise", "fp8", 1.0),
            ("mxfp8", "fp8", 1.0 + 1 / 32),
            ("nvfp4", "fp4", 0.5 + 1 / 16),
        )
    ),
)


def compute_bytes(codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Bytes of one number that is computed and sent, for precision codes."""
    return np.array([each.compute_bytes for each in RECIPES], np.float64)[codes]


def wide_share(plans: Plans, layers: int) -> NDArray[np.float64]:
    """Share of the layers of a rank that a scaled recipe leaves in 16 bit: wide layers * stages / layers.

    They are all on the stage of one end, which sets the pace, as far as they have room there. 0 for formats
    that are not scaled.
    """
    share = np.minimum(plans.wide_layers * plans.pp / max(layers, 1), 1.0)
    return np.where(is_scaled(plans.precision), share, 0.0)


def in_sixteen_bit(plans: Plans) -> Plans:
    """The same plans without scaled recipes."""
    plain = np.where(is_scaled(plans.precision), int(Precision.BF16), plans.precision)
    return replace(plans, precision=plain)


def is_scaled(codes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether precision codes are scaled recipes."""
    return np.array([each.is_scaled for each in RECIPES], np.bool_)[codes]


def recipe(precision: Precision | int) -> PrecisionRecipe:
    """The recipe of a precision code."""
    return RECIPES[int(precision)]


def code(name: str) -> Precision:
    """The precision code of a recipe name; 'fp8' means fp8-tensorwise."""
    wanted = {"fp8": "fp8-tensorwise"}.get(name, name)
    return Precision([r.name for r in RECIPES].index(wanted))
