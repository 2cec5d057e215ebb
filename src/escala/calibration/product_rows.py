"""Published best products of matrices beside the share of the peak that the model gives to large ones.

The best of thousands of shapes is an upper bound of what shapes of training reach, and runs on one device
that does nothing else: the model's share, which published runs fit, may well be lower, hardly higher.
"""

from typing import Final

from escala.calibration.failure import Unreadable
from escala.calibration.operations import Cells, Operation, device_of, needed, text
from escala.catalog.accelerators import PEAKS, accelerator
from escala.catalog.fitted import factor_of
from escala.model.cluster import Accelerator
from escala.model.efficiency import gemm_share, peak_flop_per_s

_FIELDS: Final = {"fp32": ("fp32_efficiency",), "tf32": ("gemm_efficiency", "tf32_efficiency")}
_SCALED: Final = ("gemm_efficiency", "fp8_efficiency")


def read_product(name: str, row: Cells) -> Operation:
    """The best measured product as a share of the catalog's peak, beside the model's share."""
    chip, kind = accelerator(device_of(text(row, "accelerator"))), text(row, "dtype")
    peak = peak_flop_per_s(chip, kind) if kind in PEAKS else None
    if peak is None:
        raise Unreadable("number format without a peak in the catalog")
    share = gemm_share(chip, kind)
    return Operation(
        id=name,
        operation=f"product, {kind}",
        of=chip.name,
        unit="share of the peak",
        published=needed(text(row, "mamf_tflops")) * 1e12 / peak,
        predicted=share,
        unfitted=share / fit_factor(chip, kind),
        source=text(row, "source"),
    )


def fit_factor(chip: Accelerator, kind: str) -> float:
    """What the fit makes of the share of a format: the product of the factors on its parts."""
    fields = _FIELDS.get(kind, _SCALED if kind in ("fp8", "fp4") else _SCALED[:1])
    names, product = (chip.name, chip.architecture), 1.0
    for field in fields:
        product *= factor_of("accelerator", names, field) or 1.0
    return product
