"""What changing one thing gains, published and predicted: rows of one table that are alike in all else."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.calibration.reading import Reading
from escala.calibration.scoring import Prediction

BENCHMARKS: Final = "CSC ml-benchmarks"
WIDE: Final = ("fp32", "tf32")
PLAIN: Final = "PyTorch DDP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Speed of one choice over another on one device: geometric means over pairs of rows."""

    of: str
    over: str
    accelerator: str
    devices: str
    pairs: int
    published: float
    predicted: float


Times = Mapping[str, tuple[float, float]]


def precision_gains(predictions: Iterable[Prediction]) -> tuple[Gain, ...]:
    """fp16 over fp32 or TF32, of convolutional networks under the same software."""
    runs = _alike(predictions, lambda r: (r.row.framework, r.row.tags.get("data")), lambda r: r.row.precision)
    return _gains(runs, lambda label: label == "fp16", lambda label: label in WIDE)


def engine_gains(predictions: Iterable[Prediction]) -> tuple[Gain, ...]:
    """Other software over plain DDP, of convolutional networks in the same precision and PyTorch version."""
    runs = _alike(predictions, lambda r: (r.row.precision, _version(r)), _engine)
    return _gains(runs, lambda label: label != PLAIN, lambda label: label == PLAIN)


def _engine(reading: Reading) -> str:
    return reading.row.framework.partition(",")[0]


def _version(reading: Reading) -> str:
    return reading.row.framework.partition(",")[2] + reading.row.tags.get("data", "")


Runs = Mapping[Hashable, Times]


def _alike(
    predictions: Iterable[Prediction], same: Callable[[Reading], Hashable], label: Callable[[Reading], str]
) -> Runs:
    """Published and predicted seconds by label, of rows that are alike: geometric means of repeats."""
    found: dict[Hashable, dict[str, list[tuple[float, float]]]] = {}
    for each in predictions:
        of = each.reading
        if of.row.source.startswith(BENCHMARKS) and of.arch == "cnn" and of.is_trusted and of.step_s:
            place = (of.problem.accelerator.name, of.problem.cluster.devices)
            key = (*place, of.row.model, of.row.global_batch, same(of))
            found.setdefault(key, {}).setdefault(label(of), []).append((of.step_s, each.step_s))
    return {key: {name: _mean(times) for name, times in runs.items()} for key, runs in found.items()}


def _mean(times: Sequence[tuple[float, float]]) -> tuple[float, float]:
    published, predicted = np.exp(np.log(times).mean(axis=0))
    return float(published), float(predicted)


def _gains(runs: Runs, is_choice: Callable[[str], bool], is_base: Callable[[str], bool]) -> tuple[Gain, ...]:
    """Ratios of seconds by choice, device and number of devices (one, or more)."""
    ratios: dict[tuple[str, str, str, str], list[tuple[float, float]]] = {}
    for key, times in runs.items():
        assert isinstance(key, tuple)
        devices = "1" if key[1] == 1 else "more"
        for choice in filter(is_choice, times):
            for base in filter(is_base, times):
                pair = tuple(a / b for a, b in zip(times[base], times[choice], strict=True))
                ratios.setdefault((key[0], devices, choice, base), []).append((pair[0], pair[1]))
    return tuple(_gain(key, pairs) for key, pairs in sorted(ratios.items()))


def _gain(key: tuple[str, str, str, str], pairs: Sequence[tuple[float, float]]) -> Gain:
    published, predicted = _mean(pairs)
    return Gain(
        accelerator=key[0],
        devices=key[1],
        of=key[2],
        over=key[3],
        pairs=len(pairs),
        published=published,
        predicted=predicted,
    )
