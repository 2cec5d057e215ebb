"""Which number of a network, a machine or a batch a degree does not go with. Judges no prediction."""

from collections.abc import Iterator
from math import prod
from typing import Final

from escala.model.network import Attention, Experts, FeedForward, Mixer
from escala.model.offload import wants
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.rejects import Reject, needs, parts_of
from escala.planning.space import MIN_CONTEXT_TOKENS, SpaceLimits, divisors
from escala.report.planwords import text_of

DEGREES: Final = ("dp", "tp", "pp", "cp")
HINTS: Final = {
    Reject.TENSOR_KIND: "set tp, cp and pp to 1",
    Reject.SEQUENCE_WITHOUT_TENSOR: "set sp to false",
    Reject.SEQUENCE_SPLIT: "set sp to false",
    Reject.CONTEXT_HEADS: "set cp_kind to ring or all-gather",
    Reject.CONTEXT_KIND: "set cp to 1",
    Reject.STAGE_KIND: "set pp to 1 and schedule to none",
    Reject.STAGE_SPLIT: "set split to even",
    Reject.SCHEDULE: "schedule none goes with pp 1; 1f1b and gpipe with virtual_stages 1, interleaved with "
    "2 or more, zero-bubble-v with 2",
    Reject.SHARD: "shard is 1 with zero 0, dp x cp with zero 1 and 2, and with zero 3 a multiple of cp that "
    "divides dp x cp; reshard goes with zero 3",
    Reject.TRACED: "set tp, pp, cp and ep to 1, compile and fused_loss to false, recompute to none or full",
    Reject.TRACED_FORMAT: "choose a precision and a ZeRO stage in which the module ran",
    Reject.PRECISION: "choose a precision that the device has units for",
    Reject.OFFLOAD: "set zero to 3, or offload_params to none; without ZeRO set offload_optimizer to none",
    Reject.HOST_LINK: "give pcie (and nvme_read, nvme_write) under [host] of a cluster.toml, "
    "or set offload_* to none",
    Reject.HOST_MEMORY: "offload less, to nvme, or on more nodes",
    Reject.OPTIMIZER_STEP: "set optimizer_step to whole, or micro_batches and pp to 1 and offload_optimizer "
    "to none",
    Reject.LOCAL_STEPS: "set local_steps to 1, or zero to 0 and cp to 1",
    Reject.LOCAL_FRAGMENTS: "set local_fragments to 1 and local_overlap_steps to 0, or raise local_steps",
    Reject.CONTEXT_DYNAMIC: "set dynamic_cp to false, or plan with --batching masked",
    Reject.SITE_POWER: "take fewer devices, or raise the limit of the site",
}
TENSOR: Final = Reject.TENSOR_HEADS | Reject.TENSOR_KV_HEADS | Reject.TENSOR_WIDTH


def broken_fix(problem: Problem, limits: SpaceLimits) -> tuple[str, ...]:
    """Why no plan keeps to the fixed values: each field of which no value is possible by itself."""
    found: list[str] = []
    for name, values in limits.fixed.items():
        faults = [next(_faults(problem, name, value), "") for value in values]
        found += faults if all(faults) else []
    return tuple(found or _product(problem, limits))


def repairs(problem: Problem, plan: Plan, bits: int) -> tuple[str, ...]:
    """What to change in a plan that breaks the rules of the bits, with its numbers."""
    found = [hint for bit, hint in HINTS.items() if bits & bit]
    return tuple([*_repaired(problem, plan, Reject(bits)), *found])


def _repaired(problem: Problem, plan: Plan, bits: Reject) -> Iterator[str]:
    devices, batch = problem.cluster.devices, problem.workload.global_batch
    dealt = plan.dp * plan.micro_batch * plan.micro_batches
    if bits & Reject.DEVICES:
        yield f"dp x tp x pp x cp is {plan.devices:,}; let it be the {devices:,} devices"
    if bits & Reject.BATCH:
        yield f"dp x micro_batch x micro_batches is {dealt:,}; let it be the batch of {batch:,}"
    if bits & TENSOR:
        fits = [d for d in divisors(devices) if not _undivided(_tensor(problem), d)]
        yield f"{next(_faults(problem, 'tp', plan.tp), '')}; choose {', '.join(map(str, fits))}"
    if bits & Reject.MIXER_HEADS:
        yield from _mixers(problem, plan)
    if bits & Reject.CONTEXT_SPLIT:
        yield f"let 2 x cp divide the {problem.workload.sequence_tokens:,} tokens"
    if bits & (Reject.EXPERTS | Reject.EXPERT_RANKS):
        experts = _experts(problem)
        numbers = " and ".join(f"{count:,}" for count in experts)
        yield f"let ep divide the {numbers} experts and etp be 1 or tp" if experts else "set ep and etp to 1"
    if bits & Reject.STAGES:
        yield f"let pp x virtual_stages be at most the {problem.workload.network.layers:,} layers"
    if bits & Reject.SCHEDULE_MICRO_BATCHES:
        yield f"let micro_batches be a multiple of pp, {plan.pp}"
    if bits & Reject.ENGINE:
        needed, wanted = needs(problem, Plans.of(plan)), wants(Plans.of(plan))
        lacking = [each for each in problem.engine.lacks if needed[each][0]]
        lacking += [name for name, asked in wanted.items() if asked[0] and name not in problem.engine.has]
        yield f"the engine {problem.engine.name} lacks {', '.join(lacking)}; do without, or change the engine"


