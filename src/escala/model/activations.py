"""Bytes that one layer keeps from forward to backward. Exact for traced code paths.

Each part says which tensors backward needs; the engine says how its kernels keep them (a fused norm keeps its
input, an eager one fp32 copies as well). Checked byte by byte against traces of real modules.
"""

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from escala.model.columns import F64, Bool
from escala.model.efficiency import kernel_of
from escala.model.engine import AttentionKernel, Autocast, EngineMemory, SelectiveKind
from escala.model.loads import experts_of, on_bad_draw, on_busiest
from escala.model.matmuls import Shape, bottleneck_bytes, stack_shape
from escala.model.mixers import eager_norm_bytes, mixer_kept_bytes
from escala.model.network import (
    Attention,
    AttentionKind,
    Block,
    Convolution,
    Experts,
    FeedForward,
    Learning,
    Linear,
    Mixer,
    Stack,
)
from escala.model.plan import Compile, Plans, Precision
from escala.model.precision import RECIPES
from escala.model.problem import Problem
from escala.model.selection import pool_bytes, pooled_keys, selected_bytes
from escala.model.streams import stream_bytes_kept
from escala.model.traced import footprint_bytes, format_codes, traced_part
from escala.model.traces import Traced
from escala.model.traffic import arrived_numbers
from escala.model.workload import Method

_IN_MAPS: Final = {True: {"gate", "up"}, False: {"up"}}
KEPT_COLUMNS: Final = ("zero", "tp", "sp", "pp", "cp", "ep", "etp", "micro_batch", "precision", "compile")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kept:
    """Bytes that one layer keeps for one micro-batch on one rank, by recompute mode. Shapes: (n,).

    Of a layer with experts those of the rank with most tokens; `routing_...` is what a bad draw adds to that.
    """

    whole_bytes: F64
    selective_bytes: F64
    checkpoint_bytes: F64
    working_bytes: F64
    routing_bytes: F64
    routing_working_bytes: F64


def kept(problem: Problem, plans: Plans, stack: Stack, block: Block) -> Kept:
    """Activations of one layer: everything, what selective recompute leaves, the checkpoint, the working set.

    A frozen layer with nothing trained before it keeps nothing, another frozen one no inputs of its maps.
    Full recompute keeps the layer's input and, for one layer at a time, everything plus the gradients that
    flow through it (twice the feed-forward and hidden widths). A rank with many layers of experts is hardly
    the busiest in all, but in the one at work it may be.
    """
    if block.learning is Learning.STILL:
        none = np.zeros(len(plans))
        return Kept(**{field.name: none for field in fields(Kept)})
    shape = stack_shape(plans, stack, problem.workload.sequence_tokens)
    seen = traced_part(block)
    if seen is not None:
        return traced_kept(problem, plans, seen, shape)
    stream = shape.split_tokens * stack.hidden
    wide = np.array([recipe.compute_bytes / 2.0 for recipe in RECIPES])[plans.precision]
    layers = np.maximum(stack.count(stack.blocks.index(block)) / plans.pp, 1.0)
    held = on_busiest(problem, plans, block, shape, layers)
    whole = _whole(problem, plans, stack, block, held) * wide
    working, routing, routing_working = whole, np.zeros(len(plans)), np.zeros(len(plans))
    if experts_of(block) is not None:
        drawn = (
            on_busiest(problem, plans, block, shape),
            on_bad_draw(problem, plans, block, shape, layers),
            on_bad_draw(problem, plans, block, shape),
        )
        working, bad, bad_working = (_whole(problem, plans, stack, block, each) * wide for each in drawn)
        routing, routing_working = bad - whole, bad_working - working
    checkpoint = block.streams * stream * np.where(autocasts(problem, plans), 4.0, 2.0 * wide)
    if not problem.messages.repeats_messages:
        checkpoint = checkpoint + 2.0 * wide * arrived_numbers(plans, stack, block, held)
    return Kept(
        whole_bytes=whole,
        selective_bytes=_selective(problem, stack, block, held, whole, wide),
        checkpoint_bytes=checkpoint,
        working_bytes=working + block.streams * stream * 4.0 + _inner(block, shape) * 8.0,
        routing_bytes=routing,
        routing_working_bytes=routing_working,
    )


