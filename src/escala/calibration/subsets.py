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


SCALES: Final = (1, 8, 64, 512, 4096)


def scale(reading: Reading) -> str:
    """How many devices ran the row, in powers of eight."""
    devices = reading.problem.cluster.devices
    if devices == 1:
        return "1 device"
    low = max(each for each in SCALES if each < devices)
    high = next((each for each in SCALES if each >= devices), None)
    return f"{low + 1:,} to {high:,} devices" if high else f"more than {low:,} devices"
