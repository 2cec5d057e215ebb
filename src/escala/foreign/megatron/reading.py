"""Megatron-LM's arguments in a shell script, in a file of arguments, or as --yaml-cfg. Knows no rule."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from escala.foreign.documents import Document, Syntax
from escala.foreign.facts import Fact, fact
from escala.foreign.findings import Finding
from escala.foreign.jobs import Job
from escala.foreign.keys import KeyCheck, table
from escala.foreign.megatron.arguments import Arguments, commands, is_own, tree_of
from escala.foreign.megatron.facts import facts_of
from escala.foreign.megatron.rules import rules_of
from escala.foreign.megatron.shape import shape_of, vocabulary_multiple
from escala.foreign.places import Node
from escala.foreign.readings import Reading, Reference, Role, VersionIs
from escala.foreign.shelltext import Word, flags

NAME: Final = "megatron"
TITLE: Final = "Megatron-LM"
VERSION: Final = "0.19.2"
BLOCKS: Final = frozenset(("language_model", "model_parallel"))
"""Blocks of the YAML that --yaml-cfg takes; other arguments stand beside them."""


def score(document: Document) -> int:
    """Certain for its own program or three of its options; likely for the YAML with its two blocks."""
    if document.syntax is Syntax.SHELL:
        return 90 if next(commands(document), None) is not None else 0
    names = (
        frozenset(document.tree.table) if document.tree and document.syntax is Syntax.YAML else frozenset()
    )
    return 85 if names >= BLOCKS else 0


def read(document: Document, version: str | None) -> Reading:
    """What the document says; of several commands the first counts."""
    if document.tree is not None:
        return _reading(document, version, _of_yaml(document.tree), (), {}, ())
    command, before, after = next(iter(commands(document)))
    tree = tree_of(after)
    nodes = {name.replace("-", "_"): node for name, node in tree.items()}
    given = Arguments(nodes=nodes, start=command.words[0].place)
    root = Node(value=tree, place=command.words[0].place)
    found = tuple(_keys(root, is_own(before)))
    reading = _reading(document, version, given, found, command.variables, _launched(before))
    return replace(reading, references=tuple(_references(given)))


def rules(job: Job, reading: Reading) -> Iterator[Finding]:
    """What is wrong with it."""
    given = reading.extra["arguments"]
    variables = reading.extra["variables"]
    assert isinstance(given, Arguments)
    assert isinstance(variables, Mapping)
    return rules_of(job, given, reading.version, variables)


def _reading(
    document: Document,
    version: str | None,
    given: Arguments,
    found: tuple[Finding, ...],
    variables: Mapping[str, Word],
    launched: tuple[Fact, ...],
) -> Reading:
    return Reading(
        tool=NAME,
        title=TITLE,
        version=version or VERSION,
        version_is=VersionIs.GIVEN if version else VersionIs.ASSUMED,
        role=Role.ARGUMENTS,
        document=document,
        facts=(*launched, *facts_of(given), *_shard(given, launched)),
        findings=found,
        engine="megatron-core",
        shape=shape_of(given),
        extra={"arguments": given, "variables": variables, "tokenizer": _tokenizer(given)},
    )


def _tokenizer(given: Arguments) -> tuple[str, int] | None:
    """The name of the tokenizer, whose words nobody counts here, and what their rows are padded to."""
    name, multiple = given.word("tokenizer_model"), vocabulary_multiple(given)
    return (name, multiple) if name and multiple and not name.startswith("$") else None


def _keys(tree: Node, is_own_program: bool) -> Iterator[Finding]:
    """Options that the parser refuses; other programs may add options of their own."""
    for each in KeyCheck(table=table(NAME), tool=TITLE).findings(tree):
        if is_own_program or each.rule not in ("unknown-key", "misspelt-key"):
            yield each


def _of_yaml(tree: Node) -> Arguments:
    """Arguments of the two blocks and beside them."""
    nodes = {name: node for name, node in tree.table.items() if name not in BLOCKS}
    for block in sorted(BLOCKS):
        nodes |= tree.table[block].table
    return Arguments(nodes=nodes, start=tree.place, said={name: name for name in nodes})


def _launched(before: tuple[Word, ...]) -> tuple[Fact, ...]:
    """Nodes and devices of each by the launcher in front of the program."""
    given = flags(before)
    found: list[Fact] = []
    for name, what in (("nnodes", "nodes"), ("nproc-per-node", "devices_per_node")):
        values = given[name][1] if name in given else ()
        if values and values[0].text.isdigit():
            place, is_default = given[name][0].place, values[0].is_default
            node = Node(value=int(values[0].text), place=place, is_default=is_default)
            found.append(fact(what, int(values[0].text), node, f"--{name}"))
    if found and "nnodes" not in given:
        found.append(fact("nodes", 1, found[0].place, found[0].said))
    return tuple(found)


def _shard(given: Arguments, launched: tuple[Fact, ...]) -> Iterator[Fact]:
    """Ranks of each group that shares states: data and context ranks / number of groups."""
    devices = math.prod(each.value for each in launched if isinstance(each.value, int))
    tp, pp = (given.count(f"{each}_model_parallel_size", 1) for each in ("tensor", "pipeline"))
    name = "num_distributed_optimizer_instances"
    groups = given.count(name)
    if len(launched) == 2 and tp and pp and groups and devices % (tp * pp * groups) == 0:
        shard = devices // (tp * pp * groups)
        yield fact("shard", shard, given.place(name), given.spelled(name))


def _references(given: Arguments) -> Iterator[Reference]:
    path = given.word("yaml_cfg")
    if path is not None and not path.startswith("$"):
        yield Reference(file=path, place=given.place("yaml_cfg"), said="--yaml-cfg")