def traced_kept(problem: Problem, plans: Plans, part: Traced, shape: Shape) -> Kept:
    """Activations as a trace saw them in the number format of each plan.

    At work: all of it, and the gradients of its input and of its widest tensor with those that they come
    from: 2 * (input + widest). Selective recompute is not traced and keeps everything.
    """
    codes = format_codes(plans, autocasts(problem, plans))
    whole, given, widest = (
        footprint_bytes(part, codes, shape.samples, name) for name in ("kept", "given", "widest")
    )
    none = np.zeros(len(plans))
    return Kept(
        whole_bytes=whole,
        selective_bytes=whole,
        checkpoint_bytes=given,
        working_bytes=whole + 2.0 * (given + widest),
        routing_bytes=none,
        routing_working_bytes=none,
    )


def _whole(problem: Problem, plans: Plans, stack: Stack, block: Block, shape: Shape) -> F64:
    """Norms + parts, in bytes at 16-bit precision; each norm also keeps 4 bytes of statistics a token."""
    stream = shape.split_tokens * stack.hidden
    inputs = shape.tokens * stack.hidden if problem.engine.memory.keeps_gathered_inputs else stream
    cast = autocasts(problem, plans)
    norm_bytes = _norm_bytes(problem, block, cast, plans.compile != Compile.OFF)
    total = block.norms * (norm_bytes * stream + 4.0 * shape.split_tokens)
    total = total + _wide_norm_bytes(problem, plans, block, stack, shape)
    total = total + _mixed_bytes(problem.engine.memory, plans, block, stack) * shape.split_tokens
    total = total + problem.engine.memory.mask_bytes * stream + _adapter_bytes(problem, block, stack, shape)
    if _quantised_input_bytes(problem) > 2.0:
        total = total + (_quantised_input_bytes(problem) - 2.0) * _inputs(block, stack, shape)
    for part in block.parts:
        if not drops_inputs(problem, block):
            total = total + _input_bytes(part, cast) * inputs
        total = total + _part(problem, plans, part, stack.hidden, shape, drops_inputs(problem, block))
        if problem.engine.memory.keeps_scaled_inputs and not drops_inputs(problem, block):
            total = total - _saved_by_scaling(plans, part, stack.hidden, shape)
    return np.asarray(total, np.float64)


def _wide_norm_bytes(problem: Problem, plans: Plans, block: Block, stack: Stack, shape: Shape) -> F64:
    """What eager norms keep more when their weight multiplies in fp32: 2 bytes * (norms * hidden + q + k).

    Queries of a low rank are normed without a weight, their rank with one: 8 bytes * rank.
    Source: traces of Gemma 4 and DeepSeek V4 in transformers 5.24.
    """
    if not block.has_wide_norms or is_frozen(problem, block):
        return np.zeros_like(shape.tokens)
    heads = sum(
        (4 * part.query_rank or part.heads * part.head_dim)
        + part.kv_heads * part.head_dim * (part.key_value_maps > 0)
        for part in block.parts
        if isinstance(part, Attention) and part.has_qk_norm
    )
    kept_bytes = 2.0 * (block.norms * stack.hidden * shape.split_tokens + heads * shape.tokens / shape.tp)
    return np.where(plans.compile == Compile.OFF, kept_bytes, 0.0)


def _mixed_bytes(memory: EngineMemory, plans: Plans, block: Block, stack: Stack) -> F64:
    """What hyper-connections keep of a token, by eager code or by fused kernels."""
    eager, fused = (stream_bytes_kept(block, stack.hidden, is_eager) for is_eager in (True, False))
    return np.where(_is_eager(memory, plans), eager, fused)


