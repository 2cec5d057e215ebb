"""How good weights are: on the test set, by label, for clients with their mixes of labels. Needs torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import nn

from escala.federated import local
from escala.federated.task import Task
from escala.federated.weights import F32
from escala.model.columns import F64, I64

AT_ONCE: Final = 4096
"""Test samples in memory at a time."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Score:
    """Mean loss, share of labels that are met, and that share for each label; NaN where none is tested."""

    loss: float
    accuracy: float
    by_label: F64


def score(module: nn.Module, task: Task, weights: Mapping[str, F32]) -> Score:
    """Loss and accuracy on the test set."""
    local.load(module, weights)
    module.eval()
    losses, met = [], []
    with torch.no_grad():
        for first in range(0, len(task.test_labels), AT_ONCE):
            rows = slice(first, first + AT_ONCE)
            outputs = module(local.tensor(task.test_inputs[rows], module))
            labels = local.tensor(task.test_labels[rows], module)
            losses.append(task.loss(outputs, labels).double().cpu().numpy())
            met.append((outputs.argmax(dim=-1) == labels).cpu().numpy())
    is_met = np.concatenate(met).ravel()
    return Score(
        loss=float(np.concatenate(losses).mean()),
        accuracy=float(is_met.mean()),
        by_label=_by_label(is_met, task.test_labels.ravel(), task.classes),
    )


def fairness(found: Score, counts: I64, kind: I64, names: tuple[str, ...]) -> dict[str, float]:
    """Accuracy that clients meet on labels mixed as theirs: mean of the worst tenth, spread, by class.

    A client's is the mean of accuracies by label, weighted by its samples of each. The spread is from the
    10th to the 90th percentile. Shapes: counts (clients, labels), kind (clients,), the place of its name.
    """
    each = own_accuracy(found.by_label, counts)
    low, high = np.percentile(each, (10, 90))
    result = {
        "accuracy_worst_tenth": float(each[each <= low].mean()),
        "accuracy_spread": float(high - low),
    }
    if len(names) > 1:
        result |= {f"accuracy_{name}": float(each[kind == at].mean()) for at, name in enumerate(names)}
    return result


def own_accuracy(by_label: F64, counts: I64) -> F64:
    """Sum over labels of samples * accuracy / sum of samples, over tested labels. Shape (clients,)."""
    is_tested = np.isfinite(by_label)
    tested = counts[:, is_tested]
    return np.asarray(tested @ by_label[is_tested] / np.maximum(tested.sum(axis=1), 1), np.float64)


def _by_label(is_met: F64, labels: I64, classes: int) -> F64:
    met = np.bincount(labels, weights=is_met, minlength=classes)
    tested = np.bincount(labels, minlength=classes)
    return np.divide(met, tested, out=np.full(classes, np.nan), where=tested > 0)
