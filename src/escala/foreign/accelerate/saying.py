"""Facts that the options of Accelerate say, whether in a file or on a launch line."""

from collections.abc import Iterator
from typing import Final

from escala.foreign.accelerate.options import Options
from escala.foreign.facts import Fact, Value, count_of, fact, is_open
from escala.foreign.places import Node

FORMATS: Final = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8-tensorwise"}
"""mixed_precision as precision; "no" leaves the format to the model, so it says nothing."""
COMM_KINDS: Final = {"allgather": "all-gather", "alltoall": "ring"}
"""How ranks of a context exchange keys and values; alltoall passes blocks around (torch context_parallel)."""
OFFLOADS: Final = {"offload_optimizer_device": "offload_optimizer", "offload_param_device": "offload_params"}
SHARDING: Final = frozenset(("fsdp_version", "fsdp_sharding_strategy", "fsdp_reshard_after_forward"))
"""Options that tell what FSDP shards."""
MEGATRON: Final = {
    "megatron_lm_tp_degree": "tp",
    "megatron_lm_pp_degree": "pp",
    "megatron_lm_context_parallel_size": "cp",
    "megatron_lm_expert_model_parallel_size": "ep",
    "megatron_lm_expert_tensor_parallel_size": "etp",
}
DEGREES: Final = ("dp_replicate", "dp_shard", "tp", "cp", "sp")
MEGATRON_CONTEXT: Final = 2
"""What Accelerate takes where megatron_lm_context_parallel_size is missing (1.15, utils/dataclasses.py)."""
ZERO_STAGE: Final = 2
"""What Accelerate takes where zero_stage is missing (1.15, utils/dataclasses.py, DeepSpeedPlugin)."""


def facts_of(options: Options, *, is_whole: bool) -> Iterator[Fact]:
    """All facts; a file is whole, so what it leaves out has the launcher's default, a line only overrides."""
    yield from _devices(options)
    precision = options.get("mixed_precision")
    if precision is not None and str(precision.value) in FORMATS:
        yield _said(options, "precision", FORMATS[str(precision.value)], "mixed_precision")
    if (options.text("dynamo_backend") or "no").lower() not in ("no", "false"):
        yield _said(options, "compile", True, "dynamo_backend")
    kind = options.kind if is_whole or options.kind is not None else _guessed(options)
    if kind == "FSDP":
        yield from _fsdp(options, is_whole)
    elif kind == "DEEPSPEED":
        yield from _deepspeed(options, is_whole)
    elif kind == "MEGATRON_LM":
        yield from _megatron(options, is_whole)
    elif kind in ("MULTI_GPU", "MULTI_XPU", "MULTI_NPU", "MULTI_HPU", "MULTI_CPU") and options.at is not None:
        yield fact("zero", 0, options.at, _name_of_kind(options))
    yield from _mesh(options)


def leaves_of(options: Options) -> tuple[str, ...]:
    """Classes that the launcher makes leaves of ZeRO-3."""
    given = options.text("deepspeed_moe_layer_cls_names")
    return tuple(each.strip() for each in given.split(",")) if given else ()


def _guessed(options: Options) -> str | None:
    """The parallelism whose options a line sets without naming it."""
    for kind, prefixes in (
        ("FSDP", ("fsdp_",)),
        ("DEEPSPEED", ("zero_stage", "offload_", "zero3_")),
        ("MEGATRON_LM", ("megatron_lm_",)),
    ):
        if any(name.startswith(prefixes) for name in options.values):
            return kind
    return None


def _said(options: Options, name: str, value: Value, key: str) -> Fact:
    node = options.get(key)
    assert node is not None
    return fact(name, value, node, options.said[key])


def _name_of_kind(options: Options) -> str:
    return "distributed_type" if "distributed_type" in options.values else "the launch line"


