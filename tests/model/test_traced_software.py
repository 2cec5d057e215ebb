"""What an engine keeps that frees gathered layers before the loss and does not gather inputs again."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from escala.catalog import assumptions, cluster_for, engine
from escala.catalog.networks import network
from escala.model.activations import kept
from escala.model.estimate import estimate
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.workload import Workload


def problem(**habits: Any) -> Problem:
    pytorch = engine("pytorch")
    return Problem(
        workload=Workload(network=network("llama-3.1-8b"), sequence_tokens=8192, global_batch=8),
        cluster=cluster_for("h100-sxm", 8),
        engine=replace(pytorch, memory=replace(pytorch.memory, **habits)),
        assumptions=assumptions(),
    )


@pytest.mark.parametrize(("reshard", "each_bytes"), [(True, 10), (False, 6)])
def test_without_units_at_the_loss_the_loss_needs_one_layer_less(reshard: bool, each_bytes: int) -> None:
    plans = Plans.of(Plan(dp=8, zero=3, reshard=reshard, shard=8))

    with_units = estimate(problem(), plans).memory.phases
    without = estimate(problem(units_at_loss=False), plans).memory.phases

    # resharded: weights, next weights, 16-bit gradients, 4-byte scatter input of 218,112,000 parameters
    assert with_units.loss_bytes[0] - without.loss_bytes[0] == each_bytes * 218_112_000
    assert with_units.backward_bytes[0] == without.backward_bytes[0]


def test_whole_inputs_under_sp_are_two_streams_less_their_part() -> None:
    problems = problem(keeps_gathered_inputs=False), problem()
    stack = problems[0].workload.network.main
    plans = Plans.of(Plan(dp=1, tp=8, sp=True))

    parts, whole = (kept(each, plans, stack, stack.blocks[0]) for each in problems)

    # autocast: 6 bytes for query, key and value, 4 for gate and up; all tokens in place of an eighth
    more = (6 + 4) * 4096 * 8192 * (1 - 1 / 8)
    assert np.isclose(whole.whole_bytes[0] - parts.whole_bytes[0], more, rtol=1e-12)
    # selective: the output of the last product, 2 bytes
    assert whole.selective_bytes[0] - parts.selective_bytes[0] == 2 * 4096 * 8192 * (1 - 1 / 8)
