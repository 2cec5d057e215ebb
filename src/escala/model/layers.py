"""Seconds of one layer of each kind for one micro-batch on one rank, forward and backward, term by term.

Computed once per distinct row of the columns that matter to a layer (`LAYER_COLUMNS`).
"""

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from escala.model.columns import F64, doublings, soft_maximum
from escala.model.convolutions import (
    convolution_backward_s,
    convolution_passes_s,
    convolution_s,
    convolutions,
)
from escala.model.distributed import layer_launches_s
from escala.model.efficiency import (
    core_s,
    fits_fused_softmax,
    kernel_of,
    linear_flop_per_s,
    matmul_s,
    pass_s,
    scan_s,
)
from escala.model.engine import AttentionKernel, SelectiveKind
from escala.model.lengths import timed_shape
from escala.model.loads import on_busiest
from escala.model.matmuls import Core, LayerWork, Matmul, Shape, bottlenecks, layer_work
from escala.model.network import Attention, Block, Experts, FeedForward, Learning, Mixer, Stack
from escala.model.operations import LAYER_LAUNCHES, RMS_NORM_PASSES
from escala.model.parameters import block_parameters
from escala.model.plan import Compile, Plans
from escala.model.precision import RECIPES, compute_bytes
from escala.model.problem import Problem
from escala.model.streams import stream_passes
from escala.model.traced import footprint_bytes, format_codes, traced_part
from escala.model.traffic import Sides, Wires, context_parallel_s, expert_parallel_s, tensor_parallel_s
from escala.model.workload import Method

