"""Arguments of transformers' Trainer as facts of a job: files, command lines and Python. Knows no rule.

A script's own options stand among the trainer's in files and on command lines, so keys that the trainer does
not know are no fault there; in the call of its class they are.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from escala.foreign.documents import Document, Syntax
from escala.foreign.facts import Fact, fact, truth_of
from escala.foreign.findings import Finding
from escala.foreign.jobs import Job
from escala.foreign.keys import table
from escala.foreign.mapped import facts_in, is_on, positive, text_of
from escala.foreign.places import Node
from escala.foreign.readings import Reading, Reference, Role, VersionIs
from escala.foreign.shelltext import Command, Word, flags
from escala.foreign.transformers.arguments import (
    MODEL,
    TRAINER_DEFAULTS,
    adapters,
    attention_of,
    defaults,
    format_of,
    trainer_facts,
)
from escala.foreign.transformers.code import Built, built, quantized
from escala.foreign.transformers.files import inline_facts, references

NAME: Final = "transformers"
TITLE: Final = "transformers Trainer"
VERSION: Final = "5.24.0"
SURE: Final = frozenset(
    ("per_device_train_batch_size", "per_device_eval_batch_size", "per_gpu_train_batch_size")
)
FSDP_FILE: Final = frozenset(
    (
        "transformer_layer_cls_to_wrap",
        "fsdp_transformer_layer_cls_to_wrap",
        "min_num_params",
        "fsdp_min_num_params",
        "reshard_after_forward",
        "backward_prefetch",
        "fsdp_backward_prefetch",
        "cpu_ram_efficient_loading",
    )
)
"""Keys of a file that `fsdp_config` names."""
ENOUGH: Final = 4
DEGREES: Final = {"tp_size": "tp", "cp_size": "cp", "dp_shard_size": "shard", "dp_replicate_size": "replicas"}
LONGEST: Final = 100
"""Letters up to which a word is read as a number."""
LORA_RANK: Final = 8
"""Rank of peft.LoraConfig where none is given (peft 0.21)."""
NUMBER: Final = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?|[-+]?\.\d+")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arguments:
    """The trainer's arguments of a document, wherever they stand; `kind` is the class, "" for files."""

    node: Node
    kind: str = ""
    built: Built | None = None


def score(document: Document) -> int:
    """Certain in calls of its classes, likely with keys that only it has."""
    if document.code is not None:
        found = built(document)
        return 80 if found.arguments else 30 if found.adapters or _quantizes(found) else 0
    if document.script is not None:
        return 60 if any(command_arguments(each) for each in document.script.all_commands) else 0
    names = frozenset(document.tree.table) if document.tree is not None else frozenset()
    if names & SURE:
        return 60
    if document.syntax is Syntax.JSON and len(names & FSDP_FILE) > 0 and "optimizer" not in names:
        return 60
    known = table(NAME).sections["TrainingArguments"]
    return 40 if len(names & frozenset((*known.keys, *known.gone))) >= ENOUGH else 0


def read(document: Document, version: str | None) -> Reading:
    """What the document says."""
    found = arguments(document)
    return Reading(
        tool=NAME,
        title=TITLE,
        version=version or VERSION,
        version_is=VersionIs.GIVEN if version else VersionIs.ASSUMED,
        role=Role.CODE if document.code is not None else Role.ARGUMENTS if document.script else Role.CONFIG,
        document=document,
        facts=tuple(_facts(found, document)),
        references=_references(found),
        engine="hf-trainer",
        extra={"arguments": found},
    )


def rules(job: Job, reading: Reading) -> Iterator[Finding]:
    """What is wrong with it."""
    from escala.foreign.transformers.rules import rules_of

    return rules_of(job, reading)


def arguments(document: Document) -> Arguments:
    """The arguments of a document: its tree, those of the first command, or of the first call."""
    if document.code is not None:
        found = built(document)
        if found.arguments:
            return Arguments(node=found.arguments[0].keywords, kind=found.arguments[0].name, built=found)
        return Arguments(node=Node(value={}, place=document.lines.place(0)), built=found)
    if document.script is not None:
        given = (command_arguments(each) for each in document.script.all_commands)
        return Arguments(node=next(each for each in given if each is not None))
    assert document.tree is not None
    if frozenset(document.tree.table) & FSDP_FILE and not document.tree.table.get("fsdp"):
        return Arguments(node=document.tree, kind="fsdp_config")
    return Arguments(node=document.tree)


def command_arguments(command: Command) -> Node | None:
    """The trainer's options of a command that runs a script; None for other commands."""
    at = next((i for i, word in enumerate(command.words) if word.text.endswith(".py")), None)
    if at is None:
        return None
    node = options_of(command.words[at:])
    return node if frozenset(node.table) & (SURE | {"output_dir"}) and len(node.table) >= ENOUGH else None


