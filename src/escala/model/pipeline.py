"""Seconds that a pipeline adds: transfers between stages and idle time, in closed form."""

from typing import Final

import numpy as np

from escala.model.collectives import send_s
from escala.model.columns import F64
from escala.model.layers import matmul_backward_ratio
from escala.model.lengths import timed_shape
from escala.model.plan import Plans, Schedule
from escala.model.problem import Problem
from escala.model.slowest import Rank, StepWires
from escala.model.traffic import stream_bytes

HALF_DUPLEX: Final = frozenset({"gloo"})
"""Backends whose opposite sends follow each other when it so happens: a request waits behind data."""


def transfer_s(problem: Problem, plans: Plans, wires: StepWires) -> F64:
    """Activations and their gradients between stages: single sends * one send + exchanges * one exchange.

    Sends show in full where both ranks wait for them; how many do is told by the order of a schedule, see
    `single_sends` and `exchanges`.
    Source: Narayanan 2021, section 4.1; a program of what PyTorch, Megatron-LM and DeepSpeed post.
    """
    singles_s = single_sends(problem, plans) * send_once_s(problem, plans, wires)
    exchanges_s = exchanges(plans) * exchange_once_s(problem, plans, wires)
    return np.where(plans.pp > 1, singles_s + exchanges_s, 0.0)


def single_sends(problem: Problem, plans: Plans) -> F64:
    """Sends that show alone: GPipe 2 (m + pp - 2), 1F1B 2 (pp - 1), v stages a rank 2 (pp v - 1) and a share.

    2 (pp v - 1) fill and drain a pipeline. Behind the others of 2 m v another chunk can run: the engine's
    exposed share of them is left.
    """
    filling = 2.0 * (plans.pp * plans.virtual_stages - 1)
    others = np.maximum(2.0 * plans.micro_batches * plans.virtual_stages - filling, 0.0)
    chunked = filling + exposed_share(problem, plans) * others
    gpipe = filling + 2.0 * (plans.micro_batches - 1)
    single = np.where(plans.schedule == Schedule.GPIPE, gpipe, filling)
    return np.where(plans.virtual_stages > 1, chunked, single)


def exposed_share(problem: Problem, plans: Plans) -> F64:
    """Share of a send that its receiver waits for: all, or the engine's with several stages a rank."""
    return np.where(plans.virtual_stages > 1, problem.engine.time.send_exposed, 1.0)


def exchanges(plans: Plans) -> F64:
    """Times that two neighbours of 1F1B send to each other and wait for both: m - 1 for pp = 2, else 2 m - 3.

    A middle rank exchanges with the next before each backward and with the previous one before each forward;
    one micro-batch meets nobody.
    """
    among_two = plans.micro_batches - 1.0
    among_more = np.maximum(2.0 * plans.micro_batches - 3.0, 0.0)
    counted = np.where(plans.pp == 2, among_two, among_more)
    return np.where(plans.schedule == Schedule.ONE_F_ONE_B, counted, 0.0)


def send_once_s(problem: Problem, plans: Plans, wires: StepWires) -> F64:
    """One send from a stage to the next: payload / (port * achieved share) + latency.

    The share and the fixed time are not those of a measured link.
    Source: Narayanan 2021, sections 3.2 and 4.1.
    """
    known, is_measured = problem.assumptions, wires.stage_is_measured
    speed = wires.stage_bytes_per_s * np.where(is_measured, 1.0, known.transfer_efficiency)
    latency = wires.stage_latency_s + np.where(is_measured, 0.0, known.transfer_latency_s)
    return send_s(sent_bytes(problem, plans), speed, latency)


def exchange_once_s(problem: Problem, plans: Plans, wires: StepWires) -> F64:
    """Two opposite sends: two sends where the engine makes one after the other, else their measured line.

    Not measured: as long as one send, on gloo times an assumed ratio.
    """
    one_s = send_once_s(problem, plans, wires)
    if problem.engine.time.exchanges_in_turn:
        return 2.0 * one_s
    ratio = problem.assumptions.exchange_ratio if problem.cluster.backend in HALF_DUPLEX else 1.0
    speed, latency = wires.exchange_bytes_per_s, wires.exchange_latency_s
    measured_s = send_s(sent_bytes(problem, plans), speed, latency)
    return np.where(wires.exchange_is_measured, measured_s, ratio * one_s)


def sent_bytes(problem: Problem, plans: Plans) -> F64:
    """Payload of one send: tokens * streams * hidden * bytes of a number, over TP ranks if split."""
    stack = problem.workload.network.main
    shape = timed_shape(problem, plans, stack)
    is_split = (plans.sp == 1) | problem.engine.time.splits_transfers
    return stack.streams * stream_bytes(stack, shape) / np.where(is_split, plans.tp, 1)


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
