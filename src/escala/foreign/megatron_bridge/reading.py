"""Megatron-Bridge's recipes by their syntax tree, and overrides in scripts. Knows no rule of its own.

A recipe sets what the one that it starts from does not, so what is not said is not Megatron's default.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from escala.foreign.documents import Document, Syntax
from escala.foreign.facts import Fact, fact
from escala.foreign.findings import Finding
from escala.foreign.jobs import Job
from escala.foreign.keys import KeyCheck, table
from escala.foreign.megatron.arguments import Arguments
from escala.foreign.megatron.facts import facts_of
from escala.foreign.megatron.names import COUNTS
from escala.foreign.megatron.rules import rules_of
from escala.foreign.megatron_bridge.names import MODELS, OTHERS, RECIPES, SECTIONS, VIRTUAL
from escala.foreign.places import Node, Place
from escala.foreign.pythontext import Python, calls, imported
from escala.foreign.readings import Reading, Role, VersionIs
from escala.foreign.shelltext import Command, Word
from escala.model.precision import recipe

NAME: Final = "megatron_bridge"
TITLE: Final = "Megatron-Bridge"
VERSION: Final = "0.6.2"
OVERRIDE: Final = re.compile(rf"\+{{0,2}}({'|'.join(SECTIONS)})\.(\w+)=(.*)", re.DOTALL)
RECIPE: Final = re.compile(r"(\w+?)_(pretrain|sft|peft|finetune)_(?:\w+_)?config(?:\(\))?")
METHODS: Final = {"pretrain": "pretrain", "sft": "full", "finetune": "full", "peft": "lora"}
SURE: Final = frozenset((*COUNTS, *OTHERS)) - {"fp8", "fp4"}


def score(document: Document) -> int:
    """Certain where Python imports it and sets a part of its configuration, or a script overrides one."""
    if document.syntax is Syntax.SHELL:
        return 90 if next(_commands(document), None) is not None else 0
    if document.code is None or not imported(document.code, "megatron.bridge"):
        return 0
    return 90 if next(_settings(document.code), None) is not None or _recipe_name(document.code) else 0


def read(document: Document, version: str | None) -> Reading:
    """What the document says."""
    if document.code is not None:
        sections, start, role = _of_python(document), Place(file=document.file, line=1), Role.CODE
        extra = tuple(_said_by_calls(document))
    else:
        command = next(_commands(document))
        sections, start, role = _of_words(command), command.words[0].place, Role.ARGUMENTS
        extra = tuple(_said_by_words(command))
    given = _arguments(sections, start)
    return Reading(
        tool=NAME,
        title=TITLE,
        version=version or VERSION,
        version_is=VersionIs.GIVEN if version else VersionIs.ASSUMED,
        role=role,
        document=document,
        facts=(*extra, *_precision(sections), *facts_of(given)),
        findings=tuple(_keys(sections, start)),
        engine="megatron-bridge",
        extra={"arguments": given},
    )


def rules(job: Job, reading: Reading) -> Iterator[Finding]:
    """What is wrong with it: Megatron's own rules, where both sides are said."""
    given = reading.extra["arguments"]
    assert isinstance(given, Arguments)
    return rules_of(job, given, "0.19.2", {})


def _settings(code: ast.Module) -> Iterator[tuple[str, ast.Attribute, ast.expr]]:
    """Assignments to NAME.section.name: the section, what is assigned to, and the value."""
    for each in ast.walk(code):
        target = each.targets[0] if isinstance(each, ast.Assign) else None
        if not isinstance(each, ast.Assign) or not isinstance(target, ast.Attribute):
            continue
        inner = target.value
        if isinstance(inner, ast.Attribute) and inner.attr in SECTIONS and isinstance(inner.value, ast.Name):
            yield inner.attr, target, each.value
        elif isinstance(inner, ast.Name) and target.attr in SECTIONS:
            yield "", target, each.value


def _of_python(document: Document) -> dict[str, dict[str, Node]]:
    """Values by section and name; parts that are replaced whole stand in the section without a name."""
    assert document.code is not None
    python = Python(document)
    found: dict[str, dict[str, Node]] = {}
    for section, target, value in _settings(document.code):
        found.setdefault(section, {})[target.attr] = python.node(value, python.key(target))
    return found


def _recipe_name(code: ast.Module) -> str:
    """Name of the recipe that a text starts from."""
    return next((name for name, _ in calls(code) if RECIPE.fullmatch(name.rpartition(".")[2])), "")