def _saved_by_scaling(plans: Plans, part: object, hidden: int, shape: Shape) -> F64:
    """What inputs take less in a scaled format: 2 - its bytes, but the attention output is kept in both.

    Source: Transformer Engine, pytorch/module/linear.py (saves the quantised, column-wise input).
    """
    width = np.array([recipe.linear_bytes if recipe.is_scaled else 2.0 for recipe in RECIPES])[
        plans.precision
    ]
    less, tokens = 2.0 - width, shape.tokens / shape.tp
    if isinstance(part, Attention):
        both = np.where(less > 0, width, 0.0) * part.heads * part.value_head_dim * tokens
        return less * hidden * shape.split_tokens - both
    if isinstance(part, FeedForward):
        return less * (hidden * shape.split_tokens + part.width * tokens)
    if isinstance(part, Experts):
        routed = shape.routed_tokens(part)
        inner = routed * (hidden + part.width / shape.etp)
        return less * (hidden * shape.split_tokens + inner + part.shared_width * tokens)
    return np.zeros_like(shape.tokens)


def _adapter_bytes(problem: Problem, block: Block, stack: Stack, shape: Shape) -> F64:
    """Inputs that LoRA adapters keep (2 bytes), beyond what frozen layers keep, and their inner widths.

    One input for query, key and value, one for gate and up; the output map's input is kept anyway, the down
    map's is the gated product. With dropout each map keeps a copy and its mask, 3 bytes; query, key and value
    count as one. Source: traces of PEFT modules; Hu 2021, section 4.1; LitGPT, lora.py.
    """
    lora, total = problem.workload.lora, bottleneck_bytes(problem.workload.adapter, block, stack, shape)
    if lora is None or block.learning is not Learning.TRAINED:
        return total
    targets, hidden = set(lora.targets), shape.split_tokens * stack.hidden
    for part in block.parts:
        if isinstance(part, Attention):
            outer = part.heads * part.value_head_dim * shape.tokens / shape.tp * ("o" in targets)
            each = 3.0 * (hidden * bool(targets & {"q", "k", "v"}) + outer)
            total = total + (each if lora.has_dropout else 2.0 * hidden * bool(targets & {"q", "k", "v"}))
        elif isinstance(part, FeedForward):
            inner = part.width * shape.tokens / shape.tp * ("down" in targets)
            copies = 3.0 * len(targets & _IN_MAPS[part.is_gated]) if lora.has_dropout else 2.0
            total = total + copies * hidden * bool(targets & {"gate", "up"})
            total = total + (3.0 if lora.has_dropout else 2.0) * inner
    return total + 2.0 * lora.rank * len(targets) * shape.tokens


def autocasts(problem: Problem, plans: Plans) -> Bool:
    """Plans whose fp32 weights and residual stream are cast to 16 bit op by op (torch.autocast)."""
    mode = problem.engine.memory.autocast
    sixteen = (plans.precision != Precision.FP32) & (plans.precision != Precision.TF32)
    wanted = np.full(len(plans), mode is Autocast.ALWAYS)
    wanted |= (plans.zero < 3) & (mode is Autocast.UNSHARDED)
    return np.asarray(wanted & sixteen & (not problem.workload.is_frozen), np.bool_)


def _norm_bytes(problem: Problem, block: Block, cast: Bool, compiled: Bool) -> F64:
    """Bytes per element that a norm keeps beyond its output: LayerNorm its input, eager RMSNorm fp32 copies.

    A frozen RMSNorm needs no product for its weight; autocast keeps both copies in fp32; a compiled norm
    keeps its input alone.
    """
    if block.norm_weights != 1:
        return np.where(cast, 4.0, 2.0)
    memory = problem.engine.memory
    plain = max(memory.norm_bytes - (2.0 if is_frozen(problem, block) else 0.0), 2.0)
    eager = np.where(cast, 8.0, plain)
    return np.where(compiled, np.minimum(eager, memory.compiled_norm_bytes), eager)