LAYER_COLUMNS: Final = (
    "dp",
    "tp",
    "sp",
    "pp",
    "cp",
    "cp_kind",
    "ep",
    "etp",
    "dispatcher",
    "placement",
    "micro_batch",
    "precision",
    "compile",
    "dynamic_cp",
    "wide_layers",
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerTime:
    """One layer, one micro-batch: terms over forward and backward, and what recomputing adds.

    The sum of the terms is forward + backward. `recompute_..._s` are the additional seconds when the layer
    is recomputed in full or selectively. Shapes: (n,).
    """

    matmul_s: F64
    attention_s: F64
    elementwise_s: F64
    routing_s: F64
    tensor_parallel_s: F64
    context_parallel_s: F64
    expert_parallel_s: F64
    dispatch_s: F64
    forward_s: F64
    backward_s: F64
    recompute_full_s: F64
    recompute_selective_s: F64


COMPUTE_COLUMNS: Final = ("tp", "sp", "cp", "cp_kind", "ep", "etp", "micro_batch", "precision", "compile")
GROUP_COLUMNS: Final = ("dp", "tp", "pp", "cp", "ep", "etp", "placement")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Compute:
    """Seconds of one layer that no link decides. Shapes: (n,)."""

    matmul_forward_s: F64
    matmul_backward_s: F64
    attention_forward_s: F64
    attention_backward_s: F64
    elementwise_s: F64
    routing_s: F64
    floor_s: F64
    distributed_s: F64


def compute(problem: Problem, plans: Plans, stack: Stack, block: Block) -> Compute:
    """Matrix products, attention, memory passes, routing and CPU dispatch of one layer."""
    shape = on_busiest(problem, plans, block, timed_shape(problem, plans, stack))
    work = layer_work(block, stack, shape, problem.workload.adapter)
    matmul = _matmul(problem, plans, work, block.learning)
    core = _attention(problem, plans, work)
    return Compute(
        matmul_forward_s=matmul.forward_s,
        matmul_backward_s=matmul.backward_s,
        attention_forward_s=core.forward_s,
        attention_backward_s=core.backward_s,
        elementwise_s=elementwise_s(problem, plans, stack, block, shape),
        routing_s=routing_s(problem, plans, block, work),
        floor_s=dispatch_s(problem, plans, block, work.cores),
        distributed_s=layer_launches_s(problem, plans, block),
    )


def layer_time(
    problem: Problem, plans: Plans, stack: Stack, block: Block, own: Compute, wires: Wires
) -> LayerTime:
    """Seconds of one layer: soft maximum of device time and CPU dispatch, forward and backward.

    On a processor that was timed: the sum. A frozen layer with nothing trained before it has no backward.
    Device time = matrix products + attention + memory passes + routing + exposed communication. Memory passes
    lie half in forward, routing and launches on distributed tensors a third.
    """
    back = 0.0 if block.learning is Learning.STILL else 1.0
    shape = timed_shape(problem, plans, stack)
    tensor = _sides(tensor_parallel_s(problem, plans, stack, block, shape, wires.tensor), back)
    context = _sides(context_parallel_s(problem, plans, block, shape, wires.context), back)
    busiest = layer_work(block, stack, on_busiest(problem, plans, block, shape))
    expert = _sides(expert_parallel_s(problem, plans, busiest, wires), back)
    passes_forward_s = own.elementwise_s / 2 + own.routing_s / 3
    passes_backward_s = (own.elementwise_s / 2 + own.routing_s * 2 / 3) * back
    device_forward_s = own.matmul_forward_s + own.attention_forward_s + passes_forward_s
    device_forward_s = device_forward_s + tensor.forward_s + context.forward_s + expert.forward_s
    attention_backward_s = own.attention_backward_s * back
    device_backward_s = own.matmul_backward_s + attention_backward_s + passes_backward_s
    device_backward_s = device_backward_s + tensor.backward_s + context.backward_s + expert.backward_s
    # a processor launches and works by turns: a soft maximum of power 1 is the sum
    norm = problem.assumptions.dispatch_norm if problem.accelerator.operations is None else 1.0
    ratio = problem.engine.time.dispatch_backward_ratio
    forward_s = soft_maximum(device_forward_s, own.floor_s + own.distributed_s / 3, norm)
    backward_s = back * soft_maximum(device_backward_s, own.floor_s * ratio + own.distributed_s * 2 / 3, norm)
    return LayerTime(
        matmul_s=own.matmul_forward_s + own.matmul_backward_s,
        attention_s=own.attention_forward_s + attention_backward_s,
        elementwise_s=own.elementwise_s * ((1.0 + back) / 2.0),
        routing_s=own.routing_s * ((1.0 + 2.0 * back) / 3.0),
        tensor_parallel_s=tensor.forward_s + tensor.backward_s,
        context_parallel_s=context.forward_s + context.backward_s,
        expert_parallel_s=expert.forward_s + expert.backward_s,
        # the soft maximum is never below device time; rounding may be
        dispatch_s=np.maximum(forward_s + backward_s - device_forward_s - device_backward_s, 0.0),
        forward_s=forward_s,
        backward_s=backward_s,
        recompute_full_s=back * _again_s(problem, device_forward_s, tensor, expert, own, forward_s),
        recompute_selective_s=back * recompute_s(problem, own),
    )


def _sides(sides: Sides, back: float) -> Sides:
    return Sides(forward_s=sides.forward_s, backward_s=sides.backward_s * back)


def idle_time(rows: int) -> LayerTime:
    """A layer of a tower that a sample does not use takes no time."""
    return LayerTime(**{field.name: np.zeros(rows) for field in fields(LayerTime)})


def _again_s(
    problem: Problem, device_s: F64, tensor: Sides, expert: Sides, own: Compute, forward_s: F64
) -> F64:
    """Forward once more; without sums of tensor ranks and dispatches where the layer keeps what arrived.

    Source: Singh 2023 (TED), section 5 (communication-aware checkpointing).
    """
    if problem.messages.repeats_messages:
        return forward_s
    norm = problem.assumptions.dispatch_norm if problem.accelerator.operations is None else 1.0
    silent_s = device_s - tensor.forward_s - expert.forward_s
    return soft_maximum(silent_s, own.floor_s + own.distributed_s / 3, norm)


def dispatch_s(problem: Problem, plans: Plans, block: Block, cores: list[Core]) -> F64:
    """CPU time to launch one layer forward: engine's time * (1 + r log2 TP), more for experts and scaling.

    In place of the engine's time stand 35 launches where a bench timed one on a processor.
    More as well where a fused softmax does not take the heads of a rank and several kernels stand in for it.
    Source: engine record; ratios in assumptions.
    """
    time, known, measured = problem.engine.time, problem.assumptions, problem.accelerator.operations
    layer_s = time.dispatch_s if measured is None else LAYER_LAUNCHES * measured.launch_s
    base_s = layer_s * _launch_ratio(problem, plans, block)
    scaled = np.array([known.dispatch_scaled_ratio if r.is_scaled else 1.0 for r in RECIPES])[plans.precision]
    compiled = np.where(plans.compile != Compile.OFF, time.compiled_dispatch_ratio, 1.0)
    frozen = known.lora_dispatch_ratio if problem.workload.is_frozen else 1.0
    split = (1.0 + known.dispatch_tensor_ratio * doublings(plans.tp)) * _softmax_ratio(problem, plans, cores)
    return np.asarray(base_s * scaled * compiled * frozen * split, np.float64)


def _softmax_ratio(problem: Problem, plans: Plans, cores: list[Core]) -> F64:
    """Launches with the kernels that stand in for a fused softmax over launches with it."""
    if kernel_of(problem) is not AttentionKernel.FUSED_SOFTMAX:
        return np.ones(len(plans))
    all_fit = np.ones(len(plans), np.bool_)
    for core in cores:
        all_fit = all_fit & fits_fused_softmax(core.batches)
    return np.where(all_fit, 1.0, problem.assumptions.unfused_dispatch_ratio)


def _matmul(problem: Problem, plans: Plans, work: LayerWork, learning: Learning) -> Sides:
    speed = linear_flop_per_s(problem, plans.precision)
    width = np.array([recipe.linear_bytes for recipe in RECIPES])[plans.precision]
    parts = (_product_s(problem, m, speed, width) for m in work.matmuls)
    forward_s = sum(parts, np.zeros(len(plans)))
    if problem.workload.adapter is not None:
        added_s = sum((matmul_s(problem, m, speed, width) for m in work.adapters), np.zeros(len(plans)))
        behind_s = forward_s * matmul_backward_ratio(problem) + 2.0 * added_s
        return Sides(forward_s=forward_s + added_s, backward_s=behind_s)
    if problem.accelerator.operations is None or problem.workload.is_frozen:
        return Sides(forward_s=forward_s, backward_s=forward_s * matmul_backward_ratio(problem, learning))
    share = matmul_backward_ratio(problem, learning) / matmul_backward_ratio(problem)
    backward = (_product_backward_s(problem, m, speed, width) * share for m in work.matmuls)
    return Sides(forward_s=forward_s, backward_s=sum(backward, np.zeros(len(plans))))


def _product_s(problem: Problem, matmul: Matmul, speed: F64, width: F64) -> F64:
    if matmul.convolution is None:
        return matmul_s(problem, matmul, speed, width)
    return convolution_s(problem, matmul, matmul.convolution, speed, width)


def _product_backward_s(problem: Problem, matmul: Matmul, speed: F64, width: F64) -> F64:
    if matmul.convolution is None:
        return matmul_s(problem, matmul, speed, width) * matmul_backward_ratio(problem)
    return convolution_backward_s(problem, matmul, matmul.convolution, speed, width)


def _launch_ratio(problem: Problem, plans: Plans, block: Block) -> F64:
    """Launches of a layer over those of a dense transformer layer.

    With experts: those of routing and permutation + those of each expert of the rank, half a layer fewer
    where experts are the whole layer. Convolutions have few. Of a traced block: those that were seen, of 35.
    """
    experts = [part.experts for part in block.parts if isinstance(part, Experts)]
    if experts:
        time = problem.engine.time
        alone = 0.5 if len(block.parts) == 1 else 0.0
        return time.moe_dispatch_ratio - alone + time.expert_dispatch_ratio * sum(experts) / plans.ep
    seen = traced_part(block)
    if seen is not None:
        return np.full(len(plans), seen.launches / LAYER_LAUNCHES)
    if layer_share(block):
        return np.full(len(plans), layer_share(block))
    few = problem.assumptions.convolution_dispatch_ratio * max(len(convolutions(block)), 1)
    return np.full(len(plans), few)


def layer_share(block: Block) -> float:
    """How much of a transformer layer this is: half for a part alone, half for each part beside a mixer.

    0 without attention and mixer, unless a feed-forward stands alone; 1 for other layers with attention.
    """
    main = [part for part in block.parts if isinstance(part, (Attention, Mixer, FeedForward, Experts))]
    has_mixer = any(isinstance(part, Mixer) for part in main)
    if (len(block.parts) == 1 and main) or has_mixer:
        return len(main) / 2.0
    return 1.0 if any(isinstance(part, Attention) for part in main) else 0.0


def matmul_backward_ratio(problem: Problem, learning: Learning = Learning.TRAINED) -> float:
    """Backward over forward of matrix products: 2 (input and weight gradient), about 1 with adapters.

    1 in a frozen layer that gradients pass through (input gradient), 0 where none pass.
    """
    if learning is not Learning.TRAINED:
        return 1.0 if learning is Learning.PASSED else 0.0
    return problem.assumptions.lora_backward_ratio if problem.workload.is_frozen else 2.0


def _attention(problem: Problem, plans: Plans, work: LayerWork) -> Sides:
    speed = linear_flop_per_s(problem, plans.precision, is_high=True)
    width = compute_bytes(plans.precision)
    forward_s = backward_s = np.zeros(len(plans))
    for core in work.cores:
        there_s, back_s = core_s(problem, core, speed, width)
        forward_s = forward_s + there_s
        backward_s = backward_s + (0.0 if core.is_forward_only else back_s)
    for scan in work.scans:
        there_s, back_s = scan_s(problem, scan, speed)
        forward_s, backward_s = forward_s + there_s, backward_s + back_s
    return Sides(forward_s=forward_s, backward_s=backward_s)


def elementwise_s(problem: Problem, plans: Plans, stack: Stack, block: Block, shape: Shape) -> F64:
    """Memory passes of norms, activations, residuals: 2 * passes * tokens * width * bytes / memory speed.

    The passes of the engine are counted one way, backward makes as many. Half of them run over the hidden
    stream (split by SP), half over what TP splits, which grows with the feed-forward width; 4-bit weights are
    made whole once each way. Layers of convolutions have passes of their own; of a traced layer all bytes
    count that its operations were seen to move. On a processor that was timed, activations and norms of
    several operations count as well.
    Source: passes of the engine record.
    """
    seen = traced_part(block)
    if seen is not None:
        return pass_s(problem, footprint_bytes(seen, format_codes(plans), shape.samples, "moved"))
    if convolutions(block):
        return convolution_passes_s(problem, plans, block, shape)
    time = problem.engine.time
    width_bytes = compute_bytes(plans.precision)
    compiled = np.where(plans.compile != Compile.OFF, time.compiled_passes_ratio, 1.0)
    casts = np.array([recipe.cast_passes for recipe in RECIPES])[plans.precision]
    passes = time.elementwise_passes * compiled * (layer_share(block) or 1.0) + casts
    inner = _inner_width(block, stack) / stack.hidden / 4.0
    rows = shape.split_tokens + inner * shape.tokens / shape.tp
    transformer_bytes = passes * rows * stack.hidden * width_bytes
    if block.streams > 1:
        moved = 2.0 * stream_passes(block) * stack.hidden * shape.split_tokens
        transformer_bytes = transformer_bytes + moved * width_bytes * compiled
    if problem.workload.adapter is not None:
        transformer_bytes = transformer_bytes + _bottleneck_bytes(problem, block, stack, shape) * width_bytes
    if problem.accelerator.operations is not None:
        transformer_bytes = transformer_bytes + _eager_elements(block, stack, shape) * width_bytes * compiled
    return pass_s(problem, transformer_bytes + _dequantised_bytes(problem, plans, stack, block))


def _bottleneck_bytes(problem: Problem, block: Block, stack: Stack, shape: Shape) -> F64:
    """Elements that adapters in series move both ways: 3 hidden (residual) and 2 widths (activation)."""
    adapter = problem.workload.adapter
    width = 0 if adapter is None else adapter.width
    return 2.0 * bottlenecks(block) * (3.0 * stack.hidden + 2.0 * width) * shape.split_tokens


def _eager_elements(block: Block, stack: Stack, shape: Shape) -> F64:
    """Elements moved beyond one kernel: activation passes * tokens * width / TP + passes of RMSNorm * tokens.

    A norm with one vector of weights is an RMSNorm, which eager code makes of several operations.
    """
    own = (part for part in block.parts if isinstance(part, FeedForward))
    inner = sum(part.activation_passes * part.width for part in own)
    norms = RMS_NORM_PASSES * block.norms if block.norm_weights == 1 else 0.0
    return inner * shape.tokens / shape.tp + norms * stack.hidden * shape.split_tokens


def _dequantised_bytes(problem: Problem, plans: Plans, stack: Stack, block: Block) -> F64:
    """4-bit weights made whole again, once each way: 2 * bytes * (parameters / TP + experts / (EP * ETP))."""
    if problem.workload.method is not Method.QLORA:
        return np.zeros(len(plans))
    parameters = block_parameters(block, stack.hidden)
    held = parameters.column_row / plans.tp + parameters.expert / (plans.ep * plans.etp)
    return 2.0 * problem.assumptions.dequantize_pass_bytes * held


def _inner_width(block: Block, stack: Stack) -> float:
    """Width of the activations inside the feed-forward of a token (both halves when gated)."""
    width = 0.0
    for part in block.parts:
        if isinstance(part, FeedForward):
            width += part.width * (1.5 if part.is_gated else 1.0)
        elif isinstance(part, Experts):
            width += (part.width * part.top_k + part.shared_width) * (1.5 if part.is_gated else 1.0)
    return width or float(stack.hidden)


def routing_s(problem: Problem, plans: Plans, block: Block, work: LayerWork) -> F64:
    """Router, permutation and combination: passes over routed tokens * hidden * 2 bytes, more with biases.

    On a processor that was timed tokens move in their own format. Biases of experts are added outside the
    products, since each is scaled by the probability of its token.
    Source: published mixture-of-experts runs, Megatron-Core's experts; see assumptions.
    """
    if work.routed_tokens is None:
        return np.zeros(len(plans))
    known = problem.assumptions
    has_bias = any(isinstance(part, Experts) and part.has_bias for part in block.parts)
    width_bytes = 2.0 if problem.accelerator.operations is None else compute_bytes(plans.precision)
    row_bytes = known.routing_passes * width_bytes + known.expert_bias_bytes * has_bias
    return pass_s(problem, row_bytes * work.routed_tokens * work.routed_width)


def recompute_s(problem: Problem, own: Compute) -> F64:
    """Forward again for recomputed layers; selective: attention core, or operators and half the products.

    Source: Korthikanti 2022 section 5 (attention core); torchtitan's per-operator policy.
    """
    if problem.engine.memory.selective is SelectiveKind.ATTENTION_CORE:
        return own.attention_forward_s
    return own.elementwise_s / 2 + 0.5 * own.matmul_forward_s
