"""Seconds that a pipeline adds: transfers between stages and idle time, in closed form."""

import numpy as np

from escala.model.collectives import send_s
from escala.model.columns import F64
from escala.model.layers import matmul_backward_ratio
from escala.model.plan import Plans, Schedule
from escala.model.precision import compute_bytes
from escala.model.problem import Problem
from escala.model.slowest import Rank, StepWires


def transfer_s(problem: Problem, plans: Plans, wires: StepWires) -> F64:
    """Activations between pipeline stages: 2 sends per micro-batch and chunk, (payload / wire + latency).

    Payload = tokens * hidden * bytes of a number, over TP ranks when SP is on or the engine scatters and
    gathers. All of it is exposed, since forward and backward alternate, but for the share that an engine
    hides behind another chunk of an interleaved schedule. The share of the port and the fixed time are not
    those of a measured link. Source: Narayanan 2021, sections 3.2 and 4.1.
    """
    known, is_measured = problem.assumptions, wires.stage_is_measured
    stack = problem.workload.network.main
    tokens = plans.micro_batch * float(stack.tokens or problem.workload.sequence_tokens) / plans.cp
    is_split = (plans.sp == 1) | problem.engine.time.splits_transfers
    element_bytes = compute_bytes(plans.precision)
    payload_bytes = tokens * stack.hidden * element_bytes / np.where(is_split, plans.tp, 1)
    speed = wires.stage_bytes_per_s * np.where(is_measured, 1.0, known.transfer_efficiency)
    latency = wires.stage_latency_s + np.where(is_measured, 0.0, known.transfer_latency_s)
    once_s = send_s(payload_bytes, speed, latency)
    hops = 2.0 * plans.micro_batches * plans.virtual_stages
    exposed = np.where(plans.schedule == Schedule.INTERLEAVED, problem.engine.time.send_exposed, 1.0)
    return np.where(plans.pp > 1, hops * once_s * exposed, 0.0)


def bubble_s(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """Idle time of the pipeline: (stages - 1) / virtual stages * mean micro-batch of a rank * measured ratio.

    Zero-bubble V fills most of it with weight gradients, see `zero_bubble_s`.
    Source: Huang 2019 section 2.3; Narayanan 2021 section 2.2; ratio from published step times.
    """
    idle_s = (plans.pp - 1) / plans.virtual_stages * rank.mean_s
    filled_s = zero_bubble_s(problem, plans, rank)
    chosen_s = np.where(plans.schedule == Schedule.ZERO_BUBBLE_V, filled_s, idle_s)
    return chosen_s * problem.assumptions.bubble_ratio


def zero_bubble_s(problem: Problem, plans: Plans, rank: Rank) -> F64:
    """Idle time of zero-bubble V, from forward f, input gradient b and weight gradient w of one chunk.

    The largest of (pp - 1) max(f, b, 2 (b - w)), 2 pp (f + b) - 2 b - 2 m f, and 2 (pp - 1) b - 2 (m - pp) w
    when m >= pp: warm-up, too few micro-batches, weight gradients too short to fill.
    Source: Qi 2024 (Zero Bubble Pipeline Parallelism, arXiv 2401.10241), section 6; steps within 3 % of
    an event simulation of its V schedule.
    """
    ratio = matmul_backward_ratio(problem)
    busy_s = rank.forward_s + rank.backward_s
    scale = np.divide(rank.mean_s, busy_s, out=np.zeros_like(busy_s), where=busy_s > 0) / 2
    weights_s = rank.matmul_s * (ratio - 1) / (ratio + 1) * scale
    f, b, w = rank.forward_s * scale, rank.backward_s * scale - weights_s, weights_s
    pp, m = plans.pp, plans.micro_batches
    warm_s = (pp - 1) * np.maximum(np.maximum(f, b), 2 * (b - w))
    short_s = 2 * pp * (f + b) - 2 * b - 2 * m * f
    unfilled_s = np.where(m >= pp, 2 * (pp - 1) * b - 2 * (m - pp) * w, 0.0)
    return np.maximum(np.maximum(warm_s, short_s), unfilled_s)