def is_frozen(problem: Problem, block: Block) -> bool:
    """True when the weights of a layer get no gradient: those of all with adapters, else those marked."""
    return problem.workload.is_frozen or block.learning is not Learning.TRAINED


def drops_inputs(problem: Problem, block: Block) -> bool:
    """True when linear maps keep no input: frozen weights need none, but some quantised maps keep theirs."""
    return is_frozen(problem, block) and not _quantised_input_bytes(problem)


def _quantised_input_bytes(problem: Problem) -> float:
    is_quantised = problem.workload.method is Method.QLORA
    return problem.engine.memory.quantised_input_bytes if is_quantised else 0.0


def _inputs(block: Block, stack: Stack, shape: Shape) -> F64:
    """Elements of the inputs of all linear maps of a layer, which a graph that lives on holds once more."""
    widths = np.zeros_like(shape.tokens)
    for part in block.parts:
        if isinstance(part, (Attention, Mixer, FeedForward)):
            wide = _out_width(part)
            widths = widths + stack.hidden * shape.split_tokens + wide * shape.tokens / shape.tp
    return widths


def _out_width(part: Attention | Mixer | FeedForward) -> int:
    """Width of the input of the last map of a part."""
    if isinstance(part, Attention):
        return part.heads * part.value_head_dim
    return part.values if isinstance(part, Mixer) else part.width


def _input_bytes(part: object, cast: Bool) -> F64:
    """Bytes per hidden element kept as the input of the first linear maps; autocast casts it for each map."""
    if not isinstance(part, (Attention, Mixer, FeedForward, Experts)):
        return np.zeros(len(cast))
    if isinstance(part, Mixer):
        return np.full(len(cast), 2.0)  # one map, or maps of one cast input
    each = 6.0 if isinstance(part, Attention) else 4.0 if part.is_gated else 2.0
    return np.where(cast, each, 2.0)


def _part(problem: Problem, plans: Plans, part: object, hidden: int, shape: Shape, frozen: bool) -> F64:
    memory = problem.engine.memory
    if isinstance(part, Attention):
        return attention_bytes(problem, part, shape)
    if isinstance(part, Mixer):
        return (mixer_kept_bytes(part) + _gated_norm_bytes(memory, plans, part)) * shape.tokens / shape.tp
    if isinstance(part, FeedForward):
        return 2.0 * _tensors(memory, plans, part.is_gated, frozen) * part.width * shape.tokens / shape.tp
    if isinstance(part, Experts):
        return _experts(memory, plans, part, hidden, shape, frozen)
    if isinstance(part, Convolution):
        # output of the convolution for its norm, normed output for the activation and the next convolution
        return 2.0 * part.kept_outputs * shape.samples * part.output_pixels * part.outputs
    if isinstance(part, Linear):
        return 2.0 * shape.tokens * part.inputs
    return np.zeros_like(shape.tokens)


def _gated_norm_bytes(memory: EngineMemory, plans: Plans, part: Mixer) -> F64:
    """What the norm of a mixer keeps in fp32 where the engine's norms are eager and nothing compiles them."""
    return np.where(_is_eager(memory, plans), eager_norm_bytes(part), 0.0)


def _is_eager(memory: EngineMemory, plans: Plans) -> Bool:
    return np.asarray((memory.norm_bytes > memory.compiled_norm_bytes) & (plans.compile == Compile.OFF))


