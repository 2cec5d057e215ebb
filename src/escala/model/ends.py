"""Seconds of embedding, output matrix and loss for one micro-batch on one rank."""

import numpy as np

from escala.model.columns import F64, soft_maximum
from escala.model.efficiency import linear_flop_per_s, matmul_s, pass_s
from escala.model.layers import compute
from escala.model.lengths import timed_share
from escala.model.matmuls import Matmul
from escala.model.memory import head_tokens
from escala.model.network import Block, Stack
from escala.model.plan import Plans
from escala.model.precision import compute_bytes
from escala.model.problem import Problem


def head_s(problem: Problem, plans: Plans) -> F64:
    """Output matrix and loss, forward and backward: products + bytes per logit / memory speed.

    Tokens * hidden * outputs / TP. Of a traced module: what it does outside its layers.
    Source: bytes per logit from published step times, see assumptions.
    """
    total = np.zeros(len(plans))
    speed = linear_flop_per_s(problem, plans.precision, is_high=True)
    width = compute_bytes(plans.precision)
    for stack in problem.workload.network.stacks:
        head = stack.head
        if stack.outside is not None:
            total = total + outside_s(problem, plans, stack, stack.outside)
        if head is None or head.outputs == 0:
            continue
        rows = head_tokens(problem, plans, stack, head) * timed_share(problem, plans, stack)
        ones = np.ones(len(plans))
        matmul = Matmul(rows=rows, inner=ones * stack.hidden, outer=head.outputs / plans.tp, count=ones)
        logits_bytes = problem.assumptions.loss_pass_bytes * rows * head.outputs / plans.tp
        product_s = matmul_s(problem, matmul, speed, width)
        backward = 1.0 if problem.workload.is_frozen or head.is_frozen else 2.0
        total = total + product_s * (1.0 + backward) + pass_s(problem, logits_bytes)
    return total


def outside_s(problem: Problem, plans: Plans, stack: Stack, block: Block) -> F64:
    """What a traced module does outside its layers: soft maximum of device time and CPU dispatch."""
    own = compute(problem, plans, stack, block)
    device_s = own.matmul_forward_s + own.matmul_backward_s + own.elementwise_s
    device_s = device_s + own.attention_forward_s + own.attention_backward_s
    floor_s = own.floor_s * (1.0 + problem.engine.time.dispatch_backward_ratio)
    norm = problem.assumptions.dispatch_norm if problem.accelerator.operations is None else 1.0
    return soft_maximum(device_s, floor_s, norm)


def embedding_s(problem: Problem, plans: Plans) -> F64:
    """Look-up and its gradient: bytes per token and hidden element / memory speed.

    Source: assumption, see assumptions.
    """
    known, total = problem.assumptions, np.zeros(len(plans))
    for stack in problem.workload.network.stacks:
        if stack.embedding is not None and stack.outside is None:
            row = float(stack.tokens or problem.workload.sequence_tokens)
            streams = plans.micro_batch * stack.streams_per_sample
            tokens = streams * row / plans.cp * timed_share(problem, plans, stack)
            total = total + pass_s(problem, known.embedding_pass_bytes * tokens * stack.hidden)
    return total
