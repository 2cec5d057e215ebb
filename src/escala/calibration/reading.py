"""A row read as a question and its measured answer: problem, plan, seconds, bytes, what was assumed.

`read` never raises on a row: what cannot be expressed is a Skip with a short, countable reason.
"""

import re
from dataclasses import dataclass, replace
from typing import Final

from escala.calibration.failure import Unreadable
from escala.calibration.hardware import machine
from escala.calibration.layout import layout, method_of
from escala.calibration.published import Convention, Quantity, published
from escala.calibration.rows import Row
from escala.calibration.shapes import shape
from escala.calibration.software import Counter, Software, Traits, software, traits
from escala.catalog.engines import assumptions, engine
from escala.errors import InvalidInput
from escala.model.assumptions import Assumptions
from escala.model.interval import Regime, regime
from escala.model.network import Network
from escala.model.plan import Plan, Plans, Precision
from escala.model.problem import Problem
from escala.model.workload import Lengths, Lora, Method, Optimizer, Workload

# Share of a padded sequence that is text, by length, where the code removes padding (PyTorch BERT; step-time
# study, 1.3): rates are printed in padded tokens.
FILL: Final = {512: 0.60, 384: 0.60, 128: 0.80}
UNPADDED: Final = ("deeplearningexamples-pytorch", "mlperf-bert")
CHANNELS_FIRST_RATIO: Final = 1.49  # 16-bit convolutions in NCHW order; step-time study, 2.2
_FINE_TUNING_LENGTH: Final = 2048
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
    except InvalidInput:
        return Skip(row=row, reason="not allowed in a problem")


def _reading(row: Row) -> Reading:
    sw, open_framework = software(row)
    place, net = machine(row), shape(row)
    tokens, open_tokens = _tokens(row, net.network)
    ran = layout(replace(row, sequence_tokens=tokens), net.network, place.cluster, sw)
    filled, open_fill = _filled(tokens, sw)
    known = engine(sw.engine)
    kept = traits(row, sw, known)
    problem = Problem(
        workload=_workload(row, net.network, filled, ran.batch.whole),
        cluster=place.cluster,
        engine=kept.on(known),
        assumptions=_assumptions(row, ran.plan),
    )
    seen = published(row, problem, sw, tokens)
    if _leaves_device(ran.plan) and seen.step_s is not None:
        seen = replace(seen, step_s=None)
    if seen.step_s is None and seen.memory_bytes is None and not seen.ran_out:
        raise Unreadable("states in host memory are not timed")
    imputed = (*open_framework, *place.imputed, *net.imputed, *open_tokens, *ran.imputed, *open_fill)
    return Reading(
        row=row,
        problem=problem,
        plan=ran.plan,
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
        regime=Regime(int(regime(problem, Plans.of(ran.plan))[0])),
    )


def _tokens(row: Row, network: Network) -> tuple[int, tuple[str, ...]]:
    """The sequence length as printed or, for fine-tuning tables, as capped."""
    if network.is_image:
        return 1, ()
    if row.sequence_tokens:
        return row.sequence_tokens, ()
    capped = row.tags.get("max_seq_len") or row.tags.get("Max Length", "")
    if capped.isdecimal():
        return int(capped), ("sequence length",)
    if "ms-swift" in row.source:
        return _FINE_TUNING_LENGTH, ("sequence length",)
    usual = next((tokens for word, tokens in _USUAL_TOKENS.items() if re.search(word, row.source)), None)
    if usual is not None:
        return usual, ("sequence length",)
    if row.model.lower().startswith("bert"):
        return 512, ("sequence length",)
    raise Unreadable("sequence length not printed")


def _filled(tokens: int, sw: Software) -> tuple[int, tuple[str, ...]]:
    """Tokens that are computed: without padding where the code removes it."""
    if sw.engine not in UNPADDED:
        return tokens, ()
    return max(round(tokens * FILL.get(tokens, 1.0)), 1), ("padding",)


def _workload(row: Row, network: Network, tokens: int, samples: int) -> Workload:
    method = method_of(row)
    adapted = method in (Method.LORA, Method.QLORA)
    capped = row.sequence_tokens is None and not network.is_image
    return Workload(
        network=network,
        sequence_tokens=tokens,
        global_batch=samples,
        method=method,
        lora=Lora(rank=_rank(row)) if adapted else None,
        optimizer=_optimizer(row),
        lengths=Lengths(is_packed=not capped),
    )


def _rank(row: Row) -> int:
    found = re.search(r"(?:lora_?rank|LoRA Rank|\br)=(\d+)", row.other)
    return int(found[1]) if found else 16 if "llama2_70b_lora" in row.other else 8


def _optimizer(row: Row) -> Optimizer:
    if "8-bit" in row.other or "Adafactor" in row.other:
        return Optimizer(state_bytes=1.0)
    return Optimizer()


def _assumptions(row: Row, plan: Plan) -> Assumptions:
    """The shared constants; convolutions in NCHW order move more in 16 bit."""
    known = assumptions()
    if "NCHW" not in row.notes or plan.precision not in (Precision.FP16, Precision.BF16):
        return known
    return replace(known, convolution_passes=known.convolution_passes * CHANNELS_FIRST_RATIO)


def _leaves_device(plan: Plan) -> bool:
    return bool(plan.offload_optimizer or plan.offload_params)


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
