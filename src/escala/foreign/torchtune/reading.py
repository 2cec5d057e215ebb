"""torchtune's YAML as facts of a job. Knows its keys, and the little that has to be said of them."""

import re
from collections.abc import Iterator
from typing import Final

from escala.foreign.documents import Document, Syntax
from escala.foreign.facts import Fact, Value, count_of, fact
from escala.foreign.findings import Finding, finding, replaced
from escala.foreign.jobs import Job
from escala.foreign.places import Node, at, every
from escala.foreign.readings import Reading, Role, VersionIs

NAME: Final = "torchtune"
TITLE: Final = "torchtune"
VERSION: Final = "0.6.1"
COMPONENT: Final = "_component_"
NETWORKS: Final = {
    "llama2_7b": "llama-2-7b",
    "llama2_13b": "llama-2-13b",
    "llama2_70b": "llama-2-70b",
    "llama3_8b": "llama-3-8b",
    "llama3_70b": "llama-3-70b",
    "llama3_1_8b": "llama-3.1-8b",
    "llama3_1_70b": "llama-3.1-70b",
    "llama3_1_405b": "llama-3.1-405b",
    "llama3_2_1b": "llama-3.2-1b",
    "llama3_2_3b": "llama-3.2-3b",
    "llama3_3_70b": "llama-3.3-70b",
    "mistral_7b": "mistral-7b-v0.1",
    "gemma_2b": "gemma-2b",
    "gemma_7b": "gemma-7b",
    "gemma2_2b": "gemma-2-2b",
    "gemma2_9b": "gemma-2-9b",
    "gemma2_27b": "gemma-2-27b",
    "phi3_mini": "phi-3-mini",
    "phi4_14b": "phi-4",
    "qwen2_1_5b": "qwen2-1.5b",
    "qwen2_5_0_5b": "qwen2.5-0.5b",
    "qwen2_5_1_5b": "qwen2.5-1.5b",
    "qwen2_5_7b": "qwen2.5-7b",
    "qwen2_5_14b": "qwen2.5-14b",
    "qwen2_5_32b": "qwen2.5-32b",
    "qwen2_5_72b": "qwen2.5-72b",
}
"""Builders of torchtune.models by the names of the catalog."""
PREFIX: Final = re.compile(r"^(q?lora|dora|qdora)_")
COUNTS: Final = {
    "batch_size": "micro_batch",
    "gradient_accumulation_steps": "accumulation",
    "max_steps_per_epoch": "steps",
    "epochs": "epochs",
    "tensor_parallel_dim": "tp",
}
DTYPES: Final = {"bf16": "bf16", "fp32": "fp32", "fp16": "fp16"}
MOVED: Final = {
    "torchtune.utils.metric_logging.": "torchtune.training.metric_logging.",
    "torchtune.utils.FullModel": "torchtune.training.FullModel",
    "torchtune.utils.profiler": "torchtune.training.setup_torch_profiler",
    "torchtune.utils.setup_torch_profiler": "torchtune.training.setup_torch_profiler",
    "torchtune.modules.get_cosine_schedule_with_warmup": (
        "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup"
    ),
}
"""Beginnings of component names that 0.6.1 has no more, with what they are now."""


def score(document: Document) -> int:
    """By a component of torchtune somewhere in a YAML file."""
    if document.syntax is not Syntax.YAML or document.tree is None:
        return 0
    named = [
        node
        for path, node in every(document.tree)
        if path and path[-1] == COMPONENT and str(node.scalar).startswith("torchtune.")
    ]
    return 90 if named else 0


def read(document: Document, version: str | None) -> Reading:
    """What the document says."""
    assert document.tree is not None
    return Reading(
        tool=NAME,
        title=TITLE,
        version=version or VERSION,
        version_is=VersionIs.GIVEN if version else VersionIs.ASSUMED,
        role=Role.CONFIG,
        document=document,
        facts=tuple(_facts(document.tree)),
        engine="torchtune",
    )


def rules(job: Job, reading: Reading) -> Iterator[Finding]:
    """What has to be said of it."""
    tree = reading.document.tree
    assert tree is not None
    yield finding("torchtune-stopped", _component(tree, "model") or tree)
    for path, node in every(tree):
        if path and path[-1] == COMPONENT and isinstance(node.scalar, str):
            yield from _moved(node, node.scalar)
    yield from _sharded(job, tree)


def _moved(node: Node, name: str) -> Iterator[Finding]:
    for old, now in MOVED.items():
        if name.startswith(old):
            current = now + name[len(old) :] if now.endswith((".", "FullModel")) else now
            yield finding("torchtune-moved", node, edits=(replaced(node, current),), given=name, now=current)


def _sharded(job: Job, tree: Node) -> Iterator[Finding]:
    """What accumulation and offload cost under FSDP2."""
    steps = count_of(tree.table.get("gradient_accumulation_steps")) or 1
    if steps > 1 and (job.count("devices") or 2) > 1:
        yield finding("torchtune-accumulation", tree.table["gradient_accumulation_steps"], steps=steps)
    clip = tree.table.get("clip_grad_norm")
    clips = clip is not None and clip.value is not None
    if _is_on(tree, "optimizer_in_bwd") and (steps > 1 or clips):
        beside = f"{steps} accumulated micro-batches" if steps > 1 else "clip_grad_norm"
        yield finding("torchtune-optimizer-in-backward", tree.table["optimizer_in_bwd"], beside=beside)
    mode = tree.table.get("ac_mode")
    if mode is not None and mode.value is not None and _is_on(tree, "enable_activation_checkpointing"):
        yield finding("torchtune-recompute-twice", mode)
    if (count_of(tree.table.get("tensor_parallel_dim")) or 1) > 1:
        yield from _tensor_parallel(tree)
    fused = at(tree, "optimizer", "fused")
    offload = tree.table.get("fsdp_cpu_offload")
    if offload is not None and offload.scalar is True:
        yield finding("torchtune-offload", offload)
        if fused is None or fused.scalar is not True:
            yield finding("torchtune-offload-not-fused", at(tree, "optimizer") or offload)


