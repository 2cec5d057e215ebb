"""Why a plan cannot be run: one bit for each rule. Knows divisibility and what engines and chips lack.

A plan that cannot be run is data, not an error: bits add up, and a histogram over a space says why nothing
is feasible.
"""

from enum import IntFlag
from typing import Final

import numpy as np

from escala.model.activations import autocasts
from escala.model.cluster import Accelerator
from escala.model.columns import I64, Bool
from escala.model.efficiency import peak_flop_per_s
from escala.model.network import Attention, Experts, FeedForward, Mixer, Network, Part, StackRole
from escala.model.offload import is_unknown, wants
from escala.model.plan import (
    Compile,
    ContextKind,
    Offload,
    OptimizerStep,
    Plans,
    Precision,
    Recompute,
    Schedule,
    Split,
)
from escala.model.precision import RECIPES, recipe
from escala.model.problem import Problem
from escala.model.traced import format_codes, was_not_seen
from escala.model.traces import Traced
from escala.model.workload import Batching


class Reject(IntFlag):
    """One bit a rule."""

    DEVICES = 1 << 0
    BATCH = 1 << 1
    TENSOR_HEADS = 1 << 2
    TENSOR_KV_HEADS = 1 << 3
    TENSOR_WIDTH = 1 << 4
    TENSOR_KIND = 1 << 5
    SEQUENCE_WITHOUT_TENSOR = 1 << 6
    SEQUENCE_SPLIT = 1 << 7
    CONTEXT_SPLIT = 1 << 8
    CONTEXT_HEADS = 1 << 9
    CONTEXT_KIND = 1 << 10
    EXPERTS = 1 << 11
    EXPERT_RANKS = 1 << 12
    STAGES = 1 << 13
    STAGE_KIND = 1 << 23
    STAGE_SPLIT = 1 << 14
    SCHEDULE = 1 << 15
    SCHEDULE_MICRO_BATCHES = 1 << 16
    SHARD = 1 << 17
    ENGINE = 1 << 18
    PRECISION = 1 << 19
    OFFLOAD = 1 << 20
    LOCAL_STEPS = 1 << 24
    LOCAL_FRAGMENTS = 1 << 25
    MIXER_HEADS = 1 << 26
    CONTEXT_DYNAMIC = 1 << 27
    SITE_POWER = 1 << 21
    MEMORY = 1 << 22
    TRACED = 1 << 40
    TRACED_FORMAT = 1 << 41
    HOST_LINK = 1 << 28
    HOST_MEMORY = 1 << 29
    OPTIMIZER_STEP = 1 << 30


