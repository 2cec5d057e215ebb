"""When TRL's arguments are wrong, in its YAML, on its command line and in calls of its classes.

The words, and the conditions that are of keys alone, are in data/rules/trl.toml.
"""

from collections.abc import Iterator, Mapping
from math import gcd
from typing import Final

from escala.foreign.conditions import conditional
from escala.foreign.findings import Finding, finding
from escala.foreign.jobs import Job
from escala.foreign.keys import KeyCheck, table
from escala.foreign.mapped import is_on, positive
from escala.foreign.places import Node, Scalar
from escala.foreign.readings import Reading, VersionIs
from escala.foreign.transformers.reading import Arguments
from escala.foreign.transformers.rules import KeyTypes, autos, of_trainer, old_keys, texts
from escala.foreign.trl.reading import LAUNCH, known

GROUP: Final = "trl"
DEFAULTS: Final[Mapping[str, Scalar]] = {"max_length": 1024}
ADAPTERS: Final = ("lora_r", "lora_alpha", "lora_target_modules", "lora_dropout")
GENERATIONS: Final = 8
"""trl 1.16 grpo_config.py, num_generations."""
LAUNCHER: Final = frozenset(
    (*LAUNCH, "config", "accelerate_config", "machine_rank", "main_process_ip", "main_process_port")
)
"""Options of the command, and of accelerate's launcher that it hands on."""
VARLEN: Final = ("flash", "flex", None)


def rules_of(job: Job, reading: Reading) -> Iterator[Finding]:
    """All findings of a file or command."""
    found = reading.extra["arguments"]
    assert isinstance(found, Arguments)
    keys = known(found.kind)
    version = reading.version if reading.version_is is not VersionIs.ASSUMED else ""
    old = old_keys(table("transformers"), "TrainingArguments", keys.sections[""].keys)
    yield from KeyCheck(table=old, tool=old.tool).findings(found.node)
    ignored = texts(found.node) | frozenset(old.sections[""].gone)
    ignored |= LAUNCHER if reading.document.script is not None else frozenset()
    check = KeyCheck(table=keys, tool=reading.title, version=version, ignored=ignored)
    yield from check.findings(found.node)
    yield from autos(found.node, KeyTypes(keys), reading)
    yield from of_trainer(job, reading, found.node)
    yield from conditional(GROUP, job, found.node, DEFAULTS)
    yield from _adapters(found.node)
    yield from of_class(job, reading, found)


def of_class(job: Job, reading: Reading, found: Arguments) -> Iterator[Finding]:
    """What is wrong for one method of training, also in calls of its class."""
    if found.kind == "SFTConfig":
        yield from _packing(job, found.node)
    if found.kind == "GRPOConfig":
        yield from _groups(job, found.node)
    liger = found.node.table.get("use_liger_kernel")
    if (
        found.kind.removesuffix("Config") in ("SFT", "DPO", "KTO", "GRPO", "RLOO")
        and liger is not None
        and is_on(liger)
    ):
        yield finding("trl-liger-old", liger)


def _adapters(node: Node) -> Iterator[Finding]:
    named = [key for key in ADAPTERS if key in node.table]
    if named and not is_on(node.table.get("use_peft")):
        yield finding("trl-adapters-unused", node.table[named[0]], key=named[0])


def _packing(job: Job, node: Node) -> Iterator[Finding]:
    packing, attention = node.table.get("packing"), job.value("attention")
    strategy = node.table.get("packing_strategy")
    if packing is None or not is_on(packing) or (strategy is not None and strategy.scalar == "wrapped"):
        return
    if attention not in VARLEN:
        yield finding("trl-packing-attention", packing, attention=attention)


def _groups(job: Job, node: Node) -> Iterator[Finding]:
    """A generation batch, micro-batch x ranks x steps, holds whole groups."""
    devices, generations = job.sure("devices"), _count(node, "num_generations", GENERATIONS)
    micro, steps = (
        _count(node, "per_device_train_batch_size", 8),
        _count(node, "gradient_accumulation_steps", 1),
    )
    own = ("generation_batch_size", "steps_per_generation", "parallelism_config")
    if devices is None or not (generations and micro and steps) or any(key in node.table for key in own):
        return
    batch = micro * devices * steps
    if batch % generations:
        place = node.table.get("num_generations") or node.table.get("per_device_train_batch_size")
        whole = generations // gcd(generations, micro * devices)
        yield finding("trl-groups", place or node, batch=batch, generations=generations, steps=whole)


def _count(node: Node, key: str, default: int) -> int | None:
    given = node.table.get(key)
    return default if given is None else positive(given)