def _faults(problem: Problem, name: str, value: int) -> Iterator[str]:
    """Why one value of one field is possible in no plan, the plainest reason first."""
    given = f"{name}={text_of(name, value)}"
    ability = _ability(name, value)
    if ability in problem.engine.lacks:
        same = "; zero=3 with reshard=false shards as much" if ability == "zero-2" else ""
        yield f"{given} needs {ability}, which the engine {problem.engine.name} lacks{same}"
    undivided = _undivided(_divided(problem, name), value)
    if undivided:
        yield f"{given} does not divide the {_listed(undivided)}"
    tokens = problem.workload.sequence_tokens // value if name == "cp" and value > 1 else MIN_CONTEXT_TOKENS
    if tokens < MIN_CONTEXT_TOKENS:
        yield f"{given} leaves {tokens:,} tokens a rank; plans have {MIN_CONTEXT_TOKENS:,} or more"
    if name == "pp" and value > problem.workload.network.layers:
        yield f"{given} is above the {problem.workload.network.layers:,} layers"
    if name == "ep" and value > 1 and not _experts(problem):
        yield f"{given} needs experts, and the network has none"


def _ability(name: str, value: int) -> str:
    """What an engine has to be able to do for one value of one field."""
    word = text_of(name, value)
    if name == "zero":
        return "ddp" if value == 0 else f"zero-{value}"
    if name in ("schedule", "recompute", "cp_kind"):
        return "all-gather-cp" if word == "all-gather" else word
    return name.replace("_", "-") if value > (0 if name in ("compile", "fused_loss") else 1) else ""


def _divided(problem: Problem, name: str) -> list[tuple[int, str]]:
    """What a field has to divide: numbers and what they count."""
    devices, batch = (
        (problem.cluster.devices, "devices"),
        (problem.workload.global_batch, "samples of a step"),
    )
    sizes = {
        "dp": [devices, batch],
        "tp": [devices, *_tensor(problem)],
        "pp": [devices],
        "cp": [devices, (problem.workload.sequence_tokens, "tokens of a sequence")],
        "ep": [devices, *((count, "experts") for count in _experts(problem))],
        "shard": [devices],
        "micro_batch": [batch],
    }
    return sizes.get(name, [])


def _mixers(problem: Problem, plan: Plan) -> Iterator[str]:
    """What a recurrent mixer asks of tp and cp."""
    for part in dict.fromkeys(part for part in parts_of(problem) if isinstance(part, Mixer)):
        if part.key_heads % plan.tp or part.heads % (plan.tp * plan.cp):
            yield (
                f"tp {plan.tp} with cp {plan.cp}: let tp divide the {part.key_heads:,} key heads, and tp x cp"
                f" the {part.heads:,} heads of the mixer"
            )


def _tensor(problem: Problem) -> list[tuple[int, str]]:
    """What tensor parallelism splits, without repetition, in the order of a layer."""
    found: list[tuple[int, str]] = []
    for part in parts_of(problem):
        if isinstance(part, Attention):
            found += [(part.heads, "heads"), *([] if part.kv_rank else [(part.kv_heads, "key-value heads")])]
        elif isinstance(part, Mixer):
            found += [(part.heads, "mixer heads"), (part.key_heads, "mixer key heads")]
        elif isinstance(part, FeedForward):
            found.append((part.width, "feed-forward width"))
        elif isinstance(part, Experts) and part.shared_width:
            found.append((part.shared_width, "shared expert width"))
    hidden = [(stack.hidden, "hidden width") for stack in problem.workload.network.stacks]
    return list(dict.fromkeys([*found, *hidden]))


def _experts(problem: Problem) -> list[int]:
    return sorted({part.experts for part in parts_of(problem) if isinstance(part, Experts)})


def _undivided(sizes: list[tuple[int, str]], value: int) -> list[str]:
    return [f"{size:,} {what}" for size, what in sizes if size % value]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _product(problem: Problem, limits: SpaceLimits) -> list[str]:
    """Degrees that are possible one by one, but not together."""
    single = {
        name: values[0] for name, values in limits.fixed.items() if name in DEGREES and len(values) == 1
    }
    total, devices = prod(single.values()), problem.cluster.devices
    if len(single) < 2 or devices % total == 0:
        return []
    return [
        f"{' x '.join(f'{name}={value}' for name, value in single.items())} is {total:,}, which does not "
        f"divide the {devices:,} devices"
    ]
