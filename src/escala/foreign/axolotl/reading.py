"""Axolotl's YAML and its command as facts of a job. Knows its keys, no condition that makes them wrong."""

from collections.abc import Iterator
from typing import Final

from escala.foreign.documents import Document, Syntax
from escala.foreign.facts import Fact, Value, count_of, fact, number_of, truth_of
from escala.foreign.findings import Finding
from escala.foreign.jobs import Job
from escala.foreign.mapped import Keys, facts_in, is_on, names_of, positive, text_of
from escala.foreign.places import Node, at
from escala.foreign.readings import Reading, Reference, Role, VersionIs
from escala.foreign.shelltext import Command
from escala.foreign.transformers.arguments import adapters, attention_of, defaults, precision
from escala.foreign.transformers.files import references

NAME: Final = "axolotl"
TITLE: Final = "Axolotl"
VERSION: Final = "0.19.0"
OWN: Final = frozenset(
    (
        "base_model",
        "sequence_len",
        "micro_batch_size",
        "adapter",
        "sample_packing",
        "val_set_size",
        "num_epochs",
    )
)
PREFIX: Final = "fsdp_"
PREFIXED: Final = "fsdp_version"
"""The one key of fsdp_config that has the prefix as its own name."""
LEGACY: Final = {
    "xformers_attention": "xformers",
    "sage_attention": "sage",
    "flex_attention": "flex",
    "flash_attention": "flash",
    "sdp_attention": "sdpa",
    "eager_attention": "eager",
}
"""Switches of older versions in the order in which Axolotl takes them (utils/schemas/enums.py)."""
FUSED: Final = ("liger_fused_linear_cross_entropy", "cut_cross_entropy", "chunked_cross_entropy")
OFFLOADING: Final = ("offload", "offload_disk")
ACTIVATIONS: Final = {True: "cpu", "legacy": "cpu", "hidden_states": "cpu", "disk": "nvme"}
KEYS: Final[Keys] = {
    "base_model": ("model", text_of),
    "sequence_len": ("sequence_tokens", positive),
    "micro_batch_size": ("micro_batch", count_of),
    "gradient_accumulation_steps": ("accumulation", count_of),
    "eval_batch_size": ("eval_batch", positive),
    "max_steps": ("steps", positive),
    "num_epochs": ("epochs", number_of),
    "learning_rate": ("learning_rate", number_of),
    "optimizer": ("optimizer", text_of),
    "sample_packing": ("packing", truth_of),
    "torch_compile": ("compile", truth_of),
    "tensor_parallel_size": ("tp", count_of),
    "context_parallel_size": ("cp", count_of),
    "sequence_parallel_degree": ("cp", positive),
    "expert_parallel_size": ("ep", positive),
}
LORA_RANK: Final = 8
"""Where lora_r is missing, that of peft.LoraConfig counts."""


def score(document: Document) -> int:
    """Certain with several keys of its own, and for its command."""
    if document.script is not None:
        return 90 if any(trained(each) for each in document.script.all_commands) else 0
    is_yaml = document.tree is not None and document.syntax in (Syntax.YAML, Syntax.JSON)
    names = frozenset(document.tree.table) if is_yaml and document.tree is not None else frozenset()
    return 95 if "base_model" in names and len(names & OWN) > 1 else 0


def read(document: Document, version: str | None) -> Reading:
    """What the document says."""
    if document.script is not None:
        named = next(each for each in map(trained, document.script.all_commands) if each)
        return _reading(document, version, Role.LAUNCH, (), named)
    assert document.tree is not None
    node = settings(document.tree)
    named = (*references(node, ("deepspeed",)),)
    return _reading(
        document, version, Role.CONFIG, tuple(_facts(node)), named, {"settings": node}, _wanted(node)
    )


def rules(job: Job, reading: Reading) -> Iterator[Finding]:
    """What is wrong with it."""
    from escala.foreign.axolotl.rules import rules_of

    return rules_of(job, reading)


def _reading(
    document: Document,
    version: str | None,
    role: Role,
    facts: tuple[Fact, ...],
    named: tuple[Reference, ...],
    extra: dict[str, object] | None = None,
    wanted: frozenset[str] = frozenset(),
) -> Reading:
    return Reading(
        tool=NAME,
        title=TITLE,
        version=version or VERSION,
        version_is=VersionIs.GIVEN if version else VersionIs.ASSUMED,
        role=role,
        document=document,
        facts=facts,
        references=named,
        engine="hf-trainer",
        wanted=wanted,
        extra=extra or {},
    )


def trained(command: Command) -> tuple[Reference, ...]:
    """The file that a command trains from: axolotl train FILE, or the module axolotl.cli.train."""
    words = command.words
    for index, word in enumerate(words):
        is_module = word.text == "axolotl.cli.train"
        is_verb = word.text == "train" and index > 0 and words[index - 1].text.rpartition("/")[2] == "axolotl"
        if (is_module or is_verb) and index + 1 < len(words):
            after = words[index + 1]
            if after.text.endswith((".yml", ".yaml")) and not after.is_open:
                return (Reference(file=after.text, place=after.place, said="train"),)
    return ()


def settings(tree: Node) -> Node:
    """The keys with those of fsdp_config under the names without prefix, as Axolotl itself renames them."""
    config = tree.table.get("fsdp_config")
    if config is None or not config.table:
        return tree
    renamed = {
        name if name == PREFIXED else name.removeprefix(PREFIX): each for name, each in config.table.items()
    }
    inside = Node(value=renamed, place=config.place, key=config.key)
    return Node(value={**tree.table, "fsdp_config": inside}, place=tree.place)


