"""The rule table that practitioners start from: degrees by size of the network. Knows no machine, no time."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.model.columns import F64, I64


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualRule:
    """Tensor and pipeline degrees, from and to, for dense networks with fewer than so many parameters."""

    below_parameters: float
    tp: tuple[int, int]
    pp: tuple[int, int]


# Source: NVIDIA, Megatron-Bridge, skill "perf-parallelism-strategies", "Decision by Model Size", dense models
# (github.com/NVIDIA/skills, 2026). Its last size, 175-500B, stands for all above; degrees that it does not
# name are 1. Its table for mixtures of experts lists single networks and is left out.
USUAL_RULES: Final = (
    UsualRule(below_parameters=1e9, tp=(1, 1), pp=(1, 1)),
    UsualRule(below_parameters=10e9, tp=(2, 4), pp=(1, 1)),
    UsualRule(below_parameters=70e9, tp=(4, 8), pp=(2, 4)),
    UsualRule(below_parameters=175e9, tp=(8, 8), pp=(4, 8)),
    UsualRule(below_parameters=float("inf"), tp=(8, 8), pp=(8, 16)),
)


def rule_distance(parameters: float, tp: I64, pp: I64) -> F64:
    """Doublings of TP plus doublings of PP from a layout to the rule's range; 0 inside. Shape (n,)."""
    rule = next(each for each in USUAL_RULES if parameters < each.below_parameters)
    return _outside(tp, rule.tp) + _outside(pp, rule.pp)


def _outside(degree: I64, span: tuple[int, int]) -> F64:
    least, most = np.log2(span)
    beyond: F64 = np.maximum(least - np.log2(degree), np.log2(degree) - most)
    return np.maximum(0.0, beyond)