def _devices(options: Options) -> Iterator[Fact]:
    devices, nodes = options.count("num_processes"), options.count("num_machines")
    if devices is not None and devices > 0:
        yield _said(options, "devices", devices, "num_processes")
    if nodes is not None and nodes > 0:
        yield _said(options, "nodes", nodes, "num_machines")
        if devices is not None and devices > 0 and devices % nodes == 0:
            yield _said(options, "devices_per_node", devices // nodes, "num_processes")


def _fsdp(options: Options, is_whole: bool) -> Iterator[Fact]:
    if is_whole or SHARDING & options.values.keys():
        yield from _sharding(options)
    if options.truth("fsdp_offload_params"):
        for name in ("offload_params", "offload_optimizer"):
            yield _said(options, name, "cpu", "fsdp_offload_params")
    if options.truth("fsdp_activation_checkpointing"):
        yield _said(options, "recompute", "full", "fsdp_activation_checkpointing")
    if options.truth("fsdp_activation_checkpointing_offload"):
        yield _said(options, "offload_activations", "cpu", "fsdp_activation_checkpointing_offload")
    classes = options.get("fsdp_transformer_layer_cls_to_wrap")
    if classes is not None and not is_open(classes.value):
        names = tuple(each.strip() for each in str(classes.value).split(",") if each.strip())
        yield fact("wraps", names, classes, options.said["fsdp_transformer_layer_cls_to_wrap"])


def _sharding(options: Options) -> Iterator[Fact]:
    if options.fsdp_version == 2:
        node = options.get("fsdp_reshard_after_forward")
        place, said = _place(options, node, "fsdp_reshard_after_forward")
        if place is not None:
            yield fact("zero", 3, place, said)
            yield fact("reshard", options.truth("fsdp_reshard_after_forward") is not False, place, said)
        return
    strategy, node = options.strategy, options.get("fsdp_sharding_strategy")
    place, said = _place(options, node, "fsdp_sharding_strategy")
    if strategy is None or place is None:
        return
    if strategy == "NO_SHARD":
        yield fact("zero", 0, place, said)
        return
    yield fact("zero", 3, place, said)
    yield fact("reshard", strategy in ("FULL_SHARD", "HYBRID_SHARD"), place, said)
    devices, nodes = options.count("num_processes"), options.count("num_machines")
    if strategy.startswith("HYBRID") and devices and nodes and nodes > 1 and devices % nodes == 0:
        yield fact("shard", devices // nodes, place, said)
        yield fact("replicas", nodes, place, said)


def _place(options: Options, node: Node | None, name: str) -> tuple[Node | None, str]:
    """Where an option stands, or else the line that makes its default count."""
    if node is not None:
        return node, options.said[name]
    return options.at, _name_of_kind(options)


def _deepspeed(options: Options, is_whole: bool) -> Iterator[Fact]:
    stage, file = options.count("zero_stage"), options.get("deepspeed_config_file")
    if stage in (0, 1, 2, 3):
        yield _said(options, "zero", stage or 0, "zero_stage")
        if stage == 3:
            yield _said(options, "reshard", True, "zero_stage")
    elif is_whole and file is None and options.at is not None and "zero_stage" not in options.values:
        yield fact("zero", ZERO_STAGE, options.at, "zero_stage, by default")
    steps = options.count("gradient_accumulation_steps")
    if steps is not None and steps > 0:
        yield _said(options, "accumulation", steps, "gradient_accumulation_steps")
    for key, name in OFFLOADS.items():
        device = options.text(key)
        if device in ("none", "cpu", "nvme"):
            yield _said(options, name, device, key)


def _megatron(options: Options, is_whole: bool) -> Iterator[Fact]:
    for key, name in MEGATRON.items():
        count = options.count(key)
        if count is not None and count > 0:
            yield _said(options, name, count, key)
    if is_whole and options.at is not None:
        if options.get("megatron_lm_context_parallel_size") is None:
            yield fact("cp", MEGATRON_CONTEXT, options.at, "megatron_lm_context_parallel_size, by default")
        is_sharded = options.truth("megatron_lm_use_distributed_optimizer") is True
        yield fact("zero", int(is_sharded), *_at_optimizer(options))
        yield from _recompute(options)
    if (options.count("megatron_lm_context_parallel_size") or 1) > 1:
        yield _said(options, "cp_kind", "ring", "megatron_lm_context_parallel_size")
    if (options.count("megatron_lm_expert_model_parallel_size") or 1) > 1:  # Megatron's own default
        yield _said(options, "dispatcher", "all-gather", "megatron_lm_expert_model_parallel_size")
    is_split = options.truth("megatron_lm_sequence_parallelism")
    if is_split is not None:
        yield _said(options, "sp", is_split, "megatron_lm_sequence_parallelism")
    if options.truth("megatron_lm_optimizer_cpu_offload"):
        yield _said(options, "offload_optimizer", "cpu", "megatron_lm_optimizer_cpu_offload")
    batches = options.count("megatron_lm_num_micro_batches")
    stages = options.count("megatron_lm_pp_degree") or 1
    if stages > 1:
        yield _said(options, "schedule", "1f1b", "megatron_lm_pp_degree")
        yield _said(options, "virtual_stages", 1, "megatron_lm_pp_degree")
    elif batches is not None and batches > 0:
        yield _said(options, "accumulation", batches, "megatron_lm_num_micro_batches")


def _at_optimizer(options: Options) -> tuple[Node, str]:
    name = "megatron_lm_use_distributed_optimizer"
    node, said = _place(options, options.get(name), name)
    assert node is not None
    return node, said


def _recompute(options: Options) -> Iterator[Fact]:
    """Accelerate's default is full recompute of every layer; `block` recomputes the first ones of a stage."""
    granularity = options.text("megatron_lm_recompute_granularity") or "full"
    place, said = _place(
        options, options.get("megatron_lm_recompute_granularity"), "megatron_lm_recompute_granularity"
    )
    if place is None:
        return
    if granularity == "full" and options.text("megatron_lm_recompute_method") == "block":
        layers = options.get("megatron_lm_recompute_num_layers")
        count = count_of(layers)
        yield fact("recompute", "none" if count == 0 else "first-layers", place, said)
        if layers is not None and count:
            yield fact("recompute_layers", count, layers, options.said["megatron_lm_recompute_num_layers"])
    elif granularity in ("full", "selective"):
        yield fact("recompute", granularity, place, said)


def _mesh(options: Options) -> Iterator[Fact]:
    """Degrees of parallelism_config: states are sharded over dp_shard × cp, copies are dp_replicate."""
    prefix = "parallelism_config_"
    sizes = {name: options.count(f"{prefix}{name}_size") for name in DEGREES}
    if all(size is None for size in sizes.values()):
        return
    shard, replicate, context = (sizes[name] or 1 for name in ("dp_shard", "dp_replicate", "cp"))
    if sizes["dp_shard"] is not None:
        yield _said(options, "shard", shard * context, f"{prefix}dp_shard_size")
        yield _said(options, "dp", shard * replicate, f"{prefix}dp_shard_size")
    if sizes["dp_replicate"] is not None:
        yield _said(options, "replicas", replicate, f"{prefix}dp_replicate_size")
    if sizes["tp"] is not None:
        yield _said(options, "tp", sizes["tp"], f"{prefix}tp_size")
    if sizes["cp"] is not None and (context > 1 or (sizes["sp"] or 1) == 1):
        yield _said(options, "cp", context, f"{prefix}cp_size")
    if context > 1:
        kind = COMM_KINDS.get(options.text(f"{prefix}cp_comm_strategy") or "allgather")
        if kind is not None:
            key = f"{prefix}cp_comm_strategy"
            yield _said(options, "cp_kind", kind, key if options.get(key) is not None else f"{prefix}cp_size")
    if (sizes["sp"] or 1) > 1 and context == 1:
        yield _said(options, "cp", sizes["sp"] or 1, f"{prefix}sp_size")
        yield _said(options, "cp_kind", "ulysses", f"{prefix}sp_size")