def version_of_fsdp(node: Node) -> int | None:
    """1 or 2; 1 where nothing is said (check_fsdp_version_in_fsdp_config); None without FSDP."""
    if not is_on(node.table.get("fsdp_config")) and not is_on(node.table.get("fsdp")):
        return None
    for given in (
        at(node, "fsdp_version"),
        at(node, "fsdp_config", "fsdp_version"),
        at(node, "fsdp_config", "version"),
    ):
        if given is not None and positive(given):
            return positive(given)
    return 1


def attention(node: Node) -> tuple[Value, Node, str] | None:
    """The kernel, and where it is named."""
    given = node.table.get("attn_implementation")
    value = None if given is None else attention_of(given)
    if given is not None and value is not None:
        return value, given, "attn_implementation"
    for key, name in LEGACY.items():
        if is_on(node.table.get(key)):
            return name, node.table[key], key
    return None


def _wanted(node: Node) -> frozenset[str]:
    given = node.table.get("bf16")
    return frozenset(("precision",)) if given is not None and given.scalar == "auto" else frozenset()


def _facts(node: Node) -> Iterator[Fact]:
    yield from facts_in(node, KEYS)
    if node.table.get("bf16") is None or node.table["bf16"].scalar != "auto":
        yield from precision(node)
    kernel = attention(node)
    if kernel is not None:
        yield fact("attention", *kernel)
    yield from _recompute(node)
    yield from _method(node)
    yield from _sharding(node)
    fused = next((key for key in FUSED if is_on(node.table.get(key))), None)
    if fused is not None:
        yield fact("fused_loss", True, node.table[fused], fused)
    if (at(node, "context_parallel_size") or at(node, "sequence_parallel_degree")) is not None:
        yield from _ring(node)
    micro = node.table.get("micro_batch_size")
    if micro is not None and positive(micro) is not None:
        yield from defaults(node, {"eval_batch_size": ("eval_batch", positive(micro) or 1)})
    yield from defaults(node, {"gradient_accumulation_steps": ("accumulation", 1)})


def _ring(node: Node) -> Iterator[Fact]:
    given = node.table.get("context_parallel_size") or node.table["sequence_parallel_degree"]
    if (positive(given) or 1) > 1:
        yield fact("cp_kind", "ring", given, "context_parallel_size")


def _recompute(node: Node) -> Iterator[Fact]:
    """true, or a word for another way to do it; offloading moves what is kept to the host, or a disk."""
    given, inside = (
        node.table.get("gradient_checkpointing"),
        at(node, "fsdp_config", "activation_checkpointing"),
    )
    if given is not None and is_on(given):
        yield fact("recompute", "full", given, "gradient_checkpointing")
    elif inside is not None and is_on(inside):
        yield fact("recompute", "full", inside, "fsdp_config.activation_checkpointing")
    elif given is not None and truth_of(given) is False:
        yield fact("recompute", "none", given, "gradient_checkpointing")
    if given is not None and given.scalar in OFFLOADING:
        yield fact(
            "offload_activations",
            "nvme" if given.scalar == "offload_disk" else "cpu",
            given,
            "gradient_checkpointing",
        )
    moved = node.table.get("activation_offloading")
    if moved is not None and isinstance(moved.scalar, str | bool) and moved.scalar in ACTIVATIONS:
        yield fact("offload_activations", ACTIVATIONS[moved.scalar], moved, "activation_offloading")


def _method(node: Node) -> Iterator[Fact]:
    for bits in (4, 8):
        given = node.table.get(f"load_in_{bits}bit")
        if given is not None and is_on(given):
            yield fact("quantized_bits", bits, given, f"load_in_{bits}bit")
    adapter = node.table.get("adapter")
    name = None if adapter is None else text_of(adapter)
    if adapter is not None and name in ("lora", "qlora"):
        is_four = is_on(node.table.get("load_in_4bit"))
        method = "qlora" if name == "qlora" or is_four else "lora"
        yield from adapters(method, adapter, "adapter", node.table.get("lora_r"), LORA_RANK)
    elif name is None:
        yield fact("method", "full", node.place, "adapter (default)", is_default=True)


def _sharding(node: Node) -> Iterator[Fact]:
    """FSDP in either form, and the degrees over which states are sharded and copied."""
    for key, name in (("dp_shard_size", "shard"), ("dp_replicate_size", "replicas")):
        given = node.table.get(key)
        count = None if given is None else positive(given)
        if given is not None and count is not None and count > 1:
            yield fact(name, count, given, key)
    place = node.table.get("fsdp") if is_on(node.table.get("fsdp")) else node.table.get("fsdp_config")
    if place is None or version_of_fsdp(node) is None:
        return
    yield fact("zero", 3, place, "fsdp")
    resharding = at(node, "fsdp_config", "reshard_after_forward")
    words = tuple(str(each.scalar) for each in place.items)
    keeps = "shard_grad_op" in words or (resharding is not None and truth_of(resharding) is False)
    yield fact("reshard", not keeps, resharding or place, "reshard_after_forward")
    wraps = at(node, "fsdp_config", "transformer_layer_cls_to_wrap")
    names = None if wraps is None else names_of(wraps)
    if wraps is not None and names:
        yield fact("wraps", names, wraps, "transformer_layer_cls_to_wrap")
    offload = at(node, "fsdp_config", "offload_params")
    if offload is not None and is_on(offload):
        for which in ("offload_params", "offload_optimizer"):
            yield fact(which, "cpu", offload, "fsdp_config.offload_params")