DYNAMIC_CP: Final = "dynamic-cp"
REPEATED_KEYS: Final = "repeated-keys"
DEALT: Final = (Batching.FULL, Batching.MASKED)
"""Rows whose sequences dynamic context parallelism can share by length."""
REASONS: Final[dict[Reject, str]] = {
    Reject.DEVICES: "dp x tp x pp x cp is not the number of devices",
    Reject.BATCH: "dp x micro-batch x micro-batches is not the global batch",
    Reject.TENSOR_HEADS: "tp does not divide the attention heads",
    Reject.TENSOR_KV_HEADS: "tp does not divide the key-value heads",
    Reject.TENSOR_WIDTH: "tp does not divide the hidden or feed-forward width",
    Reject.TENSOR_KIND: "tensor, context and pipeline parallelism need a transformer, this network has none",
    Reject.SEQUENCE_WITHOUT_TENSOR: "sequence parallelism needs tp above 1",
    Reject.SEQUENCE_SPLIT: "tp does not divide the tokens of one context-parallel rank",
    Reject.CONTEXT_SPLIT: "2 x cp does not divide the sequence length",
    Reject.CONTEXT_HEADS: "Ulysses needs cp x tp to divide the key-value heads",
    Reject.CONTEXT_KIND: "context parallelism needs causal or full self-attention over one token stream",
    Reject.EXPERTS: "ep does not divide the experts (or the network has none)",
    Reject.EXPERT_RANKS: "ep x etp does not divide dp x cp x tp, or etp is neither 1 nor tp",
    Reject.STAGES: "more pipeline stages than layers (embedding and head counted when the split is balanced)",
    Reject.STAGE_KIND: "pipeline stages need one stream of layers; this network has several stacks",
    Reject.STAGE_SPLIT: "the stage split does not have one entry a stage, or does not add up to the layers",
    Reject.SCHEDULE: "the schedule does not go with pp and the virtual stages",
    Reject.SCHEDULE_MICRO_BATCHES: "the interleaved schedule needs micro-batches that pp divides",
    Reject.SHARD: "the shard group does not divide dp x cp, is no multiple of cp or goes not with ZeRO",
    Reject.ENGINE: "the engine cannot do this combination",
    Reject.PRECISION: "the device has no unit for this precision",
    Reject.OFFLOAD: "weights are offloaded with ZeRO-3 alone, optimizer states with ZeRO or a single replica",
    Reject.LOCAL_STEPS: "local steps need replicas: zero 0 with cp 1, or HSDP, with all experts in each",
    Reject.LOCAL_FRAGMENTS: "overlaps and fragments need more local steps, each fragment a layer",
    Reject.MIXER_HEADS: "tp does not divide the key heads of a recurrent mixer, or tp x cp not its heads",
    Reject.CONTEXT_DYNAMIC: "dynamic context parallelism shares documents of masked rows, not padded ones",
    Reject.SITE_POWER: "the devices draw more than the site or rack allows",
    Reject.MEMORY: "does not fit in device memory",
    Reject.TRACED: "a traced module is replicated or sharded as it ran: its parts are not known to be split, "
    "compiled or recomputed in part",
    Reject.TRACED_FORMAT: "the traced module did not run in this number format",
    Reject.HOST_LINK: "the speed of the host's bus, or of its disks, is not known",
    Reject.HOST_MEMORY: "does not fit in host memory",
    Reject.OPTIMIZER_STEP: "a step inside backward needs one micro-batch, no pipeline, ZeRO 0 or 3, "
    "and states on the device",
}


def describe(bits: int) -> list[str]:
    """The reasons behind the bits, in order."""
    return [reason for bit, reason in REASONS.items() if bits & bit]


def rejects(problem: Problem, plans: Plans) -> I64:
    """Bits of every rule that each plan breaks, memory excepted. Shape (n,)."""
    bits = np.zeros(len(plans), np.int64)
    for bit, broken in _rules(problem, plans).items():
        bits |= np.where(broken, int(bit), 0)
    return bits


def _rules(problem: Problem, plans: Plans) -> dict[Reject, Bool]:
    return {
        **_totals(problem, plans),
        **_tensor(problem, plans),
        **_context(problem, plans),
        **_experts(problem, plans),
        **_pipeline(problem, plans),
        **_sharding(plans),
        **_streams(problem, plans),
        **_abilities(problem, plans),
    }


def _totals(problem: Problem, plans: Plans) -> dict[Reject, Bool]:
    batch = plans.dp * plans.micro_batch * plans.micro_batches
    return {
        Reject.DEVICES: plans.devices != problem.cluster.devices,
        Reject.BATCH: batch != problem.workload.global_batch,
    }


def parts_of(problem: Problem) -> list[Part]:
    """All parts of all kinds of layers."""
    return parts_of_network(problem.workload.network)


def parts_of_network(network: Network) -> list[Part]:
    """All parts of all kinds of layers of a network."""
    return [part for stack in network.stacks for block in stack.blocks for part in block.parts]


