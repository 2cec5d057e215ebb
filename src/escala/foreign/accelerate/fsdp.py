"""Whether the FSDP block of an Accelerate file is of the version that runs, and wraps what the model has."""

from collections.abc import Iterator
from typing import Final

from escala.errors import misspelt
from escala.foreign.accelerate.options import Options
from escala.foreign.facts import is_open
from escala.foreign.findings import Edit, Finding, finding, renamed, replaced
from escala.foreign.jobs import Job
from escala.foreign.modules import all_blocks, families, families_of, family_of
from escala.foreign.places import Node
from escala.foreign.readings import Reading

ONLY_FIRST: Final = {
    "fsdp_sync_module_states": "FSDP2 does it itself",
    "fsdp_use_orig_params": "FSDP2 always keeps the original parameters",
    "fsdp_backward_prefetch": "FSDP2 has no such setting",
    "fsdp_forward_prefetch": "FSDP2 has no such setting here",
}
"""Keys of FSDP1 that FSDP2 takes no notice of (accelerate 1.15, commands/to_fsdp2.py)."""
RESHARDS: Final = {
    "FULL_SHARD": "true",
    "HYBRID_SHARD": "true",
    "SHARD_GRAD_OP": "false",
    "HYBRID_SHARD_ZERO2": "false",
}
"""FSDP1's strategies as fsdp_reshard_after_forward; NO_SHARD has no such form, it is DDP."""


def findings(job: Job, reading: Reading, options: Options) -> Iterator[Finding]:
    """All of them; none where another kind of parallelism runs."""
    if options.kind != "FSDP":
        return
    if options.fsdp_version == 2:
        yield from _second(reading, options)
    else:
        yield from _first(reading, options)
    yield from _wrapping(job, options)
    synced = options.get("fsdp_sync_module_states")
    loading = options.get("fsdp_cpu_ram_efficient_loading")  # on where it is missing
    if synced is not None and synced.value is False and (loading is None or loading.value is not False):
        yield finding("accelerate-loading-unsynced", synced)
    offload = options.get("fsdp_activation_checkpointing_offload")
    is_possible = options.fsdp_version == 2 and options.truth("fsdp_activation_checkpointing")
    if options.truth("fsdp_activation_checkpointing_offload") and not is_possible:
        yield finding("accelerate-activation-offload", offload)


def _first(reading: Reading, options: Options) -> Iterator[Finding]:
    """FSDP1, chosen or by default: what FSDP2 writes instead."""
    version, strategy = options.get("fsdp_version"), options.get("fsdp_sharding_strategy")
    place = version if version is not None else (strategy or options.at)
    instead = RESHARDS.get(options.strategy or "")
    words = f"fsdp_reshard_after_forward: {instead}" if instead else "distributed_type: MULTI_GPU (it is DDP)"
    rule = "accelerate-fsdp1" if version is not None else "accelerate-fsdp1-default"
    yield finding(rule, place, edits=tuple(_to_second(reading, options)), words=words)
    if strategy is not None and str(strategy.value).isdigit():
        name = options.strategy
        if name is not None:
            yield finding("accelerate-strategy-number", strategy, number=strategy.value, meant=name)
    reshard = options.get("fsdp_reshard_after_forward")
    if reshard is not None and isinstance(reshard.value, bool):
        yield finding("accelerate-reshard-fsdp1", reshard)


def _second(reading: Reading, options: Options) -> Iterator[Finding]:
    for name, why in ONLY_FIRST.items():
        node = options.get(name)
        if node is not None:
            yield finding("accelerate-fsdp2-unused", node, edits=_dropped(reading, node), key=name, why=why)
    strategy, reshard = options.get("fsdp_sharding_strategy"), options.get("fsdp_reshard_after_forward")
    if strategy is not None:
        instead = RESHARDS.get(options.strategy or "")
        edits: tuple[Edit, ...] = ()
        if instead and reshard is None and strategy.key is not None:
            edits = (renamed(strategy, "fsdp_reshard_after_forward"), replaced(strategy, instead))
        yield finding(
            "accelerate-fsdp2-strategy",
            strategy,
            edits=edits,
            given=strategy.value,
            instead=instead or "true",
        )
    if (
        reshard is not None
        and options.truth("fsdp_reshard_after_forward") is None
        and not is_open(reshard.value)
    ):
        yield finding("accelerate-fsdp2-reshard", reshard, given=reshard.value)
    state = options.get("fsdp_state_dict_type")
    if state is not None and str(state.value).upper() == "LOCAL_STATE_DICT":
        yield finding("accelerate-fsdp2-local-state", state, edits=(replaced(state, "SHARDED_STATE_DICT"),))


