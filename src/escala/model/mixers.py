"""What a recurrent mixer costs: parameters, products, the scan over tokens, kept bytes, state.

Chunked scans are products inside chunks of tokens, and products with one state for each chunk; counts are
those of the kernels of flash-linear-attention (delta rules, lightning attention) and mamba-ssm (Mamba,
Mamba-2). Eager code of transformers computes the same products but for shared keys, which it repeats, and
keeps fp32 copies of everything: not counted here. Knows no seconds.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.model.columns import F64
from escala.model.network import Mixer, Scan

EXPONENTIAL_FLOP: Final = 16.0
"""Fp32 FLOP in the time of one exponential: 16 special functions a clock against 128 fused multiply-adds.

Source: NVIDIA, CUDA C++ programming guide 12, throughput of native arithmetic, compute capability 9.0.
"""
SELECTIVE_FLOP: Final = 6.0  # decay * step, step * key * value, multiply-add of the state, multiply-add out
SELECTIVE_CHUNK_TOKENS: Final = 2048.0
"""Tokens between states that the selective scan keeps. Source: mamba-ssm, selective_scan.cpp."""
BACKWARD_PASSES: Final = 2.5
"""Bytes moved backward over forward: inputs and states are made again, then read beside their gradients.

Source: counted from the kernels of flash-linear-attention, gated_delta_rule/chunk.py.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Products:
    """How often a scan multiplies: chunk x keys, chunk x values, keys x values, for each head and token."""

    keys: float
    values: float
    states: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """16-bit numbers a token that a scan moves forward: keys, values, keys of all heads, scores, states."""

    keys: float
    values: float
    wide_keys: float
    scores: float
    states: float