def attention_bytes(problem: Problem, part: Attention, shape: Shape) -> F64:
    """Queries, keys, values, attention output (2 bytes each) and log-sum-exp (4); scores when not flash.

    Flash: 2 q + 2 (k + v) + 2 out + 4 heads, 2 out more where values are rotated. An unfused kernel keeps
    `score_bytes` per score element and expands keys and values to all heads where the engine does so (not one
    shared key). Latent attention adds its low ranks, a pinned fused output 2 q + 2 (k + v); where heads share
    keys, the engine repeats them for all instead.
    An output gate adds itself and the gated output, selected keys their indices (4 bytes each) and, latent,
    queries and outputs of the low rank in place of keys and values of all heads.
    """
    memory, tokens = problem.engine.memory, shape.tokens / shape.tp
    query = part.heads * part.head_dim
    out = part.heads * part.value_head_dim
    key_value = part.key_value_width * _kept_keys(part, shape)
    low = 2.0 * (part.query_rank + 2 * part.kv_rank + part.rope_head_dim) * shape.split_tokens
    normed = (
        (3.0 * (query + key_value / 2) * 2.0 + 4.0 * (part.heads + part.kv_heads))
        if part.has_qk_norm
        else 0.0
    )
    if part.has_value_norm:
        normed = normed + part.kv_heads * (6.0 * part.value_head_dim + 4.0)
    if part.has_fused_maps:
        normed = normed + 2.0 * (part.heads + part.kv_heads) * part.head_dim
    extra = (low if part.kv_rank or part.query_rank else 0.0) + normed * tokens
    extra = extra + pool_bytes(part) * shape.tokens + 2.0 * part.output_groups * part.output_rank * tokens
    extra = extra + 2.0 * out * tokens * (part.is_shared and is_flash(problem))
    if part.gate_dim:
        extra = extra + 2.0 * (part.heads * part.gate_dim + out) * tokens
    if part.kind is AttentionKind.SPARSE and is_flash(problem):
        indices = 4.0 * (part.top_tokens or 0) * shape.tokens
        return tokens * selected_bytes(part, query, out) + extra + indices
    if memory.pins_fused_qkv and part.heads == part.kv_heads:
        extra = extra + 2.0 * (query + key_value) * tokens
    elif memory.pins_fused_qkv:
        key_value = part.heads * (part.head_dim + part.value_head_dim)
    if is_flash(problem):
        return tokens * (2.0 * query + 2.0 * key_value + 2.0 * out + 4.0 * part.heads) + extra
    whole = part.heads * (part.head_dim + part.value_head_dim) * (_kept_keys(part, shape) or 1)
    expanded = whole if memory.expands_kv and not part.is_shared else key_value
    scores = score_bytes(problem) * part.heads * _window(part, shape)
    return tokens * (2.0 * query + 2.0 * expanded + 2.0 * out + scores) + extra


def _kept_keys(part: Attention, shape: Shape) -> F64 | float:
    """Tokens whose keys and values a layer keeps, for each of its own: those it reads, or none."""
    if part.key_value_maps == 0:
        return 0
    return 1 if part.source_tokens is None else part.source_tokens / shape.sequence_tokens


def _window(part: Attention, shape: Shape) -> F64:
    """Keys in a row of the scores: those of the stream that is read, at most the window; and pooled ones."""
    length = part.source_tokens or shape.sequence_tokens
    return np.minimum(length, part.window_tokens or length) + pooled_keys(part, length)


def score_bytes(problem: Problem) -> float:
    """Bytes kept for each attention score: 5 with a fused softmax (16-bit output, its dropout and mask).

    Else the engine's. Source: Korthikanti 2022, equation 1.
    """
    fused = kernel_of(problem) is AttentionKernel.FUSED_SOFTMAX
    return min(5.0, problem.engine.memory.score_bytes) if fused else problem.engine.memory.score_bytes


def is_flash(problem: Problem) -> bool:
    """True when the scores of this attention are never stored: flash kernels."""
    return kernel_of(problem) in (AttentionKernel.FLASH2, AttentionKernel.FLASH3)


