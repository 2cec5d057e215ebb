"""LLaMA-Factory's YAML and its command as facts of a job. Knows no condition that makes them wrong."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from escala.foreign.documents import Document, Syntax
from escala.foreign.facts import Fact, fact, truth_of
from escala.foreign.findings import Finding
from escala.foreign.jobs import Job
from escala.foreign.mapped import Keys, facts_in, is_on, positive, text_of
from escala.foreign.places import Node
from escala.foreign.readings import Reading, Reference, Role, VersionIs
from escala.foreign.shelltext import Command, Word
from escala.foreign.transformers.arguments import (
    TRAINER_DEFAULTS,
    adapters,
    attention_of,
    defaults,
    trainer_facts,
)
from escala.foreign.transformers.files import inline_facts, references
from escala.foreign.transformers.reading import Arguments, options_of, worded

NAME: Final = "llamafactory"
TITLE: Final = "LLaMA-Factory"
VERSION: Final = "0.9.5"
OWN: Final = frozenset(("finetuning_type", "cutoff_len", "template", "stage", "lora_target", "dataset_dir"))
COMMANDS: Final = frozenset(("llamafactory-cli", "lmf"))
KEYS: Final[Keys] = {
    "model_name_or_path": ("model", text_of),
    "cutoff_len": ("sequence_tokens", positive),
    "flash_attn": ("attention", attention_of),
    "packing": ("packing", truth_of),
    "neat_packing": ("packing", truth_of),
    "enable_liger_kernel": ("fused_loss", truth_of),
    "quantization_bit": ("quantized_bits", positive),
}
VARIABLES: Final = {"NNODES": "nodes", "NPROC_PER_NODE": "devices_per_node"}
LORA_RANK: Final = 8
"""llamafactory 0.9.5 finetuning_args.py, lora_rank."""


def score(document: Document) -> int:
    """Certain with several keys of its own, and for its command."""
    if document.script is not None:
        return 90 if any(trains(each) for each in document.script.all_commands) else 0
    is_tree = document.tree is not None and document.syntax in (Syntax.YAML, Syntax.JSON)
    names = frozenset(document.tree.table) if is_tree and document.tree is not None else frozenset()
    return 95 if len(names & OWN) > 1 else 0


def read(document: Document, version: str | None) -> Reading:
    """What the document says."""
    command = next((each for each in _commands(document) if trains(each)), None)
    node = _options(command) if command is not None else document.tree
    assert node is not None
    return Reading(
        tool=NAME,
        title=TITLE,
        version=version or VERSION,
        version_is=VersionIs.GIVEN if version else VersionIs.ASSUMED,
        role=Role.LAUNCH if command is not None else Role.CONFIG,
        document=document,
        facts=(*_launched(command), *_facts(node, document)),
        references=(*_config(command), *references(node)),
        engine="hf-trainer",
        extra={"arguments": Arguments(node=node)},
    )


def rules(job: Job, reading: Reading) -> Iterator[Finding]:
    """What is wrong with it."""
    from escala.foreign.llamafactory.rules import rules_of

    return rules_of(job, reading)


def trains(command: Command) -> bool:
    """Whether a command is `llamafactory-cli train`."""
    words = [word.text for word in command.words]
    return any(here.rpartition("/")[2] in COMMANDS and after == "train" for here, after in pairwise(words))


def _commands(document: Document) -> tuple[Command, ...]:
    return document.script.all_commands if document.script is not None else ()


def _after_train(command: Command) -> tuple[Word, ...]:
    texts = [word.text for word in command.words]
    return command.words[texts.index("train") + 1 :]


def _config(command: Command | None) -> Iterator[Reference]:
    """The file that the command trains from."""
    first = _after_train(command)[:1] if command is not None else ()
    for word in first:
        if word.text.endswith((".yaml", ".yml", ".json")) and not word.is_open:
            yield Reference(file=word.text, place=word.place, said="train")


def _options(command: Command) -> Node:
    """Its options: --name value, or name=value beside a file."""
    words = _after_train(command)
    node = options_of(command.words[:1] + words)
    table = dict(node.table)
    for word in words:
        name, sign, value = word.text.partition("=")
        if sign and not name.startswith("-"):
            given = Word(text=value, place=word.place, is_open=word.is_open)
            table[name] = Node(value=worded(given), place=word.place, key=word.place)
    return Node(value=table, place=node.place)


def _launched(command: Command | None) -> Iterator[Fact]:
    """Nodes and processes on each, which variables of the command say."""
    for variable, name in VARIABLES.items():
        word = command.variables.get(variable) if command is not None else None
        if word is not None and word.text.isdigit():
            yield fact(name, int(word.text), word.place, variable)


def _facts(node: Node, document: Document) -> Iterator[Fact]:
    yield from (each for each in trainer_facts(node) if each.name != "recompute")
    yield from inline_facts(node, document)
    yield from facts_in(node, KEYS)
    yield from _method(node)
    if frozenset(node.table) & OWN:
        yield from _recompute(node)
        yield from defaults(node, {**TRAINER_DEFAULTS, "cutoff_len": ("sequence_tokens", 2048)})


def _recompute(node: Node) -> Iterator[Fact]:
    """Activations are recomputed unless it is switched off (model_utils/checkpointing.py)."""
    given = node.table.get("disable_gradient_checkpointing")
    if given is not None and truth_of(given) is not None:
        yield fact(
            "recompute", "none" if truth_of(given) else "full", given, "disable_gradient_checkpointing"
        )
    else:
        yield from defaults(node, {"disable_gradient_checkpointing": ("recompute", "full")})


def _method(node: Node) -> Iterator[Fact]:
    """finetuning_type is lora where nothing is said."""
    kind = node.table.get("finetuning_type")
    given = "lora" if kind is None else text_of(kind)
    if given == "lora" and kind is not None:
        bits = node.table.get("quantization_bit")
        method = "qlora" if bits is not None and positive(bits) == 4 else "lora"
        yield from adapters(method, kind, "finetuning_type", node.table.get("lora_rank"), LORA_RANK)
    elif given == "full" and kind is not None:
        yield fact("method", "full", kind, "finetuning_type")
    elif kind is None and is_on(node.table.get("model_name_or_path")):
        yield fact("method", "lora", node.place, "finetuning_type (default)", is_default=True)