def _said_by_calls(document: Document) -> Iterator[Fact]:
    """Model and method by the functions that are called."""
    assert document.code is not None
    python = Python(document)
    for name, call in calls(document.code):
        last = name.rpartition(".")[2]
        if last in ("from_hf_pretrained", "from_hf_config") and call.args:
            node = python.node(call.args[0])
            if isinstance(node.scalar, str) and not node.scalar.startswith("${"):
                yield fact("model", node.scalar, node, last)
        elif match := RECIPE.fullmatch(last):
            yield from _of_recipe(match, python.place(call))
        elif last in ("_pretrain_common", "_sft_common", "_peft_common"):
            yield fact("method", METHODS[last.split("_")[1]], python.place(call), last)
        elif last in ("LoRA", "CanonicalLoRA"):
            node = python.place(call)  # type: ignore[assignment]  # a place serves as well
            yield fact("method", "lora", node, last)
            rank = python.keywords(call).get("dim")
            if rank is not None and isinstance(rank.scalar, int):
                yield fact("lora_rank", rank.scalar, rank, "LoRA(dim=)")
    rank = _of_python(document).get("peft", {}).get("dim")
    if rank is not None and isinstance(rank.scalar, int):
        yield fact("lora_rank", rank.scalar, rank, "peft.dim")


def _of_recipe(match: re.Match[str], place: Place) -> Iterator[Fact]:
    model = MODELS.get(match.group(1).removesuffix("_instruct"))
    if model is not None:
        yield fact("model", model, place, match.group())
    yield fact("method", METHODS[match.group(2)], place, match.group())


def _commands(document: Document) -> Iterator[Command]:
    """Commands with overrides of which one is a degree or a batch."""
    for command in document.script.all_commands if document.script is not None else ():
        names = [match.group(2) for word in command.words if (match := OVERRIDE.fullmatch(word.text))]
        if SURE & frozenset(names):
            yield command


def _of_words(command: Command) -> dict[str, dict[str, Node]]:
    found: dict[str, dict[str, Node]] = {}
    for word in command.words:
        if match := OVERRIDE.fullmatch(word.text):
            section, name, text = match.groups()
            start = word.place.start + match.start(2)
            key = replace(word.place, start=start, end=start + len(name))
            place = replace(word.place, start=start + len(name) + 1)
            found.setdefault(section, {})[name] = Node(value=_value(word, text), place=place, key=key)
    return found


def _value(word: Word, text: str) -> str | int | float | bool | None:
    """A value of Hydra's grammar, as far as one word shows it."""
    import yaml

    if word.is_open:
        return f"${text}"
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    return value if isinstance(value, str | int | float | bool | None) else text


def _said_by_words(command: Command) -> Iterator[Fact]:
    for word in command.words:
        if match := RECIPE.fullmatch(word.text.rpartition("=")[2]):
            yield from _of_recipe(match, word.place)


def _arguments(sections: dict[str, dict[str, Node]], start: Place) -> Arguments:
    """Megatron's names; of several sections with a name the first counts."""
    nodes: dict[str, Node] = {}
    said: dict[str, str] = {}
    for section in SECTIONS:
        for name, node in sections.get(section, {}).items():
            known = OTHERS.get(name, name)
            if known in nodes or (section == "dataset" and name != "seq_length"):
                continue
            none = name == VIRTUAL and node.value is None
            nodes[known], said[known] = replace(node, value=1) if none else node, f"{section}.{name}"
    return Arguments(nodes=nodes, start=start, is_whole=False, said=said)


def _precision(sections: dict[str, dict[str, Node]]) -> Iterator[Fact]:
    node = sections.get("", {}).get("mixed_precision")
    known = RECIPES.get(str(node.scalar).replace("-", "_")) if node is not None else None
    if node is not None and known is not None:
        yield fact("precision", recipe(known).name, node, "mixed_precision")


def _keys(sections: dict[str, dict[str, Node]], start: Place) -> Iterator[Finding]:
    """Names that are no field: Python sets them on the object all the same, and nothing reads them."""
    root = Node(value={name: Node(value=nodes, place=start) for name, nodes in sections.items()}, place=start)
    for each in KeyCheck(table=table(NAME), tool=TITLE).findings(root):
        if each.rule == "misspelt-key-silent":
            yield each
