"""The kinds of layers that a network has, each with its parts in words, its work, and what it keeps.

Knows what a sequence leaves behind for the next token (keys and values, or a state); plans no serving.
"""

from dataclasses import dataclass

from escala.model.activations import kept
from escala.model.matmuls import layer_work, stack_shape
from escala.model.mixers import state_bytes
from escala.model.network import (
    Attention,
    AttentionKind,
    Block,
    Convolution,
    Experts,
    FeedForward,
    Linear,
    Mixer,
    Part,
    Scan,
    Stack,
)
from escala.model.parameters import block_parameters
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.selection import pooled_numbers
from escala.model.stages import kinds
from escala.model.traces import Traced

SCANS = {
    Scan.SELECTIVE: "selective scan (Mamba)",
    Scan.STATE_SPACE: "state space (Mamba-2)",
    Scan.DELTA: "gated delta rule",
    Scan.CHANNEL_DELTA: "delta rule with channel decays",
    Scan.LIGHTNING: "lightning attention",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """One kind of layer: how many, its parts in words, parameters of one, share of the products.

    `kept_bytes` is what one layer keeps of a micro-batch on one rank without recompute; `token_bytes` and
    `fixed_bytes` what a sequence leaves in it for the next token, 16-bit keys and values, fp32 states.
    `is_plain` says that it is the layer of a dense transformer.
    """

    name: str
    layers: int
    parts: tuple[str, ...]
    parameters: int
    flop_share: float
    kept_bytes: float
    token_bytes: float
    fixed_bytes: float
    is_plain: bool


def layer_kinds_of(problem: Problem, plan: Plan) -> tuple[LayerKind, ...]:
    """Every kind of layer of the network, in the order of their first layer."""
    found = [(stack, block, stack.count(stack.blocks.index(block))) for stack, block in _blocks(problem)]
    flop = [count * _flop(problem, stack, block) for stack, block, count in found]
    plans = Plans.of(plan)
    return tuple(
        LayerKind(
            name=block.name,
            layers=count,
            parts=(*(part_words(part) for part in block.parts), *_stream_words(block)),
            parameters=block_parameters(block, stack.hidden).total,
            flop_share=own / (sum(flop) or 1.0),
            kept_bytes=float(kept(problem, plans, stack, block).whole_bytes[0]),
            token_bytes=sum(left_bytes(part)[0] for part in block.parts),
            fixed_bytes=sum(left_bytes(part)[1] for part in block.parts),
            is_plain=is_plain(block),
        )
        for (stack, block, count), own in zip(found, flop, strict=True)
    )


def is_plain(block: Block) -> bool:
    """Attention of every token to all, with keys and values of its own, then one feed-forward."""
    match block.parts:
        case [Attention() as attention, FeedForward()]:
            return attention.kind is AttentionKind.FULL and not attention.kv_rank and not attention.gate_dim
    return False


def left_bytes(part: Part) -> tuple[float, float]:
    """What a sequence leaves in a part: 2 bytes a key and value for each token, or a state of fixed size.

    Latent attention leaves its low rank and the rotary key, a window as many keys as it is wide, an indexer
    its key, a pool one key of its tokens (the few that are not yet pooled are left out); what reads the keys
    of a layer before leaves none.
    """
    if isinstance(part, Mixer):
        return 0.0, state_bytes(part)
    if not isinstance(part, Attention) or not part.is_causal or part.key_value_maps == 0:
        return 0.0, 0.0
    width = part.kv_rank + part.rope_head_dim if part.kv_rank else part.key_value_width
    if part.pooled_tokens:
        return 2.0 * pooled_numbers(part), 2.0 * width * (part.window_tokens or 0)
    own = 2.0 * (width + (part.index_dim if part.index_heads else 0))
    return (0.0, own * part.window_tokens) if part.window_tokens else (own, 0.0)


def part_words(part: Part) -> str:
    """One part with the numbers that make it."""
    match part:
        case Attention():
            return _attention_words(part)
        case Mixer():
            return _mixer_words(part)
        case FeedForward():
            return f"{'gated ' if part.is_gated else ''}feed-forward {part.width:,} wide"
        case Experts():
            shared = f", shared ones {part.shared_width:,}" if part.shared_width else ""
            inside = f", on a stream of {part.latent_dim:,}" if part.latent_dim else ""
            return f"{part.top_k} of {part.experts:,} experts {part.width:,} wide{shared}{inside}"
        case Convolution():
            return f"convolution {part.inputs:,} to {part.outputs:,}"
        case Linear():
            return f"map {part.inputs:,} to {part.outputs:,}"
        case Traced():
            return f"a module traced over {part.launches:,} operations"


def _stream_words(block: Block) -> list[str]:
    return [f"{block.streams:,} residual streams, mixed around each part"] if block.streams > 1 else []


def _attention_words(part: Attention) -> str:
    heads = f"{part.heads:,} heads of {part.head_dim:,}"
    keys = f"latent keys of {part.kv_rank:,}" if part.kv_rank else f"{part.kv_heads:,} key-value heads"
    seen = {
        AttentionKind.CHUNKED: f"within {part.window_tokens or 0:,} tokens",
        AttentionKind.SLIDING: f"a window of {part.window_tokens or 0:,} tokens",
        AttentionKind.SPARSE: f"{part.top_tokens or 0:,} keys of an indexer of {part.index_heads:,} heads",
    }.get(part.kind, "")
    if part.kind is AttentionKind.SPARSE and not part.index_heads:
        seen = f"{part.top_tokens or 0:,} keys selected by a layer before"
    if part.pooled_tokens:
        selected = f"{seen} among " if part.index_heads else "and "
        window = f"a window of {part.window_tokens or 0:,} tokens"
        seen = f"{window}, {selected}one key for {part.pooled_tokens:,} tokens"
    gate = "an output gate" if part.gate_dim else ""
    groups = f"outputs in {part.output_groups:,} groups of {part.output_rank:,}" if part.output_groups else ""
    return f"attention: {', '.join(each for each in (heads, keys, seen, gate, groups) if each)}"


def _mixer_words(part: Mixer) -> str:
    state = f"{part.heads:,} heads with a state of {part.key_dim:,} x {part.value_dim:,}"
    keys = f"{part.key_heads:,} key heads" if part.key_heads != part.heads else ""
    chunk = "" if part.scan is Scan.SELECTIVE else f"chunks of {part.chunk_tokens:,} tokens"
    taps = f"a convolution over {part.taps} tokens" if part.taps else ""
    return f"{SCANS[part.scan]}: {', '.join(each for each in (state, keys, chunk, taps) if each)}"


def _blocks(problem: Problem) -> list[tuple[Stack, Block]]:
    return kinds(problem.workload.network)


def _flop(problem: Problem, stack: Stack, block: Block) -> float:
    shape = stack_shape(Plans.of(Plan()), stack, problem.workload.sequence_tokens)
    work = layer_work(block, stack, shape)
    products = sum(float(each.flop[0]) for each in work.matmuls)
    scores = sum(2.0 * float(each.score_elements[0]) * each.width for each in work.cores)
    return products + scores + sum(float(each.flop[0]) for each in work.scans)
