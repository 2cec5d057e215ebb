"""MaxText's YAML, and key=value arguments in shell scripts, as facts of a job. Knows no rule."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import yaml

from escala.foreign.documents import Document, Syntax
from escala.foreign.facts import Fact, count_of, fact
from escala.foreign.findings import Finding
from escala.foreign.jobs import Job
from escala.foreign.keys import KeyCheck, table
from escala.foreign.maxtext.mesh import axes, axis, devices_of, samples_of
from escala.foreign.maxtext.names import (
    AXES,
    CONTEXT_AXES,
    DTYPES,
    LEVELS,
    MODELS,
    OFFLOADED,
    QUANTIZATIONS,
    REMAT,
    SHARD_AXES,
    STRATEGIES,
    TENSOR_AXES,
)
from escala.foreign.maxtext.rules import rules_of
from escala.foreign.places import Node
from escala.foreign.readings import Reading, Role, VersionIs
from escala.foreign.shelltext import Command, Word
from escala.model.precision import recipe

NAME: Final = "maxtext"
TITLE: Final = "MaxText"
VERSION: Final = "0.2.5"
SURE: Final = frozenset(f"{level}_{axis}_parallelism" for level in LEVELS for axis in AXES)
LIKELY: Final = frozenset(
    ("per_device_batch_size", "remat_policy", "base_emb_dim", "max_target_length", "base_output_directory")
)
PROGRAM: Final = re.compile(r"(?i)maxtext[./\w]*train\w*(\.py)?$")
IGNORED: Final = frozenset(("base_config",))
"""A key of files, which the settings themselves do not have."""
SETTING: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def score(document: Document) -> int:
    """Certain with an axis of its mesh or one of its programs, likely with two keys that few others have."""
    if document.syntax is Syntax.SHELL:
        return 90 if next(_commands(document), None) is not None else 0
    if document.tree is None or document.syntax is not Syntax.YAML:
        return 0
    names = frozenset(document.tree.table)
    return 95 if names & SURE else 70 if len(names & LIKELY) > 1 else 0


def read(document: Document, version: str | None) -> Reading:
    """What the document says; of several commands the first counts."""
    if document.tree is not None:
        tree, role = document.tree, Role.CONFIG
    else:
        command = next(_commands(document))
        tree, role = Node(value=_settings(command), place=command.words[0].place), Role.ARGUMENTS
    return Reading(
        tool=NAME,
        title=TITLE,
        version=version or VERSION,
        version_is=VersionIs.GIVEN if version else VersionIs.ASSUMED,
        role=role,
        document=document,
        facts=tuple(_facts(tree)),
        findings=tuple(KeyCheck(table=table(NAME), tool=TITLE, ignored=IGNORED).findings(tree)),
        engine="maxtext",
        extra={"tree": tree},
    )


def rules(job: Job, reading: Reading) -> Iterator[Finding]:
    """What is wrong with it."""
    tree = reading.extra["tree"]
    assert isinstance(tree, Node)
    return rules_of(job, tree)


def _commands(document: Document) -> Iterator[Command]:
    for command in document.script.all_commands if document.script is not None else ():
        if any(PROGRAM.search(word.text) for word in command.words[:8]):
            yield command


def _settings(command: Command) -> dict[str, Node]:
    """key=value words after the program; values are those that YAML would read."""
    start = next(i for i, word in enumerate(command.words) if PROGRAM.search(word.text))
    found: dict[str, Node] = {}
    for word in command.words[start + 1 :]:
        match = SETTING.fullmatch(word.text)
        if match:
            found[match.group(1)] = _node(word, match)
    return found


def _node(word: Word, match: re.Match[str]) -> Node:
    name, text = match.groups()
    try:
        value = f"${text}" if word.is_open else yaml.safe_load(text)
    except yaml.YAMLError:
        value = text
    key = replace(word.place, end=word.place.start + len(name))
    place = replace(word.place, start=word.place.start + len(name) + 1)
    known = value if isinstance(value, str | int | float | bool | None) else text
    return Node(value=known, place=place, key=key)


def _facts(tree: Node) -> Iterator[Fact]:
    yield from _counted(tree)
    yield from _batch(tree)
    yield from _mesh(tree)
    yield from _numbers(tree)
    yield from _memory(tree)


def _said(tree: Node, what: str, value: str | int | float | bool | None, *keys: str) -> Iterator[Fact]:
    key = next((name for name in keys if name in tree.table), None)
    if value is not None and key is not None:
        yield fact(what, value, tree.table[key], key)


def _counted(tree: Node) -> Iterator[Fact]:
    for key, what in (("max_target_length", "sequence_tokens"), ("steps", "steps")):
        yield from _said(tree, what, count_of(tree.table.get(key)), key)
    accumulation = tree.table.get("gradient_accumulation_steps")
    yield from _said(tree, "accumulation", count_of(accumulation), "gradient_accumulation_steps")
    rate = tree.table.get("learning_rate")
    if rate is not None and isinstance(rate.scalar, int | float):
        yield fact("learning_rate", float(rate.scalar), rate, "learning_rate")
    for key, what in (("opt_type", "optimizer"), ("attention", "attention")):
        node = tree.table.get(key)
        if node is not None and isinstance(node.scalar, str) and node.scalar != "autoselected":
            yield fact(what, node.scalar, node, key)
    model = tree.table.get("model_name")
    if model is not None and isinstance(model.scalar, str) and model.scalar != "default":
        yield fact("model", MODELS.get(model.scalar, model.scalar), model, "model_name")


def _batch(tree: Node) -> Iterator[Fact]:
    samples, devices = samples_of(tree), devices_of(tree)
    if samples is not None and samples.is_integer():
        yield from _said(tree, "micro_batch", int(samples), "per_device_batch_size")
    named = [key for key in tree.table if key in SURE]
    if devices is not None and named:
        yield from _said(tree, "devices", devices, named[0])
        each = tree.table.get("per_device_batch_size")
        total = each.scalar * devices if each and isinstance(each.scalar, int | float) else None
        steps = count_of(tree.table.get("gradient_accumulation_steps")) or 1
        if total is not None and float(total).is_integer():
            yield from _said(tree, "global_batch", int(total) * steps, "per_device_batch_size")


def _mesh(tree: Node) -> Iterator[Fact]:
    for what, names in (
        ("tp", TENSOR_AXES),
        ("cp", CONTEXT_AXES),
        ("ep", ("expert",)),
        ("pp", ("pipeline",)),
    ):
        yield from _said(tree, what, axes(tree, names), *_keys(names))
    tensor, sequence = axes(tree, ("tensor",)), axes(tree, ("tensor_sequence",))
    if tensor and sequence and tensor * sequence > 1:
        yield from _said(tree, "sp", sequence > 1, *_keys(TENSOR_AXES[::-1]))
    if (axes(tree, CONTEXT_AXES) or 1) > 1:
        node = tree.table.get("context_parallel_strategy")
        kind = STRATEGIES.get(str(node.scalar) if node is not None else "all_gather")
        if kind is not None:
            said = kind.name.lower().replace("_", "-")
            yield from _said(tree, "cp_kind", said, "context_parallel_strategy", *_keys(CONTEXT_AXES))
    if (axes(tree, ("expert",)) or 1) > 1:
        yield from _said(tree, "etp", axes(tree, TENSOR_AXES), *_keys(("expert",)))
        yield from _said(tree, "dispatcher", "all-to-all", *_keys(("expert",)))
    stages = axes(tree, ("pipeline",)) or 1
    repeats = count_of(tree.table.get("num_pipeline_repeats"))
    if stages > 1 and repeats is not None and repeats > 0:
        yield from _said(tree, "virtual_stages", repeats, "num_pipeline_repeats")
        yield from _said(tree, "schedule", "gpipe" if repeats == 1 else "interleaved", "num_pipeline_repeats")
    yield from _states(tree)


def _keys(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{level}_{name}_parallelism" for name in names for level in LEVELS)


def _states(tree: Node) -> Iterator[Fact]:
    """Weights are sharded over the axes of FSDP, which are those that are left over where nothing is said."""
    fsdp = [axis(tree, level, name) for level in LEVELS for name in SHARD_AXES]
    lengths = [each for each in fsdp if each is not None]
    sharded = any(each != 1 for each in lengths)
    where = (*_keys(("fsdp", "fsdp_transpose", "data")), "per_device_batch_size")
    optimizer = tree.table.get("shard_optimizer_over_data")
    stage = 3 if sharded else 1 if optimizer is not None and optimizer.scalar is True else 0
    if len(lengths) == len(fsdp):
        yield from _said(tree, "zero", stage, *where)
        if stage == 3:
            yield from _said(tree, "reshard", True, *where)
    shard, replicas = axes(tree, SHARD_AXES), axes(tree, ("data",))
    if shard and replicas and shard > 1 and replicas > 1:
        yield from _said(tree, "shard", shard, *where)
        yield from _said(tree, "replicas", replicas, *_keys(("data",)))


def _numbers(tree: Node) -> Iterator[Fact]:
    kind, form = tree.table.get("quantization"), tree.table.get("dtype")
    if kind is not None and kind.scalar not in ("", None):
        known = QUANTIZATIONS.get(str(kind.scalar))
        yield from _said(tree, "precision", recipe(known).name if known is not None else None, "quantization")
    else:
        known = DTYPES.get(str(form.scalar) if form is not None else "bfloat16")
        name = recipe(known).name if known is not None else None
        yield from _said(tree, "precision", name, "dtype", "per_device_batch_size")
    weights = tree.table.get("weight_dtype")
    if weights is not None and isinstance(weights.scalar, str):
        yield fact("dtype_weights", weights.scalar, weights, "weight_dtype")


def _memory(tree: Node) -> Iterator[Fact]:
    policy = tree.table.get("remat_policy")
    word = str(policy.scalar) if policy is not None else "full"
    if word in REMAT:
        said = REMAT[word].name.lower().replace("_", "-")
        yield from _said(tree, "recompute", said, "remat_policy", "per_device_batch_size")
    if word in OFFLOADED:
        yield from _said(tree, "offload_activations", "cpu", "remat_policy")
    for key, what in (
        ("optimizer_memory_host_offload", "offload_optimizer"),
        ("parameter_memory_host_offload", "offload_params"),
    ):
        node = tree.table.get(key)
        if node is not None and node.scalar is True:
            yield fact(what, "cpu", node, key)
    tiles = count_of(tree.table.get("num_vocab_tiling"))
    yield from _said(tree, "fused_loss", None if tiles is None else tiles > 1, "num_vocab_tiling")
