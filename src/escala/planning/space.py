"""The stated space of plans for a problem, as groups of equal degrees with their choices. Judges nothing.

A Group fixes dp, tp, pp and cp and lists what may vary inside: expert degrees, sharding modes, mesh orders,
micro-batches, SP, CP kind and pipeline schedules. The space is the product of those lists over all groups,
times recompute (none, selective, first n layers, full), compile and fused loss.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any, Final, TypeAlias

import numpy as np

from escala.model.host import PLACES
from escala.model.network import Attention, Experts, FeedForward, Mixer, StackRole
from escala.model.plan import (
    CHOICES,
    PLACEMENTS,
    Compile,
    ContextKind,
    OptimizerStep,
    Plan,
    Plans,
    Precision,
    Recompute,
    Schedule,
    Split,
)
from escala.model.problem import Problem
from escala.model.rejects import deals_heads, parts_of, unseen_format

# the space has micro-batches up to 64 samples, and of short samples up to 131,072 tokens or 1,024 samples
MAX_MICRO_BATCH: Final = 64
MAX_TOKENS: Final = 131_072
MAX_SAMPLES: Final = 1024
MIN_CONTEXT_TOKENS: Final = 1024
PROCESSOR: Final = "cpu"
LOCAL: Final = ("local_steps", "local_wire", "local_fragments", "local_overlap_steps")
"""How replicas train alone."""
ALONE: Final = (*LOCAL, "dynamic_cp", "wide_layers", *PLACES, "optimizer_step")
"""Fields of which the search takes one value for all plans: the plain one, or what is asked for."""
Pipelines: TypeAlias = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceLimits:
    """What the user narrows: values that plan fields may take, the precision, the mesh orders tried.

    `all_placements` tries every mesh order instead of those with TP innermost.
    """

    fixed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    precision: Precision = Precision.BF16
    all_placements: bool = False

    @property
    def plain(self) -> Plan:
        """What all plans have in common: the precision, and what is taken only where it is asked for."""
        given: dict[str, Any] = {name: self.fixed[name][0] for name in ALONE if self.fixed.get(name)}
        chosen: dict[str, Any] = {
            name: CHOICES[name](code) if name in CHOICES else code for name, code in given.items()
        }
        return Plan(precision=self.precision, **chosen)

    def asked(self, name: str) -> int:
        """The code that all plans of a search have in a field of `ALONE`, 0 where nobody asked for one."""
        return self.fixed.get(name, (0,))[0]

    @property
    def is_open(self) -> bool:
        """Whether nobody said where states live."""
        return not set(PLACES) & set(self.fixed)

    def keep(self, name: str, values: tuple[int, ...]) -> tuple[int, ...]:
        """The values of a field that stay."""
        if name not in self.fixed:
            return values
        return tuple(value for value in values if value in self.fixed[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Equal degrees and the choices inside: lists of values, crossed by the search.

    `modes` are (zero, reshard, shard), `pipelines` map the number of micro-batches to (schedule, virtual
    stages, split).
    """

    dp: int
    tp: int
    pp: int
    cp: int
    experts: tuple[tuple[int, int], ...]
    modes: tuple[tuple[int, int, int], ...]
    orders: tuple[int, ...]
    micro: tuple[tuple[int, int], ...]
    sequence: tuple[int, ...]
    context: tuple[int, ...]
    pipelines: Mapping[int, Pipelines]

    @property
    def micro_ways(self) -> int:
        """Cells for each choice of expert degrees."""
        return len(self.orders) * len(self.micro) * len(self.sequence) * len(self.context)

    @property
    def ways(self) -> int:
        """Combinations of all lists."""
        per_micro = sum(len(self.pipelines[m]) for _, m in self.micro)
        inside = (
            len(self.experts) * len(self.modes) * len(self.orders) * len(self.sequence) * len(self.context)
        )
        return inside * per_micro


