"""Distributed tensors: launches and messages of a small decoder by hand, as counted in traces of PyTorch."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from escala.model.cluster import Link
from escala.model.engine import DistributedTensors
from escala.model.estimate import time_of
from escala.model.operations import Operations
from escala.model.plan import Plan, Plans, Precision
from escala.model.problem import Problem
from escala.model.steptime import StepTime
from escala.model.workload import Optimizer, OptimizerKind

LAUNCH_S = 1.0
TIMED = Operations(
    launch_s=0.0,
    update_s=0.0,
    pass_bytes_per_s=1e30,
    attention_flop_per_s=np.inf,
    attention_backward_flop_per_s=np.inf,
    convolution_s_per_flop=0.0,
    convolution_s_per_byte=0.0,
    convolution_backward_s_per_flop=0.0,
    convolution_backward_s_per_byte=0.0,
    pooled_s=0.0,
    distributed_launch_s=LAUNCH_S,
)
TP = Plan(tp=2, precision=Precision.FP32)
SP = replace(TP, sp=True)


def laid(problem: Problem, kind: DistributedTensors) -> Problem:
    """The problem under an engine of which so much is distributed tensors on gloo."""
    given = dict(problem.engine.messages)
    given["gloo"] = replace(given["gloo"], distributed_tensors=kind)
    return replace(problem, engine=replace(problem.engine, messages=tuple(given.items())))


@pytest.fixture
def problem(ideal: Callable[..., Problem], llama, link: Callable[..., Link]) -> Problem:
    """A decoder of 4 layers on two processors that cost nothing but launches and messages, a second each."""
    found = ideal(llama(), 2)
    (group,) = found.cluster.groups
    group = replace(group, accelerator=replace(group.accelerator, operations=TIMED))
    late = replace(link("late", 8, np.inf), latency_s=1.0)
    cluster = replace(found.cluster, groups=(group,), links=(late,), backend="gloo")
    return laid(replace(found, cluster=cluster), DistributedTensors.MODULES)


@pytest.fixture
def own(problem: Problem) -> Problem:
    """The same where modules see plain tensors."""
    return laid(problem, DistributedTensors.WEIGHTS)


def trained_with(problem: Problem, optimizer: Optimizer) -> Problem:
    return replace(problem, workload=replace(problem.workload, optimizer=optimizer))


def time(problem: Problem, plan: Plan) -> StepTime:
    return time_of(problem, Plans.of(plan))


def test_a_step_of_tp_sends_the_messages_of_a_trace(problem: Problem):
    # two all-reduces a layer each way, one behind the embedding, one before the head, three of the loss;
    # an all-reduce waits twice: 2 * (4 * 4 + 2 + 3)
    assert time(problem, TP).tensor_parallel_s[0] == 42


def test_a_step_of_sp_sends_the_messages_of_a_trace(problem: Problem):
    # 18 gathers and 18 scatters wait once, three all-reduces of the loss and 3 * 9 of norms twice
    assert time(problem, SP).tensor_parallel_s[0] == 18 + 18 + 2 * (3 + 27)


@pytest.mark.parametrize("moments", [0, 1])
def test_sgd_reads_the_gradient_of_a_norm_once(problem: Problem, moments: int):
    sgd = trained_with(problem, Optimizer(kind=OptimizerKind.SGD, moments=moments))

    assert time(sgd, SP).tensor_parallel_s[0] == 18 + 18 + 2 * (3 + 9)


def test_sharded_norms_are_summed_in_every_micro_batch(ideal, llama, problem: Problem):
    four = replace(problem, cluster=replace(ideal(llama(), 4).cluster, links=problem.cluster.links))
    four = replace(four, cluster=replace(four.cluster, backend="gloo"))
    sharded = replace(SP, dp=2, zero=3, shard=2, reshard=True, micro_batches=2)

    assert time(four, sharded).tensor_parallel_s[0] == 2 * (18 + 18 + 2 * (3 + 9))


def test_operations_on_split_tensors_are_launched_as_counted_in_a_trace(problem: Problem):
    # 7 maps a layer of 20, embedding 9, head 20, loss 10; SP: 9 norms of 27
    assert time(problem, TP).dispatch_s[0] == pytest.approx(4 * 140 + 39, rel=1e-12)
    assert time(problem, SP).dispatch_s[0] == pytest.approx(4 * 140 + 39 + 9 * 27, rel=1e-12)


def test_an_update_launches_eight_operations_a_split_parameter(problem: Problem):
    # 28 maps, embedding, head; under SP and FSDP2 the 9 norms as well
    assert time(problem, TP).optimizer_s[0] == pytest.approx(8 * 30, rel=1e-12)
    assert time(problem, SP).optimizer_s[0] == pytest.approx(8 * 39, rel=1e-12)
    sharded = Plan(dp=2, zero=3, shard=2, reshard=True, precision=Precision.FP32)
    assert time(problem, sharded).optimizer_s[0] == pytest.approx(8 * 39, rel=1e-12)


def test_modules_that_see_plain_tensors_launch_what_a_trace_counts(own: Problem):
    # 19 a layer, 5 of 7 maps and 2 norms each; embedding 11, last norm 5, head and loss 16; SP: 9 norms of 1
    assert time(own, TP).dispatch_s[0] == pytest.approx(4 * (19 + 45) + 32, rel=1e-12)
    assert time(own, SP).dispatch_s[0] == pytest.approx(4 * (19 + 45) + 32 + 9, rel=1e-12)
    # 30 matrices and 9 norms, all at once but for what hands each over
    assert time(own, TP).optimizer_s[0] == time(own, SP).optimizer_s[0] == pytest.approx(39, rel=1e-12)


def test_modules_that_see_plain_tensors_send_less_for_norms_and_loss(own: Problem):
    # as above, but for two messages of the loss and one of each norm, in every micro-batch
    assert time(own, TP).tensor_parallel_s[0] == 2 * (4 * 4 + 2 + 2)
    assert time(own, SP).tensor_parallel_s[0] == 18 + 18 + 2 * (2 + 9)
    twice = replace(SP, micro_batches=2)
    assert time(own, twice).tensor_parallel_s[0] == 2 * (18 + 18 + 2 * (2 + 9))


def test_plain_replicas_know_no_distributed_tensors(problem: Problem):
    replicas = time(problem, Plan(dp=2, precision=Precision.FP32))

    assert (replicas.dispatch_s[0], replicas.optimizer_s[0], replicas.tensor_parallel_s[0]) == (0, 0, 0)


def test_other_backends_keep_their_formulas(problem: Problem):
    elsewhere = replace(problem, cluster=replace(problem.cluster, backend="nccl"))

    assert time(elsewhere, SP).dispatch_s[0] == pytest.approx(0.0, abs=1e-12)  # of seconds: rounding
    assert time(elsewhere, SP).optimizer_s[0] == 0
    # no ends and no norms: 8 * (2 + 2)
    assert time(elsewhere, SP).tensor_parallel_s[0] == 32
