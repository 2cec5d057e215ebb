"""The critical batch that published runs let expect. Knows runs and a law, measures nothing.

The scale is computed from the rows of runs.csv whenever it is asked for; nothing is stored twice.
"""

import csv
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from escala.catalog.loader import RATIO, Entry, data_file, entries
from escala.model.targets import Critical, critical_tokens, fitted_critical, fitted_scale
from escala.model.workload import Method, Workload

CHECKS: Final = ("llama-3.1-8b",)
"""Studies that no prior is made of: what the prior says of them is a prediction."""
TOKENS, IMAGES = "tokens", "images"


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Runs of one job to one target: samples by batch, tokens of a sample (1 for an image)."""

    name: str
    samples_are: str
    sample_tokens: float
    batches: tuple[float, ...]
    samples: tuple[float, ...]

    @property
    def critical(self) -> tuple[float, float]:
        """Critical batch and fewest samples."""
        return fitted_critical(np.array(self.batches), np.array(self.samples))


@cache
def studies() -> tuple[Study, ...]:
    """Every study of the catalog."""
    lines = data_file("batches").joinpath("runs.csv").read_text(encoding="utf-8").splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    return tuple(
        Study(
            name=name,
            samples_are=next(row["samples_are"] for row in rows if row["study"] == name),
            sample_tokens=next(float(row["sample_tokens"]) for row in rows if row["study"] == name),
            batches=tuple(float(row["batch"]) for row in rows if row["study"] == name),
            samples=tuple(float(row["samples"]) for row in rows if row["study"] == name),
        )
        for name in dict.fromkeys(row["study"] for row in rows)
    )


def overhead(workload: Workload) -> float:
    """Share of more samples from which on a batch is said to buy speed with samples."""
    return _known(IMAGES if workload.network.is_image else TOKENS).quantity("overhead", RATIO).value


def critical_batch(workload: Workload) -> Critical | None:
    """The prior of a workload's critical batch in samples; None where nothing published tells it."""
    if why_unknown(workload):
        return None
    if workload.network.is_image:
        return _ranged(_image_batch(), IMAGES, "ResNet-50 on ImageNet, MLPerf reference points")
    assert workload.total_tokens is not None
    exponent, tokens = _exponent(), float(workload.sequence_tokens)
    batch_tokens = workload.global_batch * tokens
    found = critical_tokens(_scale(exponent), exponent, workload.total_tokens, batch_tokens)
    return _ranged(found / tokens, TOKENS, f"Zhang 2024, tokens of the run ^ {exponent:g}")


def why_unknown(workload: Workload) -> str:
    """Why there is no prior; empty where there is one."""
    if workload.method is not Method.PRETRAIN:
        return "no published law for fine-tuning"
    if not workload.network.is_image and workload.total_tokens is None:
        return "it grows with the tokens of the run, which nobody gave"
    return ""


def law_tokens(tokens: float) -> float:
    """Critical batch in tokens of a run with a small batch, by the law alone."""
    return float(_scale(_exponent()) * tokens ** _exponent())


def _known(kind: str) -> Entry:
    return entries("batches")[kind]


def _exponent() -> float:
    return _known(TOKENS).quantity("exponent", RATIO).value


def _ranged(batch: float, kind: str, source: str) -> Critical:
    factor = _known(kind).quantity("range", RATIO).value
    return Critical(batch=batch, low=batch / factor, high=batch * factor, source=source)


def _of_kind(kind: str) -> list[Study]:
    return [each for each in studies() if each.samples_are == kind and each.name not in CHECKS]


@cache
def _image_batch() -> float:
    return _of_kind(IMAGES)[0].critical[0]


@cache
def _scale(exponent: float) -> float:
    """Scale of the law: critical batch in tokens over the fewest tokens ^ exponent, mean over runs."""
    found = np.array([each.critical for each in _of_kind(TOKENS)])
    each_tokens = np.array([each.sample_tokens for each in _of_kind(TOKENS)])
    return fitted_scale(found[:, 1] * each_tokens, found[:, 0] * each_tokens, exponent)
