"""When Axolotl's YAML is wrong. The words, and conditions of keys alone, are in data/rules/axolotl.toml."""

from collections.abc import Iterator, Mapping
from typing import Final

from escala.errors import spoken
from escala.foreign.axolotl.reading import (
    FUSED,
    LEGACY,
    OFFLOADING,
    PREFIX,
    PREFIXED,
    attention,
    version_of_fsdp,
)
from escala.foreign.conditions import conditional
from escala.foreign.facts import is_open, truth_of
from escala.foreign.findings import Finding, finding, renamed, replaced
from escala.foreign.jobs import Job
from escala.foreign.keys import KeyCheck, table
from escala.foreign.mapped import is_on, positive
from escala.foreign.places import Node, Scalar, at
from escala.foreign.readings import Reading, VersionIs
from escala.foreign.transformers.rules import over_links

GROUP: Final = "axolotl"
DEFAULTS: Final[Mapping[str, Scalar]] = {"gradient_checkpointing": False}
PREFERENCES: Final = ("dpo", "kto", "orpo", "ipo")
BITSANDBYTES: Final = ("adamw_8bit", "adamw_bnb_8bit")
KEEPING_APART: Final = ("flash", "flex", "sdpa", "eager", "xformers", "sage")
"""Kernels that keep packed samples apart (utils/schemas/config.py, attn_decontaminates_packing)."""
PLUGINS: Final = {
    "liger_": "axolotl.integrations.liger.LigerPlugin",
    "cut_cross_entropy": "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin",
}
UNTYPED: Final = frozenset(("learning_rate", "bf16", "gradient_checkpointing"))
"""Keys that Axolotl converts, or that have rules of their own."""


def rules_of(job: Job, reading: Reading) -> Iterator[Finding]:
    """All findings of a file; a command has none of its own."""
    node = reading.extra.get("settings")
    if not isinstance(node, Node):
        return
    version = reading.version if reading.version_is is not VersionIs.ASSUMED else ""
    yield from KeyCheck(
        table=table("axolotl"), tool=reading.title, version=version, ignored=UNTYPED
    ).findings(node)
    yield from conditional(GROUP, job, node, DEFAULTS)
    yield from _fsdp(reading, node)
    yield from _optimizers(node)
    yield from _formats(node)
    yield from _attention(node)
    yield from _evaluation(node)
    yield from _checkpointing(reading, node)
    yield from _losses(node)
    yield from _plugins(node)
    yield from over_links(job, reading)


def _fsdp(reading: Reading, node: Node) -> Iterator[Finding]:
    version, words = version_of_fsdp(node), node.table.get("fsdp")
    tree = reading.document.tree
    config = at(tree, "fsdp_config")
    given = config.table if config is not None else {}
    old = {name: each for name, each in given.items() if name.startswith(PREFIX) and name != PREFIXED}
    if old:
        edits = tuple(renamed(each, name.removeprefix(PREFIX)) for name, each in old.items() if each.key)
        first = next(iter(old))
        meant, more = first.removeprefix(PREFIX), f", and {len(old) - 1} more" if len(old) > 1 else ""
        yield finding("axolotl-fsdp-prefix", old[first], edits=edits, key=first, meant=meant, more=more)
    if words is not None and words.items:
        yield finding("axolotl-fsdp-list", words)
    if version == 1:
        yield finding("axolotl-fsdp1", words if words is not None and is_on(words) else config)


def _optimizers(node: Node) -> Iterator[Finding]:
    """Optimizers in 8 bits keep states that FSDP cannot move, gather or save."""
    given, version = node.table.get("optimizer"), version_of_fsdp(node)
    name = given.scalar if given is not None else None
    if given is None or version is None or not isinstance(name, str) or "8bit" not in name:
        return
    if version == 1 and is_on(at(node, "fsdp_config", "offload_params")):
        yield finding("axolotl-fsdp-offload-8bit", given, optimizer=name)
    if version == 2 and name in BITSANDBYTES:
        yield finding(
            "axolotl-fsdp2-8bit", given, edits=(replaced(given, "adamw_torch_8bit"),), optimizer=name
        )
    if name == "paged_adamw_8bit":
        yield finding(
            "axolotl-fsdp-paged-8bit", given, edits=(replaced(given, "adamw_torch_fused"),), optimizer=name
        )


