"""Seconds of embedding, output matrix and loss for one micro-batch on one rank."""

import numpy as np

from escala.model.columns import F64
from escala.model.efficiency import linear_flop_per_s, matmul_s, pass_s
from escala.model.lengths import timed_share
from escala.model.matmuls import Matmul
from escala.model.memory import head_tokens
from escala.model.plan import Plans
from escala.model.precision import compute_bytes
from escala.model.problem import Problem


def head_s(problem: Problem, plans: Plans) -> F64:
    """Output matrix and loss, forward and backward: products + bytes per logit / memory speed.

    Tokens * hidden * outputs / TP. Source: bytes per logit from published step times, see assumptions.
    """
    total = np.zeros(len(plans))
    speed = linear_flop_per_s(problem, plans.precision, is_high=True)
    width = compute_bytes(plans.precision)
    backward = 1.0 if problem.workload.is_frozen else 2.0
    for stack in problem.workload.network.stacks:
        head = stack.head
        if head is None or head.outputs == 0:
            continue
        rows = head_tokens(problem, plans, stack, head) * timed_share(problem, plans, stack)
        ones = np.ones(len(plans))
        matmul = Matmul(rows=rows, inner=ones * stack.hidden, outer=head.outputs / plans.tp, count=ones)
        logits_bytes = problem.assumptions.loss_pass_bytes * rows * head.outputs / plans.tp
        product_s = matmul_s(problem, matmul, speed, width)
        total = total + product_s * (1.0 + backward) + pass_s(problem, logits_bytes)
    return total


def embedding_s(problem: Problem, plans: Plans) -> F64:
    """Look-up and its gradient: bytes per token and hidden element / memory speed.

    Source: assumption, see assumptions.
    """
    known, total = problem.assumptions, np.zeros(len(plans))
    for stack in problem.workload.network.stacks:
        if stack.embedding is not None:
            row = float(stack.tokens or problem.workload.sequence_tokens)
            tokens = plans.micro_batch * row / plans.cp * timed_share(problem, plans, stack)
            total = total + pass_s(problem, known.embedding_pass_bytes * tokens * stack.hidden)
    return total
