"""Arguments of transformers' Trainer as facts, for every tool that takes them. Knows no condition.

Source: transformers 5.24 training_args.py.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from escala.foreign.facts import Fact, Value, count_of, fact, number_of, truth_of
from escala.foreign.mapped import Keys, facts_in, is_on, names_of, positive, text_of
from escala.foreign.places import Node, at

ATTENTION: Final = {
    "flash_attention_2": "flash",
    "flash_attention_3": "flash",
    "flash_attention_4": "flash",
    "fa2": "flash",
    "fa3": "flash",
    "kernels-community/flash-attn2": "flash",
    "kernels-community/flash-attn3": "flash",
    "sdpa": "sdpa",
    "eager": "eager",
    "disabled": "eager",
    "flex_attention": "flex",
}
"""Names of attention kernels, those of LLaMA-Factory among them, in the field's words."""
FORMATS: Final = {
    "bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp16": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "fp32": "fp32",
}
"""Number formats by the names that torch and people give them."""
PRECISIONS: Final = ("bf16", "fp16")
CHECKPOINTING: Final = ("activation_checkpointing", "gradient_checkpointing")
"""The name since transformers 5.23, and the old one."""
FULL_SHARD: Final = ("full_shard", "hybrid_shard")
GRADIENTS: Final = ("shard_grad_op", "hybrid_shard_zero2")


def format_of(node: Node) -> str | None:
    """A number format: torch.bfloat16, bfloat16 and bf16 are the same."""
    return FORMATS.get((text_of(node) or "").rpartition(".")[2])


def attention_of(node: Node) -> str | None:
    """A kernel of attention in the field's word."""
    return ATTENTION.get((text_of(node) or "").partition("@")[0])


BATCH: Final[Keys] = {
    "per_device_train_batch_size": ("micro_batch", count_of),
    "per_gpu_train_batch_size": ("micro_batch", count_of),
    "gradient_accumulation_steps": ("accumulation", count_of),
    "per_device_eval_batch_size": ("eval_batch", positive),
    "max_steps": ("steps", positive),
    "num_train_epochs": ("epochs", number_of),
    "learning_rate": ("learning_rate", number_of),
    "optim": ("optimizer", text_of),
    "torch_compile": ("compile", truth_of),
    "use_liger_kernel": ("fused_loss", truth_of),
}
MODEL: Final[Keys] = {
    "model_name_or_path": ("model", text_of),
    "dtype": ("dtype_weights", format_of),
    "torch_dtype": ("dtype_weights", format_of),
    "attn_implementation": ("attention", attention_of),
}


def trainer_facts(node: Node) -> Iterator[Fact]:
    """What arguments of the trainer say, beside the files that they name."""
    yield from facts_in(node, BATCH)
    yield from precision(node)
    yield from recompute(node)
    yield from fsdp(node)


def precision(node: Node) -> Iterator[Fact]:
    """bf16 or fp16; both at once are refused and no fact, tf32 counts where there is neither."""
    on = [key for key in PRECISIONS if is_on(node.table.get(key))]
    if len(on) == 1:
        yield fact("precision", on[0], node.table[on[0]], on[0])
    elif not on and truth_of(node.table.get("tf32")):
        yield fact("precision", "tf32", node.table["tf32"], "tf32")


def recompute(node: Node) -> Iterator[Fact]:
    """Each block again in backward, or nothing: the trainer knows no mode between."""
    inside = _of_fsdp(node.table.get("fsdp_config"), "activation_checkpointing")
    if inside is not None and truth_of(inside) and is_on(node.table.get("fsdp")):
        yield fact("recompute", "full", inside, "fsdp_config.activation_checkpointing")
        return
    for key in CHECKPOINTING:
        given = node.table.get(key)
        if given is not None and truth_of(given) is not None:
            yield fact("recompute", "full" if truth_of(given) else "none", given, key)
            return


def fsdp(node: Node) -> Iterator[Fact]:
    """FSDP as a switch, or as the words of older versions: full_shard auto_wrap offload."""
    given = node.table.get("fsdp")
    if given is None or not is_on(given):
        return
    words = _words(given)
    config = node.table.get("fsdp_config")
    resharding = _of_fsdp(config, "reshard_after_forward")
    yield fact("zero", 3, given, "fsdp")
    yield fact("reshard", _reshards(words, resharding), resharding or given, "fsdp")
    wraps = _of_fsdp(config, "transformer_layer_cls_to_wrap")
    names = None if wraps is None else names_of(wraps)
    if wraps is not None and names:
        yield fact("wraps", names, wraps, "transformer_layer_cls_to_wrap")
    offload = _of_fsdp(config, "cpu_offload") or _of_fsdp(config, "offload_params")
    if "offload" in words or (offload is not None and truth_of(offload)):
        for name in ("offload_params", "offload_optimizer"):
            yield fact(name, "cpu", offload or given, "fsdp")


def _words(node: Node) -> tuple[str, ...]:
    if node.items:
        return tuple(str(each.scalar) for each in node.items)
    return tuple(str(node.scalar).replace(",", " ").lower().split())


def _reshards(words: tuple[str, ...], given: Node | None) -> bool:
    if given is not None:
        text = str(given.scalar).lower()
        return truth_of(given) is not False and text not in GRADIENTS
    return not any(word in GRADIENTS for word in words)


def _of_fsdp(config: Node | None, key: str) -> Node | None:
    """A key of fsdp_config, with or without the prefix fsdp_."""
    return at(config, key) or at(config, f"fsdp_{key}")


def defaults(node: Node, given: Mapping[str, tuple[str, Value]]) -> Iterator[Fact]:
    """What a tool does where keys are missing, by key: the fact and its value."""
    for key, (name, value) in given.items():
        if key not in node.table:
            yield fact(name, value, node.place, f"{key} (default)", is_default=True)


TRAINER_DEFAULTS: Final[Mapping[str, tuple[str, Value]]] = {
    "per_device_train_batch_size": ("micro_batch", 8),
    "gradient_accumulation_steps": ("accumulation", 1),
    "per_device_eval_batch_size": ("eval_batch", 8),
}
"""transformers 5.24 training_args.py, the fields of TrainingArguments."""


def adapters(
    method: str | None, node: Node, key: str, rank: Node | None, default_rank: int
) -> Iterator[Fact]:
    """Which weights are trained, and the rank of adapters."""
    if method is None:
        return
    yield fact("method", method, node, key)
    if method in ("lora", "qlora"):
        count = None if rank is None else positive(rank)
        if rank is not None and count is not None:
            yield fact("lora_rank", count, rank, "lora_r")
        elif rank is None:
            yield fact("lora_rank", default_rank, node.place, "lora rank (default)", is_default=True)
