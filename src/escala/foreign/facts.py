"""What a file says of a job, in the field's words: one vocabulary for all tools. Knows no tool's keys.

A fact has the place where it is said. What a file leaves open ("auto", an unset variable) is no fact.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Final

from escala.foreign.places import Node, Place

WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")
Value = str | int | float | bool | tuple[str, ...]

FACTS: Final[Mapping[str, str]] = {
    # where
    "devices": "number of devices of the whole job",
    "nodes": "number of nodes",
    "devices_per_node": "devices, or processes, on each node",
    "device": "name of the accelerator",
    "host_bytes": "memory of a node",
    "network": "name or kind of the network between nodes; tcp where a file forces sockets",
    "link": "kind of the link between devices of a node, where a file forces one: host-memory or tcp",
    # what
    "model": "name or path of the model",
    "sequence_tokens": "tokens of a sequence, or the most",
    "global_batch": "samples of an optimizer step over all ranks",
    "micro_batch": "samples that one rank computes at once",
    "accumulation": "micro-batches that one rank adds up to a step, without a pipeline",
    "steps": "optimizer steps",
    "epochs": "passes over the data",
    "total_tokens": "tokens to train on",
    "method": "pretrain, full, lora or qlora",
    "lora_rank": "rank of the adapters",
    "quantized_bits": "bits of a frozen weight: 4 or 8",
    "optimizer": "name of the optimizer as the file has it",
    "learning_rate": "learning rate",
    "packing": "whether samples are packed to full sequences",
    "eval_batch": "samples that one rank evaluates at once",
    "dtype_weights": "number format in which weights are loaded",
    "attention": "kernel of attention: flash, sdpa, eager...",
    "wraps": "names of the modules that are wrapped or sharded one by one",
    # how
    "zero": "ZeRO stage, 0 to 3; FSDP is 3, or 2 without resharding of gradients only",
    "reshard": "whether gathered weights are freed after forward",
    "dp": "data parallel degree, where it is said itself",
    "shard": "ranks over which states are sharded",
    "replicas": "data parallel groups that hold the same shards (HSDP)",
    "second_copy": "ranks over which a second copy of the weights is sharded (hpZ)",
    "tp": "tensor parallel degree",
    "sp": "whether sequence parallelism goes with tensor parallelism",
    "pp": "pipeline degree",
    "schedule": "gpipe, 1f1b, interleaved or zero-bubble-v",
    "stage_layers": "layers of each stage of a pipeline in order, where they are listed",
    "virtual_stages": "stages of a pipeline on each of its ranks",
    "cp": "context parallel degree",
    "cp_kind": "ring, all-gather or ulysses",
    "ep": "expert parallel degree",
    "etp": "tensor parallel degree of experts",
    "dispatcher": "all-to-all, all-gather or fused",
    "precision": "number format of the linear maps, by the names of `escala plan --precision`",
    "recompute": "none, selective, first-layers or full",
    "recompute_layers": "layers that are recomputed",
    "offload_optimizer": "none, cpu or nvme",
    "offload_params": "none, cpu or nvme",
    "offload_activations": "none, cpu or nvme",
    "compile": "whether torch.compile is on",
    "fused_loss": "whether the loss is computed without whole logits",
}

BATCHES: Final = frozenset(("micro_batch", "accumulation"))
COUNTED: Final = frozenset(("global_batch", "devices", "nodes", "devices_per_node", "tp", "pp", "cp", "ep"))
"""Counts that are 1 or more; in several tools -1 means all there are, or the rest, of those in COUNTED."""

UNSET: Final = ", a variable"
"""How a fact is said that a script has only where a variable is not set."""
YES_NO: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that a file says; `said` is the key as it stands there.

    A default of the tool itself counts after what any file says, and contradicts none.
    """

    name: str
    value: Value
    place: Place
    said: str
    is_default: bool = False


def fact(name: str, value: Value, node: Node | Place, said: str, *, is_default: bool = False) -> Fact:
    """A fact of the vocabulary at the place of a node."""
    assert name in FACTS, name
    if isinstance(node, Node) and node.is_default:
        return Fact(name=name, value=value, place=node.entry, said=f"{said}{UNSET}", is_default=True)
    place = node.entry if isinstance(node, Node) else node
    return Fact(name=name, value=value, place=place, said=said, is_default=is_default)


def is_below_one(each: Fact) -> bool:
    """Whether a file gives a count that no job has: 0 or less, but for -1 where that means all."""
    if not isinstance(each.value, int) or isinstance(each.value, bool) or each.is_default:
        return False
    return each.value < 1 and (each.name in BATCHES or (each.name in COUNTED and each.value != -1))


def count_of(node: Node | None) -> int | None:
    """A whole number that a file gives, also as text or as 4.0; None where it gives none."""
    given = None if node is None else node.scalar
    if isinstance(given, str) and WHOLE.fullmatch(given.strip()):
        return int(given)
    if isinstance(given, float) and given.is_integer() and abs(given) < 1e15:
        return int(given)
    return given if isinstance(given, int) and not isinstance(given, bool) else None


def number_of(node: Node | None) -> float | None:
    """A finite number that a file gives, also as text like 5e-5; None where it gives none."""
    given = None if node is None else node.scalar
    if given is None or isinstance(given, bool):
        return None
    try:
        number = float(given)
    except (ValueError, OverflowError):
        return None
    return number if isfinite(number) else None


def truth_of(node: Node | None) -> bool | None:
    """Whether a file says yes or no, also as text; None where it says neither."""
    given = None if node is None else node.scalar
    if isinstance(given, str) and given.strip().lower() in YES_NO:
        return YES_NO[given.strip().lower()]
    return given if isinstance(given, bool) else None


def whole(text: str) -> int | None:
    """A count that a text is as a whole: digits, and no more of them than any count has."""
    return int(text) if len(text) < 10 and text.isascii() and text.isdigit() else None


def is_open(given: object) -> bool:
    """Whether a text is filled in elsewhere: auto, a template, a variable of a shell."""
    return isinstance(given, str) and (
        given.strip() == "auto" or "{{" in given or "${" in given or given.startswith("$")
    )