_DELTA: Final = Products(keys=3, values=2, states=3)
_LIGHTNING: Final = Products(keys=1, values=1, states=2)
_SLOW_DELTA: Final = Products(keys=9, values=5, states=8)
# state space, forward: C B^T and scores x inputs in a chunk, inputs to state, state to output; backward makes
# states again. Source: Dao 2024 (Mamba-2, arXiv 2405.21060), section 6; mamba-ssm, ssd_combined.py.
# Delta rule, forward: K K^T, W and Q K^T over keys, U and scores x values, W, K^T and Q against the state.
# Source: Yang 2024 (Gated DeltaNet, arXiv 2412.06464), section 3.3; flash-linear-attention,
# gated_delta_rule/chunk.py; the backward products are those of chunk_gated_delta_rule_bwd.
FORWARD: Final = {
    Scan.STATE_SPACE: _LIGHTNING,
    Scan.LIGHTNING: _LIGHTNING,
    Scan.DELTA: _DELTA,
    Scan.CHANNEL_DELTA: _DELTA,
}
BACKWARD: Final = {
    Scan.STATE_SPACE: Products(keys=3, values=3, states=5),
    Scan.LIGHTNING: Products(keys=3, values=2, states=5),
    Scan.DELTA: _SLOW_DELTA,
    Scan.CHANNEL_DELTA: _SLOW_DELTA,
}
MOVED: Final = {
    Scan.SELECTIVE: Passes(keys=2, values=5, wide_keys=0, scores=0, states=0),
    Scan.STATE_SPACE: Passes(keys=4, values=8, wide_keys=0, scores=4, states=7),
    Scan.LIGHTNING: Passes(keys=4, values=7, wide_keys=0, scores=0, states=2),
    Scan.DELTA: Passes(keys=9, values=9, wide_keys=2, scores=6, states=2),
    Scan.CHANNEL_DELTA: Passes(keys=9, values=9, wide_keys=6, scores=8, states=2),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScanWork:
    """One scan on one rank: products and bytes, forward and backward, and what units of fp32 have to do."""

    flop: F64
    backward_flop: F64
    vector_flop: F64
    moved_bytes: F64
    backward_bytes: F64


@dataclass(frozen=True, slots=True, kw_only=True)
class MixerParameters:
    """Parameters of a mixer: split over tensor ranks, and whole on each."""

    split: int
    replicated: int


def in_widths(part: Mixer) -> tuple[int, int]:
    """Outputs of the first maps of a token: those that tensor parallelism splits, and low ranks."""
    values, keys, heads = part.values, part.keys, part.heads
    if part.scan is Scan.SELECTIVE:
        return 2 * values, 0
    if part.scan is Scan.STATE_SPACE:
        return 2 * values + 2 * keys + heads, 0
    if part.scan is Scan.LIGHTNING:
        return 2 * values + 2 * keys, 0
    if part.scan is Scan.DELTA:
        return 2 * values + 2 * keys + 2 * heads, 0
    gate = 0 if part.gate_rank else values
    decay = 0 if part.decay_rank else heads * part.key_dim
    return values + 2 * keys + heads + gate + decay, part.gate_rank + part.decay_rank


def low_maps(part: Mixer) -> list[tuple[int, int]]:
    """Inner and outer width of the maps after the first: step sizes of Mamba, low-rank gates and decays."""
    if part.scan is Scan.SELECTIVE:
        return [(part.values, part.decay_rank + 2 * part.key_dim), (part.decay_rank, part.values)]
    if part.scan is not Scan.CHANNEL_DELTA:
        return []
    maps = [(part.decay_rank, part.heads * part.key_dim), (part.gate_rank, part.values)]
    return [each for each in maps if each[0]]


def mixer_parameters(part: Mixer, hidden: int) -> MixerParameters:
    """Maps in and out, convolution, and for each head (or channel) decays, step biases and skips.

    Source: Gu 2023 (Mamba, arXiv 2312.00752), section 3.4; Mamba-2; Gated DeltaNet; Kimi Team 2025 (Kimi
    Linear, arXiv 2510.26692); MiniMax 2025 (arXiv 2501.08313); modules of transformers 5.24.
    """
    split, low = in_widths(part)
    maps = hidden * split + sum(inner * outer for inner, outer in low_maps(part)) + part.values * hidden
    convolution = part.mixed * (part.taps + part.has_convolution_bias)
    is_wide = part.norm_dim == part.values
    return MixerParameters(
        split=maps + convolution + _head_parameters(part) + part.has_bias * split + is_wide * part.norm_dim,
        replicated=hidden * low + part.has_output_bias * hidden + (not is_wide) * part.norm_dim,
    )


def _head_parameters(part: Mixer) -> int:
    each = {
        Scan.SELECTIVE: part.key_dim + 2,
        Scan.STATE_SPACE: 3,
        Scan.DELTA: 2,
        Scan.CHANNEL_DELTA: 1 + part.key_dim,
        Scan.LIGHTNING: 0,
    }
    return part.heads * each[part.scan]


def scan_work(part: Mixer, tokens: F64, sequence_tokens: F64 | float, tp: F64) -> ScanWork:
    """Products of a scan: 2 * tokens * heads * (chunk * (a keys + b values) + c keys * values) / TP.

    And the convolution, 2 * taps * widths a token. A selective scan multiplies no matrices: it has 6 FLOP and
    an exponential for each channel and state. Bytes: passes over keys, values, scores and states of chunks.
    """
    rows, chunk = tokens / tp, np.minimum(float(part.chunk_tokens), sequence_tokens)
    convolved = 2.0 * part.taps * part.mixed
    moved = 2.0 * rows * _moved(part, chunk)
    if part.scan is Scan.SELECTIVE:
        states = rows * part.values * part.key_dim
        work = states * (SELECTIVE_FLOP + EXPONENTIAL_FLOP)
        flop, backward = rows * convolved + states * SELECTIVE_FLOP, 2.0 * rows * convolved
        backward = backward + 3.0 * states * SELECTIVE_FLOP
    else:
        work = np.zeros_like(rows)
        flop = rows * (convolved + _chunked(part, chunk, FORWARD[part.scan]))
        backward = rows * (2.0 * convolved + _chunked(part, chunk, BACKWARD[part.scan]))
    return ScanWork(
        flop=flop,
        backward_flop=backward,
        vector_flop=work,
        moved_bytes=moved,
        backward_bytes=BACKWARD_PASSES * moved,
    )


def _chunked(part: Mixer, chunk: F64 | float, each: Products) -> F64 | float:
    """FLOP a token of the products of a chunked scan; a state space shares its scores over key heads."""
    scored = part.key_heads if part.scan is Scan.STATE_SPACE else part.heads
    keys = each.keys * scored * chunk * part.key_dim
    values = each.values * part.heads * chunk * part.value_dim
    return 2.0 * (keys + values + each.states * part.heads * part.key_dim * part.value_dim)


def _moved(part: Mixer, chunk: F64 | float) -> F64 | float:
    """16-bit numbers a token that convolution, scan and gated norm read and write."""
    passes = MOVED[part.scan]
    scored = part.key_heads if part.scan is Scan.STATE_SPACE else part.heads
    state = part.heads * part.key_dim * part.value_dim / chunk
    moved = 2.0 * part.mixed + passes.keys * part.keys + passes.values * part.values
    wide = passes.wide_keys * part.heads * part.key_dim
    return moved + wide + passes.scores * scored * chunk + passes.states * state


def mixer_kept_bytes(part: Mixer) -> float:
    """Bytes a token that the fused kernels keep beside the layer's input, in 16 bit; all are split by TP.

    Mamba-2: what goes into its one kernel (gate, inputs, keys, queries, steps) and the scan's output; Mamba:
    inputs, gate, steps and keys, scan's output and a state every 2,048 tokens. Delta rules: the
    convolution's input, normed queries and keys, values, scores of a chunk, output, gate and gated output.
    Source: save_for_backward of mamba-ssm (ssd_combined.py, selective_scan_interface.py), of
    flash-linear-attention (gated_delta_rule/chunk.py, kda/chunk.py) and causal-conv1d.
    """
    values, heads = part.values, part.heads
    if part.scan is Scan.STATE_SPACE:
        return 2.0 * in_widths(part)[0] + 2.0 * values + 4.0 * part.key_heads
    if part.scan is Scan.SELECTIVE:
        low = 2.0 * (part.decay_rank + 4 * part.key_dim)
        return 6.0 * values + low + 8.0 * values * part.key_dim / SELECTIVE_CHUNK_TOKENS
    gated = 2.0 * part.mixed + 2.0 * part.mixed + 6.0 * values + 4.0 * heads
    if part.scan is Scan.LIGHTNING:
        return gated
    scores = 2.0 * part.chunk_tokens * heads
    inverses = 8.0 * part.key_heads
    if part.scan is Scan.DELTA:
        # decay (fp32), its raw input, softplus and product, step size: 4 + 4 + 4 + 4 + 2 bytes a head
        return gated + scores + inverses + 18.0 * heads
    # decay of every channel in fp32 and its raw input, step sizes, and what the low-rank maps read
    decays = 6.0 * heads * part.key_dim + 2.0 * heads + 2.0 * (part.gate_rank + part.decay_rank)
    return gated + 2.0 * scores + inverses + decays


def eager_norm_bytes(part: Mixer) -> float:
    """Bytes a token more where the gated norm at the output is made of several operations, in fp32.

    Eager: input and gate in fp32, the gate's activation in fp32 and the normed values twice, 12 a value;
    lightning attention norms before a gate of its own, 6. A state space has its norm in the kernel.
    Source: Qwen3NextRMSNormGated and MiniMaxRMSNorm of transformers 5.24, traced.
    """
    more = {Scan.DELTA: 12.0, Scan.CHANNEL_DELTA: 12.0, Scan.LIGHTNING: 6.0}
    return more.get(part.scan, 0.0) * part.values


def state_bytes(part: Mixer, number_bytes: float = 2.0) -> float:
    """What one sequence keeps to go on: heads * keys * values in fp32 + the taps of the convolution."""
    taps = max(part.taps - 1, 0) * part.mixed * number_bytes
    return 4.0 * part.heads * part.key_dim * part.value_dim + taps


def exchanged_numbers(part: Mixer) -> int:
    """Numbers a token that context ranks exchange, from tokens to heads and back: all first maps, the output.

    Source: Megatron-Core, ssm/mamba_context_parallel.py.
    """
    return in_widths(part)[0] + part.values