def _tensor(problem: Problem, plans: Plans) -> dict[Reject, Bool]:
    heads = [p.heads for p in parts_of(problem) if isinstance(p, Attention)]
    kv_heads = [p.kv_heads for p in parts_of(problem) if isinstance(p, Attention) and not p.kv_rank]
    widths = [stack.hidden for stack in problem.workload.network.stacks]
    for part in parts_of(problem):
        if isinstance(part, FeedForward):
            widths.append(part.width)
        elif isinstance(part, Experts):
            widths += [part.shared_width] if part.shared_width else []
    mixers = [p for p in parts_of(problem) if isinstance(p, Mixer)]
    grouped = (plans.tp * plans.pp * plans.cp > 1) & (not problem.workload.network.is_traced)
    sequence = problem.workload.sequence_tokens // np.maximum(plans.cp, 1)
    return {
        Reject.TENSOR_HEADS: _not_dividing(plans.tp, heads),
        Reject.TENSOR_KV_HEADS: _not_dividing(plans.tp, kv_heads),
        Reject.TENSOR_WIDTH: _not_dividing(plans.tp, widths),
        Reject.TENSOR_KIND: grouped & (not heads) & (not mixers),
        Reject.MIXER_HEADS: _not_dividing(plans.tp, [p.key_heads for p in mixers])
        | _not_dividing(plans.tp * plans.cp, [p.heads for p in mixers]),
        Reject.SEQUENCE_WITHOUT_TENSOR: (plans.sp == 1) & (plans.tp == 1),
        Reject.SEQUENCE_SPLIT: (plans.sp == 1) & (sequence % plans.tp != 0),
    }


def _not_dividing(degrees: I64, sizes: list[int]) -> Bool:
    broken = np.zeros(len(degrees), np.bool_)
    for size in set(sizes):
        broken |= size % degrees != 0
    return broken


def _context(problem: Problem, plans: Plans) -> dict[Reject, Bool]:
    active = plans.cp > 1
    one_stream = all(s.role is StackRole.DECODER for s in problem.workload.network.stacks)
    ulysses = active & (plans.cp_kind == ContextKind.ULYSSES)
    return {
        Reject.CONTEXT_SPLIT: active & (problem.workload.sequence_tokens % (2 * plans.cp) != 0),
        Reject.CONTEXT_HEADS: ulysses & ~deals_heads(problem, plans.cp * plans.tp),
        Reject.CONTEXT_KIND: active & (not one_stream),
        Reject.CONTEXT_DYNAMIC: (plans.dynamic_cp == 1) & (problem.workload.lengths.batching not in DEALT),
    }


def deals_heads(problem: Problem, ranks: I64) -> Bool:
    """Whether Ulysses can deal heads to so many ranks: they divide the key-value heads of every attention.

    An engine that repeats keys takes more ranks as well: a multiple of those heads that divides the queries'.
    """
    dealt = np.ones(len(ranks), np.bool_)
    for part in parts_of(problem):
        if isinstance(part, Attention):
            repeated = (part.heads % ranks == 0) & (ranks % part.kv_heads == 0)
            dealt &= (part.kv_heads % ranks == 0) | (repeated & (REPEATED_KEYS in problem.engine.has))
    return dealt


def _experts(problem: Problem, plans: Plans) -> dict[Reject, Bool]:
    experts = [p.experts for p in parts_of(problem) if isinstance(p, Experts)]
    widths = [p.width for p in parts_of(problem) if isinstance(p, Experts)]
    ranks = plans.dp * plans.cp * plans.tp
    odd = (plans.etp != 1) & (plans.etp != plans.tp)
    unused = (plans.ep > 1) & (not experts)
    return {
        Reject.EXPERTS: _not_dividing(plans.ep, experts) | unused | _not_dividing(plans.etp, widths),
        Reject.EXPERT_RANKS: (ranks % (plans.ep * plans.etp) != 0) | odd,
    }


def _pipeline(problem: Problem, plans: Plans) -> dict[Reject, Bool]:
    layers, stages = problem.workload.network.layers, plans.pp * plans.virtual_stages
    piped = plans.pp > 1
    none = plans.schedule == Schedule.NONE
    interleaved = plans.schedule == Schedule.INTERLEAVED
    zero_bubble = plans.schedule == Schedule.ZERO_BUBBLE_V
    wrong_virtual = np.where(interleaved, plans.virtual_stages < 2, plans.virtual_stages != 1)
    wrong_virtual = np.where(zero_bubble, plans.virtual_stages != 2, wrong_virtual)
    custom = plans.split == Split.CUSTOM
    fits = np.array([_splits_well(problem, plans, int(row)) for row in np.flatnonzero(custom)], np.bool_)
    broken_split = np.zeros(len(plans), np.bool_)
    broken_split[custom] = ~fits
    units = layers + np.where(plans.split == Split.BALANCED, 2, 0)
    return {
        Reject.STAGES: piped & (stages > units),
        Reject.STAGE_KIND: piped & (len(problem.workload.network.stacks) > 1),
        Reject.STAGE_SPLIT: broken_split,
        Reject.SCHEDULE: (piped == none) | (wrong_virtual != 0),
        Reject.SCHEDULE_MICRO_BATCHES: interleaved & (plans.micro_batches % plans.pp != 0),
    }