def options_of(words: tuple[Word, ...]) -> Node:
    """Options as a table: --name value, values read as YAML reads them, a switch alone is true."""
    table: dict[str, Node] = {}
    for name, (option, values) in flags(words).items():
        key = option.place
        value = Node(value=True, place=option.place, key=key)
        if len(values) == 1:
            value = Node(value=worded(values[0]), place=values[0].place, key=key)
        elif values:
            items = [Node(value=worded(each), place=each.place) for each in values]
            value = Node(value=items, place=values[0].place, key=key)
        table[name.replace("-", "_")] = value
    return Node(value=table, place=words[0].place)


def worded(word: Word) -> "str | int | float | bool | dict[str, Node]":
    """A word of a command line as a value: number, true or false, a table in JSON, else text."""
    text = word.text
    if word.is_open:
        return f"${{{text}}}"
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if len(text) < LONGEST and NUMBER.fullmatch(text):
        return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)
    if text.startswith("{"):
        return _table(text, word)
    return text


def _table(text: str, word: Word) -> "str | dict[str, Node]":
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(given, dict):
        return text
    simple = {name: value for name, value in given.items() if isinstance(value, str | int | float | bool)}
    return {name: Node(value=value, place=word.place, key=word.place) for name, value in simple.items()}


def _references(found: Arguments) -> tuple[Reference, ...]:
    return tuple(references(found.node, ("deepspeed", "fsdp_config")))


def _facts(found: Arguments, document: Document) -> Iterator[Fact]:
    if found.kind == "fsdp_config":
        inside = Node(
            value={"fsdp": Node(value=True, place=found.node.place), "fsdp_config": found.node},
            place=found.node.place,
        )
        yield from (each for each in trainer_facts(inside) if each.name in ("wraps", "recompute", "reshard"))
        return
    yield from trainer_facts(found.node)
    yield from inline_facts(found.node, document)
    yield from facts_in(found.node, MODEL)
    if found.kind.startswith("SFT"):
        yield from facts_in(found.node, SEQUENCE)
    if found.built is not None:
        yield from _built_facts(found.built, found)
    if found.node.table and document.script is None:
        yield from defaults(found.node, TRAINER_DEFAULTS)
        yield from _class_defaults(found)


SEQUENCE: Final = {
    "max_length": ("sequence_tokens", positive),
    "max_seq_length": ("sequence_tokens", positive),
    "packing": ("packing", truth_of),
}


def _class_defaults(found: Arguments) -> Iterator[Fact]:
    """TRL recomputes activations unless it is told not to (trl 1.16 base_config.py)."""
    if found.kind and not found.kind.endswith("TrainingArguments"):
        keys = ("gradient_checkpointing", "activation_checkpointing")
        if not any(key in found.node.table for key in keys):
            yield from defaults(found.node, {"gradient_checkpointing": ("recompute", "full")})
        if found.kind == "SFTConfig":
            yield from defaults(found.node, {"max_length": ("sequence_tokens", 1024)})


def _quantizes(found: Built) -> bool:
    return any(quantized(each) is not None for each in found.loads)


def _built_facts(found: Built, arguments: Arguments) -> Iterator[Fact]:
    """How the model is loaded, quantized and adapted, and over which ranks it is divided."""
    for load in found.loads[:1]:
        yield from _loaded(load.keywords, load.first)
    bits = next((each for each in map(quantized, found.loads) if each is not None), None)
    if bits is not None:
        yield fact("quantized_bits", bits[0], bits[1], "load_in_4bit" if bits[0] == 4 else "load_in_8bit")
    if found.adapters:
        config = found.adapters[0].keywords
        method = "qlora" if bits is not None and bits[0] == 4 else "lora"
        yield from adapters(method, config, "LoraConfig", config.table.get("r"), LORA_RANK)
    elif arguments.node.table and not found.uses_adapters and found.loads:
        yield fact("method", "full", arguments.node.place, "no adapters", is_default=True)
    for degrees in found.calls.named("ParallelismConfig"):
        for key, name in DEGREES.items():
            node = degrees.keywords.table.get(key)
            count = None if node is None else positive(node)
            if node is not None and count is not None and (count > 1 or name in ("tp", "cp")):
                yield fact(name, count, node, key)


def _loaded(keywords: Node, first: Node | None) -> Iterator[Fact]:
    name = None if first is None else text_of(first)
    if first is not None and name is not None:
        yield fact("model", name, first, "from_pretrained")
    for key, (which, reader) in {
        "dtype": ("dtype_weights", format_of),
        "torch_dtype": ("dtype_weights", format_of),
        "attn_implementation": ("attention", attention_of),
    }.items():
        node = keywords.table.get(key)
        value = None if node is None else reader(node)
        if node is not None and value is not None:
            yield fact(which, value, node, key)
    old = keywords.table.get("use_flash_attention_2")
    if old is not None and is_on(old):
        yield fact("attention", "flash", old, "use_flash_attention_2")
