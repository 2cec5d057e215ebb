"""NeMo AutoModel's YAML as facts of a job. Knows no rule."""

from collections.abc import Iterator
from math import prod
from typing import Final

from escala.foreign.automodel.rules import rules_of, strategy_of
from escala.foreign.documents import Document, Syntax
from escala.foreign.facts import Fact, count_of, fact
from escala.foreign.findings import Finding
from escala.foreign.jobs import Job
from escala.foreign.keys import KeyCheck, table
from escala.foreign.places import Node, at, every
from escala.foreign.readings import Reading, Role, VersionIs

NAME: Final = "automodel"
TITLE: Final = "NeMo AutoModel"
VERSION: Final = "0.7.0"
PACKAGE: Final = "nemo_automodel."
SIZES: Final = {"tp_size": "tp", "pp_size": "pp", "cp_size": "cp", "ep_size": "ep"}
ZERO: Final = {"fsdp2": 3, "ddp": 0}
DTYPES: Final = {
    **dict.fromkeys(("bf16", "bfloat16", "torch.bfloat16"), "bf16"),
    **dict.fromkeys(("fp16", "float16", "torch.float16"), "fp16"),
    **dict.fromkeys(("fp32", "float32", "torch.float32"), "fp32"),
}
FP8: Final = {"tensorwise": "fp8-tensorwise", "rowwise": "fp8-rowwise", "rowwise_with_gw_hp": "fp8-rowwise"}
FULL: Final = (True, "full", "true", "on", "enabled", "yes")
SCHEDULES: Final = {"1f1b": "1f1b", "gpipe": "gpipe", "interleaved1f1b": "interleaved"}
DISPATCHERS: Final = {"torch": "all-gather", "deepep": "fused", "hybridep": "fused", "uccl_ep": "fused"}
FUSED: Final = ("FusedLinearCrossEntropy", "ChunkedCrossEntropy")

HYDRA: Final = frozenset(("_target_", "_recursive_", "_convert_"))
"""Keys of the loader, which it takes out of every block."""


def score(document: Document) -> int:
    """Certain where a component of its package is named, likely with its scheduler of steps."""
    tree = document.tree
    if tree is None or document.syntax is not Syntax.YAML or not tree.table:
        return 0
    steps = at(tree, "step_scheduler", "local_batch_size")
    if steps is None and "distributed" not in tree.table and "recipe" not in tree.table:
        return 0
    named = any(isinstance(each.scalar, str) and each.scalar.startswith(PACKAGE) for _, each in every(tree))
    return 95 if named else 60 if steps is not None else 0


def read(document: Document, version: str | None) -> Reading:
    """What the document says."""
    tree = document.tree
    assert tree is not None
    return Reading(
        tool=NAME,
        title=TITLE,
        version=version or VERSION,
        version_is=VersionIs.GIVEN if version else VersionIs.ASSUMED,
        role=Role.CONFIG,
        document=document,
        facts=tuple(_facts(tree)),
        findings=tuple(KeyCheck(table=table(NAME), tool=TITLE, ignored=HYDRA).findings(tree)),
        engine="automodel",
    )


def rules(job: Job, reading: Reading) -> Iterator[Finding]:
    """What is wrong with it."""
    tree = reading.document.tree
    assert tree is not None
    return rules_of(job, tree)


def _facts(tree: Node) -> Iterator[Fact]:
    yield from _batch(tree)
    yield from _task(tree)
    yield from _axes(tree)
    yield from _states(tree)
    yield from _numbers(tree)


def _said(tree: Node, what: str, value: str | int | float | bool | None, *paths: str) -> Iterator[Fact]:
    """A fact at the first of the dotted paths that is there."""
    for path in paths:
        node = at(tree, *path.split("."))
        if node is not None and value is not None:
            yield fact(what, value, node, path)
            return


def _batch(tree: Node) -> Iterator[Fact]:
    local, batch, steps = (
        count_of(at(tree, "step_scheduler", key))
        for key in ("local_batch_size", "global_batch_size", "max_steps")
    )
    parts = count_of(at(tree, "distributed", "pipeline", "pp_microbatch_size"))
    stages = count_of(at(tree, "distributed", "pp_size")) or 1
    path = "distributed.pipeline.pp_microbatch_size"
    if stages > 1:
        yield from _said(tree, "micro_batch", parts, path)
    else:
        yield from _said(tree, "micro_batch", local, "step_scheduler.local_batch_size")
    yield from _said(tree, "global_batch", batch, "step_scheduler.global_batch_size")
    yield from _said(tree, "steps", steps, "step_scheduler.max_steps")
    epochs = count_of(at(tree, "step_scheduler", "num_epochs"))
    yield from _said(tree, "epochs", None if steps else epochs, "step_scheduler.num_epochs")
    lengths = ("packed_sequence.packed_sequence_size", "dataset.seq_length", "dataset.seq_len")
    for path in lengths:
        length = count_of(at(tree, *path.split(".")))
        if length:
            yield from _said(tree, "sequence_tokens", length, path)
            return


