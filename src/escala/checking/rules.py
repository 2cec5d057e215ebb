"""What is wrong with a job for its model and its devices: divisibility, formats, batch. Knows no tool's keys.

A rule of a tool that says the same wins: its words name the tool's own keys.
"""

from collections.abc import Iterator
from typing import Any, Final

from escala.checking.layouts import precision_said
from escala.checking.machines import devices_of
from escala.checking.subjects import Subject
from escala.foreign.findings import ORDER, Finding, finding
from escala.foreign.places import Place
from escala.model.network import Attention, Experts, Network, StackRole
from escala.model.precision import RECIPES, recipe
from escala.model.rejects import has_units
from escala.planning.space import divisors
from escala.units import percent

REPLICATING: Final = ("megatron", "nemo", "mlperf-nemo", "maxtext", "jaxtoolbox", "internevo", "sailor")
"""Beginnings of engines that copy key-value heads, or whose own rules speak of them."""
IDLE_SHARE: Final = 0.4
"""Share of idle time of a pipeline from which on it is worth a word; the fix aims at half of it."""
ABOUT: Final = {
    "tensor-heads": ("head",),
    "tensor-key-value-heads": ("kv", "head", "group"),
    "pipeline-layers": ("layer", "stage"),
    "pipeline-layers-uneven": ("layer", "stage"),
    "pipeline-micro-batches": ("bubble", "micro-batches"),
    "pipeline-interleaved-micro-batches": ("interleav", "virtual", "micro-batches"),
    "expert-degree": ("expert", "moe"),
    "expert-degree-dense": ("expert", "moe"),
    "sequence-context": ("sequence", "context", "cp"),
    "sequence-tensor": ("sequence",),
    "context-heads": ("ulysses", "head"),
    "precision-device": ("precision", "bf16", "fp8", "fp16", "dtype", "hardware"),
    "flash-device": ("flash", "attention"),
    "devices-degrees": ("product", "mesh", "devices", "world", "degrees"),
    "batch-ranks": ("batch",),
    "batch-product": ("batch",),
    "host-memory-load": ("load",),
    "eval-peak": ("eval",),
}
"""Parts of names of rules of tools that speak of the same thing."""


def findings_of(subject: Subject) -> list[Finding]:
    """Everything that model and devices say of the files, without what a tool's own rule has said."""
    found = [*_devices(subject), *_batch(subject), *_formats(subject)]
    if subject.network is not None and not subject.network.is_image:
        found += [*_heads(subject, subject.network), *_layers(subject, subject.network)]
        found += [*_experts(subject, subject.network), *_sequence(subject, subject.network)]
    return unsaid(subject, found)


def unsaid(subject: Subject, found: list[Finding]) -> list[Finding]:
    """Findings of which no rule of a tool has spoken, at least as severely."""

    def is_said(own: Finding) -> bool:
        about, worst = ABOUT.get(own.rule, ()), ORDER.index(own.severity)
        others = (each.rule for each in subject.job.findings if ORDER.index(each.severity) <= worst)
        return any(part in name for name in others for part in about)

    return [each for each in found if not is_said(each)]


def _degree(subject: Subject, axis: str) -> int:
    return max(1, subject.job.count(axis) or 1)


def _place(subject: Subject, *names: str) -> Place | None:
    """Where the first of these facts is said."""
    return next((place for name in names if (place := subject.job.place(name)) is not None), None)


def _choices(number: int, most: int = 6) -> str:
    """The divisors of a number as choices."""
    every = [f"{each:,}" for each in divisors(number)]
    some = every if len(every) <= most else [*every[: most - 1], "..."]
    return f"{', '.join(some[:-1])} or {some[-1]}" if len(some) > 1 else some[0]


def _heads(subject: Subject, network: Network) -> Iterator[Finding]:
    tp = _degree(subject, "tp")
    parts = [part for stack in network.stacks for block in stack.blocks for part in block.parts]
    attentions = [part for part in parts if isinstance(part, Attention)]
    if not attentions or tp == 1:
        return
    heads = min(part.heads for part in attentions)
    keys = min((part.kv_heads for part in attentions if not part.kv_rank), default=0)
    place, name = _place(subject, "tp"), network.name
    if any(part.heads % tp for part in attentions):
        yield finding("tensor-heads", place, tp=tp, heads=heads, network=name, choices=_choices(heads))
    elif keys and keys % tp and not subject.engine.name.startswith(REPLICATING):
        yield finding(
            "tensor-key-value-heads",
            place,
            tp=tp,
            heads=keys,
            network=name,
            choices=_choices(keys),
            engine=subject.engine.title,
        )