def _wrapping(job: Job, options: Options) -> Iterator[Finding]:
    policy, classes = options.get("fsdp_auto_wrap_policy"), options.get("fsdp_transformer_layer_cls_to_wrap")
    name = str(policy.value).upper() if policy is not None else "NO_WRAP"
    if name == "NO_WRAP":
        yield finding("accelerate-no-wrap", policy if policy is not None else options.at)
    elif name == "TRANSFORMER_BASED_WRAP":
        if classes is None:
            yield finding("accelerate-wrap-missing", policy, blocks=_expected(job))
        elif isinstance(classes.value, str) and not is_open(classes.value):
            yield from _classes(job, classes)


def _expected(job: Job) -> str:
    """What the model's family would wrap, where the model is known."""
    model = job.value("model")
    family = family_of(str(model)) if model is not None else None
    blocks = ", ".join(families()[family].blocks) if family is not None else ""
    return blocks or "the class of the model's repeated block"


def _classes(job: Job, node: Node) -> Iterator[Finding]:
    given = [each.strip() for each in str(node.value).split(",") if each.strip()]
    model = job.value("model")
    family = family_of(str(model)) if model is not None else None
    for name in given:
        owners = families_of(name)
        if family is not None and owners and name not in families()[family].blocks:
            blocks = families()[family].blocks
            edits = (replaced(node, ",".join(blocks)),) if len(given) == 1 else ()
            yield finding(
                "accelerate-wrap-other",
                node,
                edits=edits,
                block=name,
                owners=_some(owners),
                model=model,
                blocks=", ".join(blocks),
            )
        elif not owners:
            meant = misspelt(name, all_blocks())
            hint = f"did you mean {meant}?" if meant else "look the class up in the model's file"
            edits = (replaced(node, meant),) if meant and len(given) == 1 else ()
            yield finding("accelerate-wrap-unknown", node, edits=edits, block=name, hint=hint)
        elif family is None:
            yield finding("accelerate-wrap-family", node, block=name, owners=_some(owners))


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _to_second(reading: Reading, options: Options) -> Iterator[Edit]:
    """The changes that make the block FSDP2; none where the strategy has no form there."""
    strategy, version = options.get("fsdp_sharding_strategy"), options.get("fsdp_version")
    instead = RESHARDS.get(options.strategy or "")
    if reading.document.tree is None or instead is None or strategy is None or strategy.key is None:
        return
    if (options.strategy or "").startswith("HYBRID") or options.get("fsdp_reshard_after_forward") is not None:
        return
    yield renamed(strategy, "fsdp_reshard_after_forward")
    yield replaced(strategy, instead)
    if version is not None:
        yield replaced(version, "2")
    else:
        start = reading.document.text.rfind("\n", 0, strategy.key.start) + 1
        indent = reading.document.text[start : strategy.key.start]
        yield Edit(file=strategy.key.file, start=start, end=start, text=f"{indent}fsdp_version: 2\n")
    for name in ONLY_FIRST:
        node = options.get(name)
        if node is not None:
            yield from _dropped(reading, node)


def _dropped(reading: Reading, node: Node) -> tuple[Edit, ...]:
    """The change that deletes the line of a key; none where the value spans several."""
    if node.key is None or reading.document.tree is None or node.key.line != node.place.line:
        return ()
    text = reading.document.text
    start, end = text.rfind("\n", 0, node.key.start) + 1, text.find("\n", node.place.end)
    return (Edit(file=node.key.file, start=start, end=len(text) if end < 0 else end + 1, text=""),)
