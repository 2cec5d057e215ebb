"""The software that is traced, as an engine: modules of transformers run eager by PyTorch 2.13.

It keeps other tensors than the engine of a plan may. Each difference was found as a tensor in a trace, and a
test finds it again.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from escala.model.problem import Problem

PARALLEL_LOSS_BYTES: Final = 16.0
"""A logit in loss_parallel of DTensor: log-softmax, its exponential, gradient and product, 4 bytes each."""
PLAIN_TENSORS: Final = {"gelu_new": 5.0}
"""Tensors of the feed-forward width kept by an activation that is written in Python operations, the input of
the next map with them. gelu_new: x, tanh, 0.5 x, 1 + tanh and the product; the GELU of torch keeps two."""


def as_traced(problem: Problem, keys: Mapping[str, Any]) -> Problem:
    """The problem under the traced software, for a network of this config.json."""
    usual = {"gpt2": "gelu_new"}.get(str(keys.get("model_type")))
    activation = str(keys.get("activation_function") or keys.get("hidden_act") or usual)
    memory = replace(
        problem.engine.memory,
        parallel_loss_bytes=PARALLEL_LOSS_BYTES,
        plain_tensors=PLAIN_TENSORS.get(activation, problem.engine.memory.plain_tensors),
        units_at_loss=False,
    )
    return replace(problem, engine=replace(problem.engine, memory=memory))