def _layers(subject: Subject, network: Network) -> Iterator[Finding]:
    pp, virtual = _degree(subject, "pp"), _degree(subject, "virtual_stages")
    stages, layers = pp * virtual, network.layers
    if pp == 1:
        return
    place = _place(subject, "virtual_stages", "pp") if virtual > 1 else _place(subject, "pp")
    if stages > layers + 2:
        yield finding("pipeline-layers", place, stages=stages, layers=layers, network=network.name)
    elif layers % stages and (layers + 2) % stages:
        mean, most = layers / stages, -(-layers // stages)
        words: dict[str, Any] = {"most": most, "mean": f"{mean:.1f}", "choices": _choices(layers)}
        yield finding(
            "pipeline-layers-uneven", place, stages=stages, layers=layers, network=network.name, **words
        )
    if subject.plan is not None:
        yield from _micro_batches(subject, pp, virtual, subject.plan.micro_batches)


def _micro_batches(subject: Subject, pp: int, virtual: int, micro_batches: int) -> Iterator[Finding]:
    place = _place(subject, "accumulation", "global_batch", "micro_batch", "pp")
    is_interleaved = subject.job.value("schedule") == "interleaved" or virtual > 1
    if is_interleaved and micro_batches % pp:
        yield finding("pipeline-interleaved-micro-batches", place, micro_batches=micro_batches, stages=pp)
    idle = (pp - 1) / (virtual * micro_batches + pp - 1)
    if idle > IDLE_SHARE and subject.job.value("schedule") != "zero-bubble-v":
        words: dict[str, Any] = {"idle": percent(idle), "wanted": -(-4 * (pp - 1) // virtual)}
        yield finding("pipeline-micro-batches", place, micro_batches=micro_batches, stages=pp, **words)


def _experts(subject: Subject, network: Network) -> Iterator[Finding]:
    ep = _degree(subject, "ep")
    counts = [
        part.experts
        for stack in network.stacks
        for block in stack.blocks
        for part in block.parts
        if isinstance(part, Experts)
    ]
    place, name = _place(subject, "ep"), network.name
    if ep > 1 and not counts:
        yield finding("expert-degree-dense", place, ep=ep, network=name)
    elif counts and min(counts) % ep:
        yield finding(
            "expert-degree", place, ep=ep, experts=min(counts), network=name, choices=_choices(min(counts))
        )


def _sequence(subject: Subject, network: Network) -> Iterator[Finding]:
    tokens, tp, cp = subject.job.count("sequence_tokens"), _degree(subject, "tp"), _degree(subject, "cp")
    if tokens is None or tokens < 1:
        return
    place = _place(subject, "sequence_tokens")
    if network.max_tokens is not None and tokens > network.max_tokens:
        words: dict[str, Any] = {"tokens": f"{tokens:,}", "most": f"{network.max_tokens:,}"}
        yield finding("sequence-beyond-context", place, network=network.name, **words)
    is_ulysses = subject.job.value("cp_kind") == "ulysses"
    if cp > 1 and not is_ulysses and tokens % (2 * cp):
        yield finding("sequence-context", place, tokens=f"{tokens:,}", cp=cp, **_around(tokens, 2 * cp))
    elif subject.job.value("sp") is True and tp > 1 and (tokens // cp) % tp:
        local, near = f"{tokens // cp:,}", _around(tokens, tp * cp)
        yield finding("sequence-tensor", place, tp=tp, tokens=local, **near)
    if cp > 1 and is_ulysses:
        yield from _ulysses(subject, network, cp * tp)


def _ulysses(subject: Subject, network: Network, ranks: int) -> Iterator[Finding]:
    keys = [
        part.kv_heads
        for stack in network.stacks
        if stack.role is StackRole.DECODER
        for block in stack.blocks
        for part in block.parts
        if isinstance(part, Attention)
    ]
    if keys and min(keys) % ranks:
        words: dict[str, Any] = {"heads": min(keys), "network": network.name, "choices": _choices(min(keys))}
        yield finding("context-heads", _place(subject, "cp"), ranks=ranks, **words)


def _around(number: int, unit: int) -> dict[str, Any]:
    """The nearest multiples of a unit below and above a number."""
    down = number // unit * unit
    return {"down": f"{max(down, unit):,}", "up": f"{down + unit:,}"}


def _formats(subject: Subject) -> Iterator[Finding]:
    if subject.cluster is None:
        return
    chip, said = subject.cluster.accelerator, precision_said(subject.job)
    if said is not None and not has_units(chip, said):
        able = [each.name for code, each in enumerate(RECIPES) if has_units(chip, type(said)(code))]
        words: dict[str, Any] = {
            "precision": recipe(said).name,
            "device": chip.name,
            "also": "",
            "choices": " or ".join(able),
        }
        if recipe(said).name == "bf16":
            words["also"] = ", and trainers refuse to start"
        yield finding("precision-device", _place(subject, "precision"), **words)
    kernel = str(subject.job.value("attention") or "")
    is_nvidia = chip.vendor.lower() == "nvidia"
    if kernel.startswith("flash") and is_nvidia and chip.flash2_efficiency is None:
        yield finding("flash-device", _place(subject, "attention"), device=chip.name)


def _devices(subject: Subject) -> Iterator[Finding]:
    said = subject.job.facts.get("devices")
    if said is not None and said.is_default:
        return  # the variable that is not set here may well be set where the job runs
    devices = subject.cluster.devices if subject.cluster is not None else devices_of(subject.job)
    named = {axis: _degree(subject, axis) for axis in ("tp", "pp", "cp") if _degree(subject, axis) > 1}
    product = 1
    for degree in named.values():
        product *= degree
    if devices is not None and devices % product:
        words: dict[str, Any] = {"degrees": " × ".join(f"{axis} {value}" for axis, value in named.items())}
        place = _place(subject, *named)
        yield finding("devices-degrees", place, product=product, devices=devices, **words)


def _batch(subject: Subject) -> Iterator[Finding]:
    job = subject.job
    batch, micro, steps = job.count("global_batch"), job.count("micro_batch"), job.count("accumulation")
    devices = subject.cluster.devices if subject.cluster is not None else devices_of(job)
    inner = _degree(subject, "tp") * _degree(subject, "pp") * _degree(subject, "cp")
    if batch is None or devices is None or devices % inner or micro is None or min(batch, micro) < 1:
        return
    dp, place = devices // inner, _place(subject, "global_batch")
    words: dict[str, Any] = {"batch": f"{batch:,}", "dp": dp, "micro": micro}
    if steps is not None and batch != micro * steps * dp:
        product = micro * steps * dp
        yield finding("batch-product", place, steps=steps, product=f"{product:,}", **words)
    elif steps is None and batch % (dp * micro):
        yield finding("batch-ranks", place, **words, **_around(batch, dp * micro))