def _splits_well(problem: Problem, plans: Plans, row: int) -> bool:
    given = plans.splits[int(plans.stage_split[row])] if plans.stage_split[row] >= 0 else ()
    stages = int(plans.pp[row] * plans.virtual_stages[row])
    return len(given) == stages and sum(given) == problem.workload.network.layers and min(given) >= 0


def _sharding(plans: Plans) -> dict[Reject, Bool]:
    replicas = plans.dp * plans.cp
    uneven = (replicas % plans.shard != 0) | ((plans.zero == 3) & (plans.shard % plans.cp != 0))
    unsharded = (plans.zero == 0) & (plans.shard != 1)
    partial = (plans.zero > 0) & (plans.zero < 3) & (plans.shard != replicas)
    reshard = (plans.reshard == 1) & (plans.zero < 3)
    return {Reject.SHARD: uneven | unsharded | partial | reshard, Reject.LOCAL_STEPS: _unlocal(plans)}


def _streams(problem: Problem, plans: Plans) -> dict[Reject, Bool]:
    """Fragments that could not meet in turn: more than local steps or layers, or an overlap as long."""
    most = np.minimum(plans.local_steps, max(problem.workload.network.layers, 1))
    early = (plans.local_overlap_steps > 0) & (plans.local_overlap_steps >= plans.local_steps)
    return {Reject.LOCAL_FRAGMENTS: (plans.local_fragments > most) | early}


def _unlocal(plans: Plans) -> Bool:
    """Local steps where the ranks are no replicas that could train alone."""
    sharded = (plans.zero == 3) & (plans.shard < plans.dp * plans.cp)
    whole = (plans.zero == 0) & (plans.dp > 1) & (plans.cp == 1)
    has_experts = plans.ep * plans.etp <= plans.shard * plans.tp
    return np.asarray((plans.local_steps > 1) & ~((sharded | whole) & has_experts), np.bool_)


def _abilities(problem: Problem, plans: Plans) -> dict[Reject, Bool]:
    needed = needs(problem, plans)
    broken = np.zeros(len(plans), np.bool_)
    for ability in problem.engine.lacks:
        broken |= needed[ability]
    if DYNAMIC_CP not in problem.engine.has:
        broken |= (plans.dynamic_cp == 1) & (plans.cp > 1)
    unknown = np.zeros(len(plans), np.bool_)
    for ability in set(problem.lacks) - set(problem.engine.lacks):
        unknown |= needed[ability]
    no_unit = np.array([not has_units(problem.accelerator, code) for code in Precision])
    return {
        Reject.ENGINE: broken | is_unmoved(problem, plans),
        Reject.TRACED: unknown,
        Reject.TRACED_FORMAT: unseen_format(problem, plans),
        **_away(problem, plans),
        Reject.PRECISION: no_unit[plans.precision],
        Reject.SITE_POWER: np.full(len(plans), draws_too_much(problem)),
    }


def unseen_format(problem: Problem, plans: Plans) -> Bool:
    """Plans in whose number format a traced module did not run."""
    broken = np.zeros(len(plans), np.bool_)
    for part in parts_of(problem):
        if isinstance(part, Traced):
            broken |= was_not_seen(part, format_codes(plans, autocasts(problem, plans)))
    return broken


def is_unmoved(problem: Problem, plans: Plans) -> Bool:
    """Plans that offload, or step, as the engine does not know to."""
    broken = np.zeros(len(plans), np.bool_)
    for ability, wanted in wants(plans).items():
        if ability not in problem.engine.has:
            broken |= wanted
    return broken