def _formats(node: Node) -> Iterator[Finding]:
    bits = next(
        (node.table[key] for key in ("load_in_4bit", "load_in_8bit") if is_on(node.table.get(key))), None
    )
    auto, rl = node.table.get("bf16"), node.table.get("rl")
    if auto is not None and auto.scalar == "auto":
        yield finding("axolotl-auto-precision", auto)
    if bits is None:
        return
    if not is_on(node.table.get("adapter")):
        yield finding("axolotl-quantized-full", bits)
    if version_of_fsdp(node) != 2:
        return
    loading = at(node, "fsdp_config", "cpu_ram_efficient_loading")
    if loading is not None and is_on(loading) and is_on(node.table.get("load_in_4bit")):
        yield finding("axolotl-fsdp2-loading-4bit", loading, edits=(replaced(loading, "false"),))
    if rl is not None and rl.scalar in PREFERENCES:
        yield finding("axolotl-fsdp2-quantized-preference", bits, rl=rl.scalar)


def _attention(node: Node) -> Iterator[Finding]:
    given, kernel = node.table.get("attn_implementation"), attention(node)
    if given is not None and is_on(given):
        for key in LEGACY:
            if is_on(node.table.get(key)):
                yield finding("axolotl-attention-twice", node.table[key], key=key)
    if given is not None and kernel is None and is_on(given):
        return
    name = kernel[0] if kernel is not None else None
    packing, context = node.table.get("sample_packing"), node.table.get("context_parallel_size")
    if packing is not None and is_on(packing) and name not in KEEPING_APART:
        yield finding(
            "axolotl-packing-attention", packing, attention=f"attention {name}" if name else "no kernel named"
        )
    if context is not None and (positive(context) or 1) > 1 and name != "flash":
        yield finding("axolotl-context-attention", context, context_parallel_size=context.scalar)


def evaluates(node: Node) -> bool:
    """Whether there is something to evaluate on."""
    size, tests = node.table.get("val_set_size"), node.table.get("test_datasets")
    sized = size is not None and isinstance(size.scalar, int | float) and size.scalar > 0
    often = any(is_on(node.table.get(key)) for key in ("evals_per_epoch", "eval_steps"))
    return sized or is_on(tests) or often


def _evaluation(node: Node) -> Iterator[Finding]:
    unpacked, packed = node.table.get("eval_sample_packing"), is_on(node.table.get("sample_packing"))
    if unpacked is not None and truth_of(unpacked) is False and packed and evaluates(node):
        often = node.table.get("evals_per_epoch")
        times = f", {often.scalar} times an epoch" if often is not None and positive(often) else ""
        edits = (replaced(unpacked, "true"),)
        yield finding("axolotl-eval-unpacked", unpacked, edits=edits, times=times)
    given, micro = node.table.get("eval_batch_size"), node.table.get("micro_batch_size")
    if given is None or micro is None or positive(given) is None or positive(micro) is None:
        return
    if given.scalar != micro.scalar:
        words = {"eval_batch_size": given.scalar, "micro_batch_size": micro.scalar}
        yield finding("axolotl-eval-batch", given, edits=(replaced(given, str(micro.scalar)),), **words)


def _checkpointing(reading: Reading, node: Node) -> Iterator[Finding]:
    given = node.table.get("gradient_checkpointing")
    word = given.scalar if given is not None else None
    if given is None or word is None or truth_of(given) is not None or word in OFFLOADING or is_open(word):
        return
    more = ", with activation_offloading: true for what unsloth did" if word == "unsloth" else ""
    yield finding(
        "axolotl-checkpointing-word",
        given,
        edits=(replaced(given, "true"),),
        given=spoken(word),
        version=reading.version,
        more=more,
    )


def _losses(node: Node) -> Iterator[Finding]:
    on = [key for key in (*FUSED, "liger_cross_entropy") if is_on(node.table.get(key))]
    if len(on) > 1:
        yield finding("axolotl-losses", node.table[on[1]], count=len(on), names=", ".join(on))


def _plugins(node: Node) -> Iterator[Finding]:
    """Keys of plugins count only where the plugin is named."""
    named = node.table.get("plugins")
    names = [str(each.scalar) for each in named.items] if named is not None else []
    for start, plugin in PLUGINS.items():
        key = next((key for key in node.table if key.startswith(start) and is_on(node.table[key])), None)
        if key is not None and not any(plugin.rpartition(".")[2] in name for name in names):
            yield finding("axolotl-plugin-missing", node.table[key], key=key, plugin=plugin)
