"""Steps that wait for their samples: how fast a loader feeds the devices. Knows rates, no file."""

import numpy as np

from escala.model.columns import F64


def samples_per_s(sample_s: float) -> float:
    """Samples in a second of a loader that needs so long for each: 1 / seconds."""
    return 1.0 / sample_s


def fed_s(batch: F64 | float, samples_per_s: F64 | float, nodes: F64 | float) -> F64:
    """Seconds that loaders need for one batch: batch / (samples a second of one node * nodes)."""
    return np.asarray(batch / (samples_per_s * nodes), np.float64)


def with_loader_s(step_s: F64, fed: F64) -> F64:
    """A step whose loader works beside it: the slower of the two."""
    return np.maximum(step_s, fed)