def _tensor_parallel(tree: Node) -> Iterator[Finding]:
    """Tensor parallelism wants a plan, and no fused optimizer."""
    node, plan, fused = (
        tree.table["tensor_parallel_dim"],
        at(tree, "tensor_parallel_plan"),
        at(tree, "optimizer", "fused"),
    )
    if plan is None or plan.value is None:
        yield finding("torchtune-tensor-parallel", node, what="no tensor_parallel_plan")
    elif fused is not None and fused.scalar is True:
        yield finding("torchtune-tensor-parallel", fused, what="a fused optimizer")


def _facts(tree: Node) -> Iterator[Fact]:
    for key, name in COUNTS.items():
        count = count_of(tree.table.get(key))
        if count is not None and count > 0:
            yield fact(name, count, tree.table[key], key)
    yield from _model(tree)
    yield from _work(tree)
    yield fact("zero", 3, tree, "the recipe (default)", is_default=True)
    reshard = tree.table.get("fsdp_reshard_after_forward")
    where = reshard or tree
    is_kept = reshard is not None and reshard.scalar is False
    yield fact("reshard", not is_kept, where, "fsdp_reshard_after_forward", is_default=reshard is None)
    if _is_on(tree, "fsdp_cpu_offload"):
        for name in ("offload_optimizer", "offload_params"):
            yield fact(name, "cpu", tree.table["fsdp_cpu_offload"], "fsdp_cpu_offload")
    if _is_on(tree, "enable_activation_offloading"):
        key = "enable_activation_offloading"
        yield fact("offload_activations", "cpu", tree.table[key], key)
    saved, mode = tree.table.get("enable_activation_checkpointing"), tree.table.get("ac_mode")
    if saved is not None and isinstance(saved.scalar, bool) and (mode is None or mode.value is None):
        yield fact("recompute", "full" if saved.scalar else "none", saved, "enable_activation_checkpointing")
    compiled = tree.table.get("compile")
    if compiled is not None and isinstance(compiled.scalar, bool):
        yield fact("compile", compiled.scalar, compiled, "compile")


def _model(tree: Node) -> Iterator[Fact]:
    node = _component(tree, "model")
    builder = str(node.scalar).rpartition(".")[2] if node is not None else ""
    adapter = PREFIX.match(builder)
    plain = PREFIX.sub("", builder).removesuffix("_base").removesuffix("_instruct")
    if node is not None and (name := NETWORKS.get(plain)):
        yield fact("model", name, node, "model")
    if node is not None:
        method = "full" if adapter is None else "qlora" if adapter.group(1).startswith("q") else "lora"
        is_quantized = at(tree, "model", "quantize_base")
        if method == "lora" and is_quantized is not None and is_quantized.scalar is True:
            method = "qlora"
        yield fact("method", method, node, "model")
        if method == "qlora":
            yield fact("quantized_bits", 4, node, "model")
    rank = at(tree, "model", "lora_rank")
    if rank is not None and (count := count_of(rank)) is not None:
        yield fact("lora_rank", count, rank, "model.lora_rank")


def _work(tree: Node) -> Iterator[Fact]:
    length, dtype = at(tree, "tokenizer", "max_seq_len"), tree.table.get("dtype")
    if length is not None and (count := count_of(length)) is not None:
        yield fact("sequence_tokens", count, length, "tokenizer.max_seq_len")
    if dtype is not None and dtype.scalar in DTYPES:
        # weights, gradients and moments are all of this format
        yield fact("precision", DTYPES[str(dtype.scalar)], dtype, "dtype")
        yield fact("dtype_weights", DTYPES[str(dtype.scalar)], dtype, "dtype")
    packed = at(tree, "dataset", "packed")
    if packed is not None and isinstance(packed.scalar, bool):
        yield fact("packing", packed.scalar, packed, "dataset.packed")
    optimizer, rate = _component(tree, "optimizer"), at(tree, "optimizer", "lr")
    values: dict[str, tuple[Node | None, Value | None]] = {
        "optimizer": (optimizer, str(optimizer.scalar).rpartition(".")[2] if optimizer is not None else None),
        "learning_rate": (rate, _number(rate)),
    }
    for name, (node, value) in values.items():
        if node is not None and value is not None:
            yield fact(name, value, node, f"optimizer.{'lr' if name == 'learning_rate' else COMPONENT}")
    loss = _component(tree, "loss")
    if loss is not None:
        yield fact("fused_loss", "Chunked" in str(loss.scalar) or "Linear" in str(loss.scalar), loss, "loss")


def _component(tree: Node, name: str) -> Node | None:
    node = at(tree, name, COMPONENT)
    return node if node is not None and isinstance(node.scalar, str) else None


def _is_on(tree: Node, key: str) -> bool:
    return key in tree.table and tree.table[key].scalar is True


def _number(node: Node | None) -> float | None:
    """A number, also one that YAML 1.1 takes for text because it has no point: 2e-5."""
    if node is None or isinstance(node.scalar, bool):
        return None
    try:
        return float(node.scalar) if isinstance(node.scalar, str | int | float) else None
    except ValueError:
        return None
