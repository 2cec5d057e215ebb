"""Sets of rows that are judged apart: well described ones, and by size of machine. Scores nothing."""

from typing import Final

from escala.calibration.reading import Reading
from escala.model.interval import Regime

MODERN: Final = frozenset({"ampere", "ada", "hopper", "blackwell", "tpu"})
UNIMPORTANT: Final = frozenset({"link", "device memory", "recompute"})
ODD: Final = frozenset({Regime.SLOW, Regime.ADAPTED})


def is_well_described(reading: Reading) -> bool:
    """A dense transformer with its layout printed, on Ampere or later or a TPU.

    Nothing is assumed but link, device memory and recompute; neither slow nor with adapters.
    """
    return (
        reading.arch == "dense_transformer"
        and set(reading.imputed) <= UNIMPORTANT
        and reading.problem.accelerator.architecture in MODERN
        and reading.regime not in ODD
    )


SCALES: Final = {
    "1 device": 1,
    "2 to 8 devices": 8,
    "9 to 64 devices": 64,
    "65 to 512 devices": 512,
    "513 to 4,096 devices": 4096,
}
SIZES: Final = (*SCALES, "more than 4,096 devices")


def scale(reading: Reading) -> str:
    """How many devices ran the row, in powers of eight."""
    devices = reading.problem.cluster.devices
    return next((name for name, most in SCALES.items() if devices <= most), SIZES[-1])