def _away(problem: Problem, plans: Plans) -> dict[Reject, Bool]:
    """Offload and steps inside backward where the states allow them."""
    unsharded = (plans.zero == 0) & (plans.dp * plans.cp > 1)
    lone = (plans.offload_params != Offload.NONE) & (plans.zero < 3)
    early = plans.optimizer_step == OptimizerStep.IN_BACKWARD
    simple = (plans.micro_batches == 1) & (plans.pp == 1) & ((plans.zero == 0) | (plans.zero == 3))
    at_host = plans.offload_optimizer != Offload.NONE
    return {
        Reject.OFFLOAD: lone | (at_host & unsharded),
        Reject.HOST_LINK: is_unknown(problem, plans),
        Reject.OPTIMIZER_STEP: early & ~(simple & ~at_host),
    }


def has_units(chip: Accelerator, precision: Precision) -> bool:
    """Whether a device has units for the formats that a precision computes in."""
    own = recipe(precision)
    return all(peak_flop_per_s(chip, name) is not None for name in (own.peak, own.high_peak))


def draws_too_much(problem: Problem) -> bool:
    """Whether all devices, computing, exceed what the site or a rack may draw."""
    site, limit_w = problem.cluster.site, problem.accelerator.power_w
    if limit_w is None:
        return False
    per_device_w = limit_w * problem.assumptions.power_compute_share * site.node_power_ratio
    total = per_device_w * problem.cluster.devices * site.pue
    rack = per_device_w * (site.devices_per_rack or 0)
    return total > (site.power_limit_w or np.inf) or rack > (site.rack_power_limit_w or np.inf)


def needs(problem: Problem, plans: Plans) -> dict[str, Bool]:
    """Plans that need each ability which an engine may lack, by its name in the engine record."""
    layers, stages = problem.workload.network.layers, plans.pp * plans.virtual_stages
    uneven = (plans.split != Split.EVEN) | (layers % stages != 0)
    split = plans.tp * plans.pp * plans.cp * plans.ep > 1
    split_weights = plans.tp * plans.ep > 1
    grouped = (plans.zero == 3) & (plans.shard < plans.dp * plans.cp)
    return {
        "tp": plans.tp > 1,
        "pp": plans.pp > 1,
        "cp": plans.cp > 1,
        "ep": plans.ep > 1,
        "etp": plans.etp > 1,
        "ddp": (plans.zero == 0) & (plans.dp * plans.cp > 1),
        "ddp-with-model-parallel": (plans.zero == 0) & (plans.dp * plans.cp > 1) & split,
        "zero-1": plans.zero == 1,
        "zero-2": plans.zero == 2,
        "zero-3": plans.zero == 3,
        "no-reshard": (plans.zero == 3) & (plans.reshard == 0),
        "hsdp": grouped,
        "hsdp-with-ep": grouped & (plans.shard > 1) & (plans.ep > 1),
        "zero-2-with-pp": (plans.zero >= 2) & (plans.pp > 1),
        "reshard-with-pp": (plans.reshard == 1) & (plans.pp > 1),
        "zero-1-with-model-parallel": (plans.zero == 1) & split,
        "zero-1-with-split-weights": (plans.zero == 1) & (plans.shard > 1) & split_weights,
        "gpipe": plans.schedule == Schedule.GPIPE,
        "interleaved": plans.schedule == Schedule.INTERLEAVED,
        "zero-bubble-v": plans.schedule == Schedule.ZERO_BUBBLE_V,
        "uneven-stages": (plans.pp > 1) & uneven,
        "ulysses": (plans.cp > 1) & (plans.cp_kind == ContextKind.ULYSSES),
        "all-gather-cp": (plans.cp > 1) & (plans.cp_kind == ContextKind.ALL_GATHER),
        "selective": plans.recompute == Recompute.SELECTIVE,
        "first-layers": plans.recompute == Recompute.FIRST_LAYERS,
        "compile": plans.compile != Compile.OFF,
        "fused-loss": plans.fused_loss == 1,
        "fp8": np.array([r.is_scaled for r in RECIPES])[plans.precision],
        "local-steps": plans.local_steps > 1,
        "micro-batches": (plans.micro_batches > 1) & (plans.pp == 1),
    }