def _task(tree: Node) -> Iterator[Fact]:
    for path in ("model.pretrained_model_name_or_path", "model.config.pretrained_model_name_or_path"):
        node = at(tree, *path.split("."))
        if node is not None and isinstance(node.scalar, str):
            yield fact("model", node.scalar, node, path)
            break
    target = at(tree, "model", "_target_")
    bits = 4 if _is_true(at(tree, "quantization", "load_in_4bit")) else None
    bits = 8 if bits is None and _is_true(at(tree, "quantization", "load_in_8bit")) else bits
    if "peft" in tree.table:
        yield from _said(tree, "method", "qlora" if bits == 4 else "lora", "peft")
        yield from _said(tree, "lora_rank", count_of(at(tree, "peft", "dim")), "peft.dim")
    elif target is not None and isinstance(target.scalar, str):
        method = "pretrain" if target.scalar.endswith("from_config") else "full"
        yield from _said(tree, "method", method, "model._target_")
    yield from _said(tree, "quantized_bits", bits, "quantization.load_in_4bit", "quantization")
    rate = at(tree, "optimizer", "lr")
    if rate is not None and isinstance(rate.scalar, int | float):
        yield fact("learning_rate", float(rate.scalar), rate, "optimizer.lr")
    kind = at(tree, "optimizer", "_target_")
    if kind is not None and isinstance(kind.scalar, str):
        yield fact("optimizer", kind.scalar.rpartition(".")[2], kind, "optimizer._target_")
    loss = at(tree, "loss_fn", "_target_")
    if loss is not None and isinstance(loss.scalar, str):
        yield fact("fused_loss", loss.scalar.endswith(FUSED), loss, "loss_fn._target_")


def _is_true(node: Node | None) -> bool:
    return node is not None and node.scalar is True


def _axes(tree: Node) -> Iterator[Fact]:
    block = tree.table.get("distributed")
    sizes = {name: count_of(at(block, key)) for key, name in SIZES.items()}
    for key, name in SIZES.items():
        yield from _said(tree, name, sizes[name], f"distributed.{key}")
    data, replicas = count_of(at(block, "dp_size")), count_of(at(block, "dp_replicate_size"))
    yield from _said(tree, "dp", data, "distributed.dp_size")
    inner = prod(sizes[name] or 1 for name in ("tp", "pp", "cp"))
    yield from _said(tree, "devices", None if data is None else data * inner, "distributed.dp_size")
    if replicas and replicas > 1:
        yield from _said(tree, "replicas", replicas, "distributed.dp_replicate_size")
        shard = None if data is None else data * (sizes["cp"] or 1) // replicas
        yield from _said(tree, "shard", shard, "distributed.dp_replicate_size")
    if (sizes["tp"] or 1) > 1:
        on = _is_true(at(block, "sequence_parallel"))
        yield from _said(tree, "sp", on, "distributed.sequence_parallel", "distributed.tp_size")
    if (sizes["cp"] or 1) > 1:
        yield from _said(tree, "cp_kind", "all-gather", "distributed.cp_size")
    if (sizes["ep"] or 1) > 1:
        yield from _said(tree, "etp", 1, "distributed.ep_size")
        way = at(tree, "model", "backend", "dispatcher")
        known = DISPATCHERS.get(str(way.scalar)) if way is not None else None
        yield from _said(tree, "dispatcher", known, "model.backend.dispatcher")
    if (sizes["pp"] or 1) > 1:
        yield from _pipeline(tree)


def _pipeline(tree: Node) -> Iterator[Fact]:
    node = at(tree, "distributed", "pipeline", "pp_schedule")
    kind = SCHEDULES.get(str(node.scalar).lower() if node is not None else "1f1b")
    where = ("distributed.pipeline.pp_schedule", "distributed.pipeline", "distributed.pp_size")
    yield from _said(tree, "schedule", kind, *where)
    if kind in ("1f1b", "gpipe"):
        yield from _said(tree, "virtual_stages", 1, *where)


def _states(tree: Node) -> Iterator[Fact]:
    strategy, where = strategy_of(tree), ("distributed.strategy", "distributed")
    level = count_of(at(tree, "distributed", "zero_dp_strategy"))
    stage = ZERO.get(strategy, 3 if level is None else level) if strategy != "none" else None
    yield from _said(tree, "zero", stage, *where)
    if stage == 3:
        kept = at(tree, "distributed", "reshard_after_forward")
        stages = count_of(at(tree, "distributed", "pp_size")) or 1
        said = kept.scalar if kept is not None and isinstance(kept.scalar, bool) else stages == 1
        yield from _said(tree, "reshard", said, "distributed.reshard_after_forward", *where)
    if at(tree, "distributed", "offload_policy") is not None:
        for what in ("offload_optimizer", "offload_params"):
            yield from _said(tree, what, "cpu", "distributed.offload_policy")
    yield from _recompute(tree)


def _recompute(tree: Node) -> Iterator[Fact]:
    path = "distributed.activation_checkpointing"
    node = at(tree, *path.split("."))
    value = node.scalar if node is not None else False
    word = value.lower() if isinstance(value, str) else value
    said = "selective" if word == "selective" else "full" if word in FULL else "none"
    yield from _said(tree, "recompute", said, path, "distributed")
    compiled = _is_true(at(tree, "compile", "enabled")) or _is_true(at(tree, "distributed", "enable_compile"))
    where = ("compile.enabled", "distributed.enable_compile")
    yield from _said(tree, "compile", compiled, *where)


def _numbers(tree: Node) -> Iterator[Fact]:
    kind = at(tree, "fp8", "recipe_name")
    if _is_true(at(tree, "fp8", "enabled")):
        known = FP8.get(str(kind.scalar) if kind is not None else "tensorwise")
        yield from _said(tree, "precision", known, "fp8.recipe_name", "fp8.enabled")
    else:
        given = at(tree, "distributed", "mp_policy", "param_dtype")
        computed = DTYPES.get(str(given.scalar)) if given is not None else "bf16"
        where = ("distributed.mp_policy.param_dtype", "distributed", "model")
        yield from _said(tree, "precision", computed, *where)
    weights = at(tree, "model", "torch_dtype")
    if weights is not None and isinstance(weights.scalar, str):
        yield fact("dtype_weights", weights.scalar, weights, "model.torch_dtype")
