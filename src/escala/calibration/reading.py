"""A row read as a question and its measured answer: problem, plan, seconds, bytes, what was assumed.

`read` never raises on a row: what cannot be expressed is a Skip with a short, countable reason.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from escala.calibration.degrees import method_of
from escala.calibration.failure import Unreadable
from escala.calibration.hardware import device_name, machine
from escala.calibration.layout import layout
from escala.calibration.published import Convention, Published, Quantity, published
from escala.calibration.recipes import is_balanced
from escala.calibration.rows import Row, count
from escala.calibration.shapes import shape
from escala.calibration.software import Counter, Software, Traits, software, traits
from escala.catalog.accelerators import accelerator
from escala.catalog.engines import assumptions, engine
from escala.model.assumptions import Assumptions
from escala.model.engine import Engine
from escala.model.estimate import deal, memory_of
from escala.model.interval import Regime, regime
from escala.model.memory import Verdict
from escala.model.network import Network
from escala.model.parameters import network_parameters
from escala.model.plan import Offload, Plan, Plans
from escala.model.problem import Problem
from escala.model.workload import Lengths, Lora, Method, Optimizer, OptimizerKind, Workload

RECOMPUTE: Final = "recompute"
"""What `imputed` says where the source prints none."""
# Share of a padded sequence that is computed, where rates are printed in padded tokens. PyTorch BERT sorts
# sequences of 512 into bins of 64 and leaves those of 128 whole (its run scripts: phase1/unbinned and
# phase2/bin_size_64; share: step-time study, 1.3). MLPerf removes padding, half of the tokens (Krell 2021,
# Efficient Sequence Packing: packing could double the speed).
FILL: Final[Mapping[str, Mapping[int, float]]] = {
    "deeplearningexamples-pytorch": {512: 0.60},
    "mlperf-bert": {512: 0.50},
}
# Paged 8-bit states stay on the device while they fit beside the weights (bitsandbytes pages them to the host
# when memory runs short): two states of a byte each beside 2 bytes of weight.
_PAGED_BYTES: Final = 2.0 * 1.0 + 2.0
_FINE_TUNING_LENGTH: Final = 2048
_CAPPED: Final = re.compile(r"ms-swift LLM|LitGPT config_hub")  # samples up to a length that is printed
# Sequence length where none is printed: defaults of the run scripts of the same repositories.
_USUAL_TOKENS: Final = {r"MaxText GPU A3": 4096, r"MaxText TPU v4": 2048, r"Google TPU training": 8192}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One published measurement as a question: what ran, and what was measured.

    `step_s` is None where only memory is printed, `ran_out` marks runs that ended out of memory. `imputed`
    names the fields that the source does not print. `group` is left out together, `sweep` holds rows that
    differ in layout only, `configuration` rows that repeat each other.
    """

    row: Row
    problem: Problem
    plan: Plan
    traits: Traits
    step_s: float | None
    quantity: Quantity
    convention: Convention | None
    memory_bytes: float | None
    counter: Counter
    ran_out: bool
    imputed: tuple[str, ...]
    group: str
    sweep: str
    configuration: str
    arch: str
    regime: Regime

    @property
    def is_trusted(self) -> bool:
        """False for rows that are kept out of gates."""
        return self.row.trust == "ok"

    @property
    def tests_verdict(self) -> bool:
        """False where the source leaves out what decides whether a run fits: recompute, offload."""
        return not {RECOMPUTE, "offload"} & set(self.imputed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A row that cannot be scored, and why."""

    row: Row
    reason: str


def read(row: Row) -> Reading | Skip:
    """The row as problem, plan and published quantity, or why it cannot be read."""
    try:
        return _reading(row)
    except Unreadable as reason:
        return Skip(row=row, reason=str(reason))


# Larger sizes are faults of a table; they would not fit the columns of plans.
_MOST: Final = {
    "layers": 10_000,
    "hidden": 10**6,
    "heads": 10**5,
    "ffn_width": 10**7,
    "vocab": 10**8,
    "experts": 10**5,
    "expert_width": 10**7,
    "sequence_tokens": 10**9,
    "global_batch": 10**9,
    "micro_batch": 10**6,
    "devices": 10**6,
    "devices_per_node": 10**6,
}


def _check_sizes(row: Row) -> None:
    if any((getattr(row, field) or 0) > most for field, most in _MOST.items()):
        raise Unreadable("sizes beyond any run")


def _reading(row: Row) -> Reading:
    _check_sizes(row)
    sw, open_framework = software(row)
    place, net = machine(row), shape(row)
    tokens, open_tokens = _tokens(row, net.network)
    ran = layout(replace(row, sequence_tokens=tokens), net.network, place.cluster, sw)
    if ran.plan.pp * ran.plan.virtual_stages > net.network.layers + 2:  # embedding and head may count as one
        raise Unreadable("more pipeline stages than layers")
    filled, open_fill = _filled(tokens, sw)
    known = engine(sw.engine)
    kept = traits(row, sw, known)
    problem = Problem(
        workload=_workload(row, net.network, filled, ran.batch.whole, known),
        cluster=place.cluster,
        engine=kept.on(known),
        assumptions=_balanced(assumptions()) if is_balanced(row) else assumptions(),
    )
    plan, open_offload = _offloaded(row, problem, ran.plan)
    seen = published(row, problem, sw, tokens)
    seen = _comparable(row, seen, plan, problem)
    imputed = (*open_framework, *place.imputed, *net.imputed, *open_tokens, *ran.imputed, *open_fill)
    imputed += open_offload
    return Reading(
        row=row,
        problem=problem,
        plan=plan,
        traits=kept,
        step_s=seen.step_s,
        quantity=seen.quantity,
        convention=seen.convention,
        memory_bytes=seen.memory_bytes,
        counter=seen.counter,
        ran_out=seen.ran_out,
        imputed=tuple(dict.fromkeys(imputed)),
        group=_group(row),
        sweep=_sweep(row),
        configuration=_configuration(row),
        arch=row.arch or "dense_transformer",
        regime=Regime(int(regime(problem, Plans.of(plan))[0])),
    )


def _balanced(known: Assumptions) -> Assumptions:
    """Equal shares of all experts, but for the noise of sampling tokens."""
    return replace(known, expert_skew=0.0, expert_skew_high=0.0)


def _offloaded(row: Row, problem: Problem, plan: Plan) -> tuple[Plan, tuple[str, ...]]:
    """Activations offloaded "for the longest cases": where the run does not fit its device without."""
    if "longest" not in row.offload.lower():
        return plan, ()
    without = replace(plan, offload_activations=Offload.NONE)
    columns = Plans.of(without)
    called = memory_of(problem, columns, deal(problem, columns)).device_verdict[0]
    return (plan if called == Verdict.DOES_NOT_FIT else without), ("offload",)


def _tokens(row: Row, network: Network) -> tuple[int, tuple[str, ...]]:
    """The sequence length as printed or, for fine-tuning tables, as capped."""
    if network.is_image:
        return 1, ()
    if row.sequence_tokens:
        return row.sequence_tokens, ()
    capped = count(row.tags.get("max_seq_len") or row.tags.get("Max Length"))
    if capped:
        return capped, ("sequence length",)
    if "ms-swift LLM" in row.source:
        return _FINE_TUNING_LENGTH, ("sequence length",)
    usual = next((tokens for word, tokens in _USUAL_TOKENS.items() if re.search(word, row.source)), None)
    if usual is not None:
        return usual, ("sequence length",)
    if row.model.lower().startswith("bert"):
        return 512, ("sequence length",)
    raise Unreadable("sequence length not printed")


def _filled(tokens: int, sw: Software) -> tuple[int, tuple[str, ...]]:
    """Tokens that are computed: without padding where the code removes it."""
    share = FILL.get(sw.engine, {}).get(tokens)
    if share is None:
        return tokens, ()
    return max(round(tokens * share), 1), ("padding",)


def _workload(row: Row, network: Network, tokens: int, samples: int, known: Engine) -> Workload:
    method = method_of(row)
    adapted = method in (Method.LORA, Method.QLORA)
    capped = row.sequence_tokens is None and _CAPPED.search(row.source) is not None
    return Workload(
        network=network,
        sequence_tokens=tokens,
        global_batch=samples,
        method=method,
        lora=_lora(row, known) if adapted else None,
        optimizer=_optimizer(row, network, known),
        lengths=Lengths(is_packed=not capped),
    )


# Adapter ranks of the public recipes, where a table prints none.
_RANKS: Final = {r"Qwen README": 64, r"MLPerf": 16, r"NeMo|Megatron": 16}
USUAL_RANK: Final = 8


# LitGPT's configuration files: these adapt every map, the others query and value at rank 32; dropout in all.
_LITGPT_ALL: Final = {r"gemma": 16, r"phi-": 8, r"tiny-llama": 32}


def _lora(row: Row, known: Engine) -> Lora:
    """Adapters of the public recipes; 16-bit trainers keep them in 16 bit, PEFT in fp32."""
    wide = 2.0 if known.name in ("litgpt", "torchtune") else 4.0
    if known.name != "litgpt":
        return Lora(rank=_rank(row), weight_bytes=wide)
    rank = next((rank for word, rank in _LITGPT_ALL.items() if word in row.model.lower()), None)
    targets = Lora().targets if rank else ("q", "v")
    return Lora(rank=rank or 32, targets=targets, weight_bytes=wide, has_dropout=True)


def _rank(row: Row) -> int:
    found = re.search(r"(?:lora_?rank|LoRA Rank|\br)=(\d+)", row.other)
    usual = next((rank for word, rank in _RANKS.items() if re.search(word, row.source)), USUAL_RANK)
    return (count(found[1]) if found else None) or usual


def _optimizer(row: Row, network: Network, known: Engine) -> Optimizer:
    """AdamW, states as wide as the weights it updates; torchtune's 8-bit ones leave a device too small.

    Convolutional networks are trained by SGD with momentum.
    """
    if row.arch == "cnn":
        return Optimizer(kind=OptimizerKind.SGD, moments=1)
    tunes = "torchtune" in row.source and row.method == "full"
    if "8-bit" in row.other or (tunes and "memory and speed" in row.source and row.devices == 1):
        fits = _PAGED_BYTES * network_parameters(network).total < accelerator(device_name(row)).memory_bytes
        return Optimizer(state_bytes=1.0, moments=2 if fits else 0)
    adapted = method_of(row) in (Method.LORA, Method.QLORA)
    wide = _lora(row, known).weight_bytes if adapted else known.memory.weight_bytes
    return Optimizer(state_bytes=4.0 if known.memory.master_bytes else wide)


def _comparable(row: Row, seen: Published, plan: Plan, problem: Problem) -> Published:
    """What of the printed can be compared: no time with host states, unknown lengths or withdrawn times.

    LoRA that trains embeddings and 8-bit frozen weights have no memory model. Pipelines of the tr3m table
    print one unstated rank, not the fullest: 15 and 13 GB on 32 GB cards where 16 GB cards run out.
    """
    reasons = {
        "states in host memory are not timed": bool(plan.offload_optimizer or plan.offload_params),
        "lengths of samples not printed": not problem.workload.lengths.is_packed,
        "time withdrawn by its author": "distrust the time" in row.notes,
    }
    reason = next((why for why, holds in reasons.items() if holds), None)
    if reason is not None:
        seen = replace(seen, step_s=None, quantity=Quantity.NONE, convention=None)
    one_rank = "tr3m-1B3" in row.source and plan.pp > 1
    if "(emb)" in row.other or "int8" in row.other or one_rank:
        seen = replace(seen, memory_bytes=None)
    if seen.step_s is None and seen.memory_bytes is None and not seen.ran_out:
        raise Unreadable(reason or "memory of this kind is not modelled")
    return seen


# Sources that describe one series of runs: they are left out together.
_SERIES: Final = {
    r"^NVIDIA NeMo": "NVIDIA NeMo",
    r"^NVIDIA Megatron-Bridge": "NVIDIA Megatron-Bridge",
    r"^MaxText|^Google TPU": "MaxText and TPU recipes",
    r"^MLPerf": "MLPerf Training",
    r"^torchtitan": "torchtitan",
    r"^AWS awsome": "AWS awsome-distributed-ai",
    r"^torchtune": "torchtune",
    r"IBM": "IBM FSDP",
    r"^Megatron-LM README H100": "Megatron-LM README H100",
}


def _group(row: Row) -> str:
    return next((name for pattern, name in _SERIES.items() if re.search(pattern, row.source)), row.source)


def _sweep(row: Row) -> str:
    same = (_group(row), row.model, row.layers, row.hidden, row.accelerator, row.devices)
    return "|".join(map(str, (*same, row.global_batch, row.sequence_tokens, row.precision, row.method)))


def _configuration(row: Row) -> str:
    how = (row.dp, row.tp, row.sp, row.pp, row.vp, row.cp, row.ep, row.sharding, row.micro_batch)
    what = (row.heads, row.recompute, row.offload, row.flash, row.compiled, row.framework)
    return "|".join(map(str, (_sweep(row), *how, *what)))