@cache
def divisors(number: int) -> tuple[int, ...]:
    """Divisors in rising order."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def groups(problem: Problem, limits: SpaceLimits) -> list[Group]:
    """Every group of the space that is not empty."""
    devices, batch = problem.cluster.devices, problem.workload.global_batch
    allowed = _degrees(problem, limits)
    pipelines = {pp: _all_pipelines(problem, limits, pp) for pp in allowed["pp"]}
    found = []
    for tp, cp, pp in product(allowed["tp"], allowed["cp"], allowed["pp"]):
        if devices % (tp * cp * pp) or any(heads % (tp * cp) for heads in _mixer_heads(problem)):
            continue
        dp = devices // (tp * cp * pp)
        if batch % dp == 0 and limits.keep("dp", (dp,)):
            every = tuple(_expert_degrees(problem, limits, dp * cp * tp, tp))
            # engines tell plans with and without expert parallelism apart
            for experts in (tuple(e for e in every if e[0] == 1), tuple(e for e in every if e[0] > 1)):
                group = _group(problem, limits, (dp, tp, pp, cp), experts, pipelines[pp])
                found += [group] if group.ways else []
    return found


def size(problem: Problem, limits: SpaceLimits, every: list[Group]) -> int:
    """Number of plans in the space: ways of all groups * their variants."""
    return sum(group.ways * variants(problem, limits, group.pp) for group in every)


def variants(problem: Problem, limits: SpaceLimits, pp: int) -> int:
    """Plans that one way stands for: recompute modes * compile * loss."""
    modes, losses = finish_choices(problem, limits)
    return recompute_choices(problem, pp, limits) * len(modes) * len(losses)


def _degrees(problem: Problem, limits: SpaceLimits) -> dict[str, tuple[int, ...]]:
    """Degrees that the network allows: they divide heads, widths and sequence, and leave a layer a stage."""
    network, every = problem.workload.network, divisors(problem.cluster.devices)
    mixing = [p for p in parts_of(problem) if isinstance(p, (Attention, Mixer))]
    lacks = problem.lacks
    none = {axis: (1,) for axis in ("tp", "cp", "pp")}
    tokens = problem.workload.sequence_tokens
    one_stream = all(stack.role is StackRole.DECODER for stack in network.stacks)
    splits = [d for d in every if tokens % (2 * d) == 0 and tokens // d >= MIN_CONTEXT_TOKENS]
    found = {
        "tp": tuple(d for d in every if all(size % d == 0 for size in _tensor_sizes(problem))),
        "cp": tuple({1, *splits}) if one_stream else (1,),
        "pp": tuple(d for d in every if d <= network.layers) if len(network.stacks) == 1 else (1,),
    }
    usable = {a: (1,) if a in lacks else v for a, v in found.items()} if mixing else none
    return {axis: limits.keep(axis, tuple(sorted(values))) for axis, values in usable.items()}


def _mixer_heads(problem: Problem) -> set[int]:
    """Heads of recurrent mixers, which tensor and context parallelism divide together."""
    return {part.heads for part in parts_of(problem) if isinstance(part, Mixer)}


def _tensor_sizes(problem: Problem) -> set[int]:
    """Sizes that tensor parallelism must divide."""
    sizes = {stack.hidden for stack in problem.workload.network.stacks}
    for part in parts_of(problem):
        if isinstance(part, Attention):
            sizes |= {part.heads} | (set() if part.kv_rank else {part.kv_heads})
        elif isinstance(part, Mixer):
            sizes |= {part.heads, part.key_heads}
        elif isinstance(part, FeedForward):
            sizes.add(part.width)
        elif isinstance(part, Experts) and part.shared_width:
            sizes.add(part.shared_width)
    return sizes


def _group(
    problem: Problem,
    limits: SpaceLimits,
    degrees: tuple[int, int, int, int],
    experts: tuple[tuple[int, int], ...],
    pipelines: tuple[Pipelines, Pipelines],
) -> Group:
    dp, tp, pp, cp = degrees
    deals_experts = any(ep > 1 for ep, _ in experts)
    per_rank = problem.workload.global_batch // dp
    tokens = problem.workload.sequence_tokens // cp
    most = min(MAX_SAMPLES, max(MAX_MICRO_BATCH, MAX_TOKENS // max(tokens, 1)))
    sizes = limits.keep("micro_batch", tuple(d for d in divisors(per_rank) if d <= most))
    if limits.asked("optimizer_step") == OptimizerStep.IN_BACKWARD:
        sizes = tuple(size for size in sizes if size == per_rank and pp == 1)
    micro = tuple((each, per_rank // each) for each in sizes)
    ragged, divided = pipelines
    return Group(
        dp=dp,
        tp=tp,
        pp=pp,
        cp=cp,
        experts=experts,
        modes=tuple(_modes(problem, limits, degrees, deals_experts)),
        orders=_orders(problem, limits, dp, tp, pp, cp),
        micro=micro,
        sequence=_sequence_choices(problem, limits, tp, cp),
        context=_context_choices(problem, limits, tp, cp),
        pipelines={m: (divided if m % pp == 0 else ragged) for _, m in micro},
    )


def _expert_degrees(problem: Problem, limits: SpaceLimits, ranks: int, tp: int) -> Iterator[tuple[int, int]]:
    experts = [p for p in parts_of(problem) if isinstance(p, Experts)]
    counts, widths = [p.experts for p in experts], [p.width for p in experts]
    lacks = problem.lacks
    for ep in limits.keep("ep", divisors(ranks) if experts and "ep" not in lacks else (1,)):
        for etp in limits.keep("etp", (1, tp) if experts and tp > 1 and "etp" not in lacks else (1,)):
            divides = all(c % ep == 0 for c in counts) and all(w % etp == 0 for w in widths)
            if divides and ranks % (ep * etp) == 0:
                yield ep, etp


def _modes(
    problem: Problem, limits: SpaceLimits, degrees: tuple[int, int, int, int], deals_experts: bool
) -> Iterator[tuple[int, int, int]]:
    """ZeRO stage, resharding, shard group: none to full; HSDP groups fill domains with whole CP groups."""
    dp, tp, pp, cp = degrees
    split = Plan(dp=dp, tp=tp, pp=pp, cp=cp, ep=1 + deals_experts)
    replicas, modes = dp * cp, [(0, 0, 1)]
    is_local = limits.asked("local_steps") > 1
    if replicas == 1 and limits.asked("offload_params"):
        modes.append((3, 1, 1))
    if replicas > 1:
        modes += [(1, 0, replicas), (2, 0, replicas)]
        inside = {_members(link.domain_devices, tp, replicas) for link in problem.cluster.links}
        whole = {shard for shard in {replicas, *inside} - {1} if shard % cp == 0}
        for shard in sorted(whole, reverse=True):
            modes += [(3, 0, shard), (3, 1, shard)]
    for zero, reshard, shard in modes:
        plan = replace(split, zero=zero, reshard=reshard == 1, shard=shard, precision=limits.precision)
        needs = _sharding_needs(plan)
        kept = (limits.keep(n, (v,)) for n, v in (("zero", zero), ("reshard", reshard), ("shard", shard)))
        alone = not is_local or (shard < replicas and (zero == 3 or (zero == 0 and cp == 1)))
        runs = not problem.workload.network.is_traced or not unseen_format(problem, Plans.of(plan))[0]
        able = _keeps_states(limits, zero, replicas)
        if not needs & set(problem.lacks) and all(kept) and alone and runs and able:
            yield zero, reshard, shard


def _keeps_states(limits: SpaceLimits, zero: int, replicas: int) -> bool:
    """Whether states sharded so can be offloaded, or updated inside backward, as all plans have it."""
    if limits.asked("optimizer_step") == OptimizerStep.IN_BACKWARD and zero in (1, 2):
        return False
    is_alone = bool(limits.asked("offload_optimizer")) and zero == 0 and replicas > 1
    return (zero == 3 or not limits.asked("offload_params")) and not is_alone


def _members(domain_devices: int, tp: int, replicas: int) -> int:
    """Data-parallel ranks that share one link domain, if they divide the replicas, else 1."""
    inside = min(replicas, max(1, domain_devices // tp))
    return inside if replicas % inside == 0 else 1


def is_context_short(problem: Problem) -> bool:
    """Whether context ranks could share a sequence, but would have fewer tokens each than are planned."""
    tokens = problem.workload.sequence_tokens
    shared = [tokens // d for d in divisors(problem.cluster.devices) if d > 1 and tokens % (2 * d) == 0]
    return bool(shared) and max(shared) < MIN_CONTEXT_TOKENS


def _sharding_needs(plan: Plan) -> set[str]:
    """Abilities that a sharding mode needs of the engine; the names are those of `model.rejects.needs`."""
    zero, many, piped = plan.zero, plan.dp * plan.cp > 1, plan.pp > 1
    part = zero == 3 and plan.shard < plan.dp * plan.cp
    splits_weights = plan.tp * plan.ep > 1
    split = splits_weights or piped or plan.cp > 1
    needs = {
        "ddp": zero == 0 and many,
        "ddp-with-model-parallel": zero == 0 and many and split,
        "zero-1": zero == 1,
        "zero-2": zero == 2,
        "zero-3": zero == 3,
        "hsdp": part,
        "hsdp-with-ep": part and plan.shard > 1 and plan.ep > 1,
        "no-reshard": zero == 3 and not plan.reshard,
        "reshard-with-pp": plan.reshard and piped,
        "zero-2-with-pp": zero >= 2 and piped,
        "zero-1-with-model-parallel": zero == 1 and split,
        "zero-1-with-split-weights": zero == 1 and plan.shard > 1 and splits_weights,
    }
    return {ability for ability, needed in needs.items() if needed}


def orders(problem: Problem, limits: SpaceLimits) -> tuple[int, ...]:
    """Mesh orders of the space: one inside a single switched domain, else those with TP innermost, or all."""
    codes = [i for i, name in enumerate(PLACEMENTS) if limits.all_placements or name.startswith("tp")]
    kept = limits.keep("placement", tuple(codes))
    is_one = len(problem.cluster.crossed_links) <= 1 and problem.cluster.links[0].torus is None
    return kept[:1] if is_one else kept


def _orders(problem: Problem, limits: SpaceLimits, dp: int, tp: int, pp: int, cp: int) -> tuple[int, ...]:
    """Mesh orders in which the axes longer than one stand differently."""
    degrees = {"dp": dp, "tp": tp, "pp": pp, "cp": cp}
    first: dict[tuple[str, ...], int] = {}
    for code in orders(problem, limits):
        used = tuple(axis for axis in PLACEMENTS[code].split("-") if degrees[axis] > 1)
        first.setdefault(used, code)
    return tuple(first.values())


def _sequence_choices(problem: Problem, limits: SpaceLimits, tp: int, cp: int) -> tuple[int, ...]:
    fits = tp > 1 and (problem.workload.sequence_tokens // cp) % tp == 0
    return limits.keep("sp", (0, 1) if fits else (0,))


def _context_choices(problem: Problem, limits: SpaceLimits, tp: int, cp: int) -> tuple[int, ...]:
    if cp == 1:
        return limits.keep("cp_kind", (int(ContextKind.RING),))
    heads = [p.kv_heads for p in parts_of(problem) if isinstance(p, Attention)]
    kinds = [int(ContextKind.RING), int(ContextKind.ALL_GATHER)]
    # repeated keys are tried only when asked for: they send more than they have
    asked = "cp_kind" in limits.fixed and deals_heads(problem, np.array([cp * tp]))[0]
    if asked or all(count % (cp * tp) == 0 for count in heads):
        kinds.append(int(ContextKind.ULYSSES))
    return limits.keep("cp_kind", tuple(kinds))


def _all_pipelines(problem: Problem, limits: SpaceLimits, pp: int) -> tuple[Pipelines, Pipelines]:
    """The pipelines of micro-batches that pp does not divide, and of those that it does."""
    ragged = tuple(_pipelines(problem, limits, pp, may_interleave=False))
    return ragged, tuple(_pipelines(problem, limits, pp, may_interleave=True))


def _pipelines(
    problem: Problem, limits: SpaceLimits, pp: int, *, may_interleave: bool
) -> Iterator[tuple[int, int, int]]:
    """Schedule, virtual stages and split: 1F1B, GPipe, interleaved at every virtual count, zero-bubble V.

    Interleaving needs micro-batches that pp divides.
    """
    layers, lacks = problem.workload.network.layers, problem.lacks
    shapes: list[tuple[Schedule, int]] = [(Schedule.NONE, 1)] if pp == 1 else [(Schedule.ONE_F_ONE_B, 1)]
    if pp > 1:
        shapes += [(Schedule.GPIPE, 1)] if "gpipe" not in lacks else []
        most = (layers + 2) // pp if "interleaved" not in lacks and may_interleave else 1
        shapes += [(Schedule.INTERLEAVED, v) for v in range(2, most + 1)]
        shapes += [(Schedule.ZERO_BUBBLE_V, 2)] if "zero-bubble-v" not in lacks and layers >= 2 * pp else []
    for schedule, virtual in shapes:
        for split in _splits(layers, pp * virtual, "uneven-stages" in lacks):
            given = (("schedule", schedule), ("virtual_stages", virtual), ("split", split))
            if all(limits.keep(name, (int(value),)) for name, value in given):
                yield int(schedule), virtual, int(split)


def _splits(layers: int, stages: int, only_even: bool) -> list[Split]:
    """Even when stages divide the layers, balanced when they divide layers + 2; else ragged."""
    if stages == 1:
        return [Split.EVEN]
    even = layers % stages == 0
    balanced = (layers + 2) % stages == 0
    if only_even:
        return [Split.EVEN] if even else []
    if even or balanced:
        return [split for split, fits in ((Split.EVEN, even), (Split.BALANCED, balanced)) if fits]
    return [Split.EVEN] if layers >= 2 * stages else []


def recompute_choices(problem: Problem, pp: int, limits: SpaceLimits) -> int:
    """How many recompute modes a way has: none, selective, full, and every first-n-layers between."""
    some = max(0, -(-problem.workload.network.layers // pp) - 1)
    lacks = problem.lacks
    modes = {Recompute.NONE: 1, Recompute.FULL: 1}
    modes[Recompute.SELECTIVE] = 0 if "selective" in lacks else 1
    modes[Recompute.FIRST_LAYERS] = 0 if "first-layers" in lacks else some
    return sum(
        count
        for mode, count in modes.items()
        if limits.keep("recompute", (int(mode),)) and goes_with_offload(problem, limits, mode)
    )


def goes_with_offload(problem: Problem, limits: SpaceLimits, mode: Recompute) -> bool:
    """Offloaded activations are checkpoints where the engine can do so, which are few; else all are kept."""
    if not limits.asked("offload_activations"):
        return True
    return mode is (Recompute.FULL if "offload-checkpoints" in problem.engine.has else Recompute.NONE)


def is_processor(problem: Problem) -> bool:
    """Whether the devices are processors, as a bench says; the catalog has none."""
    return problem.accelerator.architecture == PROCESSOR


def finish_choices(problem: Problem, limits: SpaceLimits) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Compile off or on, plain or fused loss: what the engine can do and the user allows.

    Nobody measured or published what compile gains on a processor: there it is tried only when asked for.
    """
    lacks = problem.lacks
    is_unknown = is_processor(problem) and "compile" not in limits.fixed
    is_off = "compile" in lacks or is_unknown
    modes = (int(Compile.OFF),) if is_off else (int(Compile.OFF), int(Compile.DEFAULT))
    losses = (0,) if "fused-loss" in lacks else (0, 1)
    return limits.keep("compile", modes), limits.keep("fused_loss", losses)