def _tensors(memory: EngineMemory, plans: Plans, is_gated: bool, frozen: bool) -> F64:
    """Tensors of the feed-forward width kept: gate, up, product and activation, less what is fused."""
    eager = memory.gated_tensors if is_gated else memory.plain_tensors
    compiled = min(eager, memory.compiled_gated_tensors)
    kept_tensors = np.where(plans.compile != Compile.OFF, compiled, eager)
    return kept_tensors - (1.0 if frozen else 0.0)


def _experts(
    memory: EngineMemory, plans: Plans, part: Experts, hidden: int, shape: Shape, frozen: bool
) -> F64:
    """Per routed token: engine bytes * hidden, the inner tensors, 28 bytes of indices; router 4 experts + 16.

    A router in fp32 keeps its input once more, 4 bytes * hidden; eager clamps keep what they read.
    The copy is 2 hidden, its output 2 more unless the gate is applied inside the expert.
    Source: traces of the mixture layers of transformers 5.24, exact to the byte; Megatron-Core, experts.py.
    """
    routed = shape.routed_tokens(part)
    tensors = _tensors(memory, plans, part.is_gated, frozen)
    tensors = tensors + 2.0 * part.is_clamped * _is_eager(memory, plans)
    inside = part.latent_dim or hidden
    inner = routed * (memory.routed_bytes * inside + 2.0 * tensors * part.width / shape.etp + 28.0)
    shared = 2.0 * tensors * part.shared_width * shape.tokens / shape.tp
    latent = 2.0 * 2.0 * part.latent_dim * shape.split_tokens
    wide = 4.0 * hidden * (part.has_wide_router and not frozen)
    return inner + shared + latent + shape.split_tokens * (4.0 * part.experts + 16.0 + wide)


def _selective(problem: Problem, stack: Stack, block: Block, shape: Shape, whole: F64, wide: F64) -> F64:
    """What selective recompute keeps: all but the scores, or every second product (operators)."""
    if problem.engine.memory.selective is SelectiveKind.ATTENTION_CORE:
        return whole - _score_bytes(problem, block, shape) * wide
    return np.minimum(_operator_bytes(problem, stack, block, shape) * wide, whole)


def _score_bytes(problem: Problem, block: Block, shape: Shape) -> F64:
    total = np.zeros_like(shape.tokens)
    for part in block.parts:
        if isinstance(part, Attention) and not is_flash(problem):
            elements = part.heads * _window(part, shape) * shape.tokens / shape.tp
            total = total + score_bytes(problem) * elements
    return total


def _operator_bytes(problem: Problem, stack: Stack, block: Block, shape: Shape) -> F64:
    """Layer input, attention output and every second matrix output: 8 h + 2 kv + 2 f bytes a token for Llama.

    Source: torchtitan's per-operator policy (keeps the flash output and every second product), checked on its
    published peaks.
    """
    tokens = shape.tokens / shape.tp
    output = shape.tokens if problem.engine.memory.keeps_gathered_inputs else shape.split_tokens
    total = 2.0 * stack.hidden * (shape.split_tokens + output)
    for part in block.parts:
        if isinstance(part, Attention):
            widths = part.heads * (part.head_dim + part.value_head_dim) + part.kv_heads * part.value_head_dim
            total = total + 2.0 * tokens * widths
        elif isinstance(part, Mixer):
            total = total + tokens * mixer_kept_bytes(part)
        elif isinstance(part, FeedForward):
            total = total + 2.0 * tokens * part.width
        elif isinstance(part, Experts):
            routed = shape.routed_tokens(part)
            total = total + 2.0 * routed * (part.width / shape.etp + (part.latent_dim or stack.hidden))
            total = total + 2.0 * tokens * part.shared_width
    return np.asarray(total, np.float64)


def _inner(block: Block, shape: Shape) -> F64:
    width = 0.0
    for part in block.parts:
        if isinstance(part, FeedForward):
            width += part.width
        elif isinstance(part, Experts):
            width += part.width * part.top_k + part.shared_width
    return width * shape.tokens / shape.tp
