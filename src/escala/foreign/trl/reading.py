"""TRL's YAML and its command as facts of a job. Knows its keys, no condition under which they are wrong.

One file has the arguments of the script, of the trainer and of the model; which method it is for stands on
the command line, or shows in its keys. Calls of its classes in Python are read with those of transformers.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Final

from escala.foreign.documents import Document, Syntax
from escala.foreign.facts import Fact, fact
from escala.foreign.findings import Finding
from escala.foreign.jobs import Job
from escala.foreign.keys import Key, Section, Table, table
from escala.foreign.mapped import facts_in, is_on, positive
from escala.foreign.places import Node, at
from escala.foreign.readings import Reading, Role, VersionIs
from escala.foreign.shelltext import Command, Word
from escala.foreign.transformers.arguments import MODEL, TRAINER_DEFAULTS, adapters, defaults, trainer_facts
from escala.foreign.transformers.files import inline_facts, references
from escala.foreign.transformers.reading import SEQUENCE, Arguments, options_of

NAME: Final = "trl"
TITLE: Final = "TRL"
VERSION: Final = "1.16.0"
KINDS: Final[Mapping[str, str]] = {
    "sft": "SFTConfig",
    "dpo": "DPOConfig",
    "grpo": "GRPOConfig",
    "kto": "KTOConfig",
    "reward": "RewardConfig",
    "rloo": "RLOOConfig",
}
"""Commands, and the class of their arguments."""
TRAINER: Final = frozenset(
    ("per_device_train_batch_size", "learning_rate", "max_steps", "num_train_epochs", "output_dir")
)
OWN: Final = frozenset(
    (
        "dataset_name",
        "use_peft",
        "max_length",
        "max_seq_length",
        "packing",
        "num_generations",
        "lora_target_modules",
    )
)
LAUNCH: Final = {"num_processes": "devices", "num_machines": "nodes"}
"""Options of accelerate's launcher that the command hands on."""
MODULE: Final = "trl.scripts."
LORA_RANK: Final = 16
"""trl 1.16 model_config.py, lora_r."""
DEFAULTS: Final = {**TRAINER_DEFAULTS, "gradient_checkpointing": ("recompute", "full")}
"""trl 1.16 base_config.py: activations are recomputed unless the file says no."""


def score(document: Document) -> int:
    """Certain with keys of the trainer beside TRL's own, and for its command."""
    if document.script is not None:
        return 90 if any(command_of(each) for each in document.script.all_commands) else 0
    names = (
        frozenset(document.tree.table) if document.tree and document.syntax is Syntax.YAML else frozenset()
    )
    return 85 if names & TRAINER and len(names & OWN) > 0 and "model_name_or_path" in names else 0


def read(document: Document, version: str | None) -> Reading:
    """What the document says."""
    found, launched = _arguments(document)
    return Reading(
        tool=NAME,
        title=TITLE,
        version=version or VERSION,
        version_is=VersionIs.GIVEN if version else VersionIs.ASSUMED,
        role=Role.LAUNCH if document.script is not None else Role.CONFIG,
        document=document,
        facts=(*launched, *_facts(found, document)),
        references=tuple(references(found.node)),
        engine="hf-trainer",
        extra={"arguments": found},
    )


def rules(job: Job, reading: Reading) -> Iterator[Finding]:
    """What is wrong with it."""
    from escala.foreign.trl.rules import rules_of

    return rules_of(job, reading)


def command_of(command: Command) -> tuple[str, tuple[Word, ...]] | None:
    """The method of a command and what follows: trl sft, or the module of a script of TRL."""
    for index, (here, after) in enumerate(pairwise(command.words)):
        method = after.text.removeprefix(MODULE)
        is_verb = here.text.rpartition("/")[2] == "trl" and method == after.text
        is_module = here.text == "-m" and method != after.text
        if (is_verb or is_module) and method in KINDS:
            return method, command.words[index + 1 :]
    return None


def _arguments(document: Document) -> tuple[Arguments, tuple[Fact, ...]]:
    if document.script is None:
        assert document.tree is not None
        return Arguments(node=document.tree, kind=_kind(document.tree)), ()
    method, words = next(each for each in map(command_of, document.script.all_commands) if each is not None)
    node = options_of(words)
    launched = facts_in(node, {key: (name, positive) for key, name in LAUNCH.items()})
    return Arguments(node=node, kind=KINDS[method]), tuple(launched)


def _kind(tree: Node) -> str:
    """The class that knows most of the keys; SFT where several do."""
    names = frozenset(tree.table)
    return max(KINDS.values(), key=lambda kind: len(names & frozenset(table(NAME).sections[kind].keys)))


@cache
def known(kind: str) -> Table:
    """All keys of one command: of the script, of the trainer and its method, of the model.

    Those of the trainer have no versions here: they are numbers of another tool.
    """
    own, trainer = table(NAME), table("transformers")
    parts = [own.sections[name] for name in (kind, "ScriptArguments", "DatasetMixtureConfig", "ModelConfig")]
    names = trainer.sections["TrainingArguments"].keys
    keys = {
        name: Key(types=key.types, choices=key.choices, section=key.section) for name, key in names.items()
    }
    keys |= {name: key for each in parts for name, key in each.keys.items()}
    gone = {name: gone for each in parts for name, gone in each.gone.items() if name not in keys}
    top = Section(keys={**keys, "env": Key(types=("object",))}, gone=gone)
    return Table(
        tool=own.tool,
        version=own.version,
        source=f"{own.source}; {trainer.source}",
        sections={"": top, "fsdp_config": trainer.sections["fsdp_config"]},
    )


def _facts(found: Arguments, document: Document) -> Iterator[Fact]:
    node = found.node
    yield from trainer_facts(node)
    yield from inline_facts(node, document)
    yield from facts_in(node, {**MODEL, **SEQUENCE})
    yield from _method(node)
    if "per_device_train_batch_size" in node.table or "model_name_or_path" in node.table:
        named = {**DEFAULTS} if "activation_checkpointing" not in node.table else {**TRAINER_DEFAULTS}
        if found.kind == "SFTConfig":
            named["max_length"] = ("sequence_tokens", 1024)
        yield from defaults(node, named)


def _method(node: Node) -> Iterator[Fact]:
    bits = 4 if is_on(node.table.get("load_in_4bit")) else 8 if is_on(node.table.get("load_in_8bit")) else 0
    if bits:
        yield fact("quantized_bits", bits, node.table[f"load_in_{bits}bit"], f"load_in_{bits}bit")
    peft = at(node, "use_peft")
    if peft is not None and is_on(peft):
        method = "qlora" if bits == 4 else "lora"
        yield from adapters(method, peft, "use_peft", node.table.get("lora_r"), LORA_RANK)
    elif "model_name_or_path" in node.table:
        yield fact("method", "full", node.place, "use_peft (default)", is_default=True)
