"""Own runs to a calibration, from and to files. Fits nothing itself."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from escala.calibration.solving import ROUNDS
from escala.errors import InvalidInput
from escala.measurement.calibrate import calibrated
from escala.measurement.calibration_record import Calibrated
from escala.report.calibration_file import write_calibration
from escala.report.pairs import read_pairs


def calibration_answer(names: Sequence[str], progress: Callable[[str, float], None]) -> Calibrated:
    """What the named runs make of the numbers."""
    found, today = read_pairs(names), datetime.now(UTC).date().isoformat()
    return calibrated(found.pairs, today, found.digest, _with_time_left(progress))


def _with_time_left(progress: Callable[[str, float], None]) -> Callable[[str, float], None]:
    """From the share of a round that is done to seconds left: past * (1 / done of all rounds - 1)."""
    began_s, rounds = time.monotonic(), 0

    def told(label: str, share: float) -> None:
        nonlocal rounds
        done = (rounds + share) / ROUNDS
        rounds += share == 1.0
        progress(label, (time.monotonic() - began_s) * (1.0 / done - 1.0))

    return told


def save_calibration(given: Calibrated, path: str) -> None:
    """Write the calibration, never over a run that was read."""
    read = {part for name in given.calibration.runs for part in (name, *name.split(":"))}
    if any(Path(path).resolve() == Path(each).resolve() for each in read):
        raise InvalidInput(f"{path} is a file that was read; name another file to write")
    write_calibration(given.calibration, path)
