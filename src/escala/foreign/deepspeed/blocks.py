"""Which blocks of a DeepSpeed file do not go together, and which cost more than they look."""

from collections.abc import Iterator
from typing import Final

from escala.foreign.facts import count_of, number_of
from escala.foreign.findings import Edit, Finding, finding, replaced
from escala.foreign.jobs import Job
from escala.foreign.modules import families, family_of
from escala.foreign.places import Node, at
from escala.foreign.readings import Reading
from escala.foreign.versions import is_before

OPTIMIZERS: Final = ("adagrad", "adam", "adamw", "lamb", "muadam", "muadamw", "musgd", "lion", "muon")
ON_CPU: Final = frozenset(("adam", "adamw", "adagrad", "lion"))
"""Optimizers that DeepSpeed has a CPU kernel for (runtime/engine.py, _configure_basic_optimizer)."""
SCHEDULERS: Final = ("LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR")
ADAM_STATES: Final = 4
LARGE_BUCKET: Final = 5e8
SMALL_BUCKET: Final = 1e6
IN_FLIGHT: Final = 4.5
"""Buckets that overlap_comm holds at once (transformers' page on DeepSpeed)."""
HALF_BYTES: Final = 2
DEFAULT_LEAVES: Final = frozenset(("mixtral", "qwen2_moe", "qwen3_moe"))
"""Families whose expert blocks are leaves by default (deepspeed 0.19.8, zero/leaf_module_config.py)."""
VERSION: Final = "0.19.8"
LEAVES: Final = "leaf_modules"
"""Under this name a launcher's reading keeps the leaves that it sets."""
NEEDS: Final = (
    ("fp16.fp16_master_weights_and_grads", "a ZeRO stage of 1, 2 or 3", (1, 2, 3)),
    ("bf16.bf16_master_weights_and_grads", "a ZeRO stage of 1, 2 or 3", (1, 2, 3)),
    ("bf16.bf16_optimizer_states", "a ZeRO stage of 1, 2 or 3", (1, 2, 3)),
    ("zero_optimization.offload_optimizer.super_offload", "ZeRO stage 3", (3,)),
    ("zero_optimization.zero_quantized_weights", "ZeRO stage 3", (3,)),
    ("zero_optimization.zero_quantized_nontrainable_weights", "ZeRO stage 3", (3,)),
    ("zero_optimization.zero_quantized_gradients", "ZeRO stage 3", (3,)),
)
"""Switches that need a stage (deepspeed 0.19.8 runtime/config.py _do_error_check, zero/config.py)."""


def findings(job: Job, reading: Reading, tree: Node) -> Iterator[Finding]:
    """All of them."""
    yield from _formats(tree)
    block = tree.table.get("zero_optimization")
    stage = count_of(at(block, "stage")) or 0
    yield from _offload(block, stage)
    yield from _nvme(block)
    yield from _buckets(block, stage)
    yield from _needs(tree, stage)
    yield from _optimizer(tree, block)
    if stage == 3:
        yield from _stage_three(job, reading, tree)
    if stage >= 2:
        yield from _reduced_often(job, tree, stage)
    yield from _experts(tree, stage)
    yield from _recompute(job, tree)


def _is_on(node: Node | None) -> bool:
    return node is not None and node.scalar is True


def _formats(tree: Node) -> Iterator[Finding]:
    half, brain, old = (tree.table.get(name) for name in ("fp16", "bf16", "bfloat16"))
    if brain is not None and old is not None:
        yield finding("deepspeed-two-bf16", old, line=brain.entry.line)
    chosen = brain if brain is not None else old
    if chosen is not None and _is_on(at(half, "enabled")) and _is_on(at(chosen, "enabled")):
        yield finding("deepspeed-two-formats", chosen, line=half.entry.line if half is not None else 0)


def _offload(block: Node | None, stage: int) -> Iterator[Finding]:
    params, states = at(block, "offload_param"), at(block, "offload_optimizer")
    if params is not None and stage < 3 and _device(params) != "none":
        yield finding("deepspeed-offload-param-stage", params, stage=stage, edits=_stage_three_edit(block))
    if states is not None and stage < 1 and _device(states) != "none":
        yield finding("deepspeed-offload-optimizer-stage", states)
    ratio = at(states, "ratio")
    if ratio is not None and stage < 3 and (share := number_of(ratio)) is not None and share < 1:
        key = "offload_optimizer.ratio"
        yield finding("deepspeed-needs-stage", ratio, key=key, wanted="ZeRO stage 3", stage=stage)


def _device(offload: Node) -> object:
    """Where to; "none" is the default."""
    device = at(offload, "device")
    return "none" if device is None else device.scalar


def _stage_three_edit(block: Node | None) -> tuple[Edit, ...]:
    node = at(block, "stage")
    return (replaced(node, "3"),) if node is not None else ()


def _nvme(block: Node | None) -> Iterator[Finding]:
    for name in ("offload_param", "offload_optimizer"):
        offload = at(block, name)
        if offload is None or _device(offload) != "nvme":
            continue
        path = at(offload, "nvme_path")
        if path is None or path.scalar is None:
            yield finding("deepspeed-nvme-path", offload, key=name)
        buffers = at(offload, "buffer_count")
        count = count_of(buffers)
        if name == "offload_optimizer" and buffers is not None and count is not None and count < ADAM_STATES:
            yield finding("deepspeed-nvme-buffers", buffers, count=count, states=ADAM_STATES)


def _buckets(block: Node | None, stage: int) -> Iterator[Finding]:
    if stage not in (1, 2, 3) or not _is_on(at(block, "overlap_comm")):
        return
    node = at(block, "reduce_bucket_size")
    size = number_of(node)
    if node is not None and size is not None and 0 < size < SMALL_BUCKET:
        kilobytes = f"{size * HALF_BYTES / 1e3:,.0f}"
        yield finding("deepspeed-small-bucket", node, elements=f"{size:,.0f}", kilobytes=kilobytes)
    if stage < 3 and (size is None or size >= LARGE_BUCKET):
        each = size or LARGE_BUCKET
        gigabytes = each * HALF_BYTES * 2 * IN_FLIGHT / 1e9
        place = node if node is not None else at(block, "overlap_comm")
        yield finding(
            "deepspeed-overlap-buckets", place, elements=f"{each:.1e}", gigabytes=f"{gigabytes:.1f}"
        )


def _needs(tree: Node, stage: int) -> Iterator[Finding]:
    for path, wanted, stages in NEEDS:
        node = at(tree, *path.split("."))
        if node is not None and _is_on(node) and stage not in stages:
            yield finding("deepspeed-needs-stage", node, key=path, wanted=wanted, stage=stage)
    states = at(tree, "bf16", "bf16_optimizer_states")
    master = at(tree, "bf16", "bf16_master_weights_and_grads")
    if states is not None and _is_on(states) and not _is_on(master):
        yield finding(
            "deepspeed-needs-stage",
            states,
            key="bf16.bf16_optimizer_states",
            wanted="bf16_master_weights_and_grads: true",
            stage=stage,
        )
    total = tree.table.get("gradient_allreduce_op")
    if stage == 3 and total is not None and str(total.scalar).lower() == "sum":
        key = "gradient_allreduce_op: sum"
        yield finding("deepspeed-needs-stage", total, key=key, wanted="a ZeRO stage below 3", stage=3)
    pipeline = at(tree, "pipeline", "stages")
    if pipeline is not None and stage >= 2 and (count_of(pipeline) or 1) > 1:
        yield finding("deepspeed-pipeline-zero", pipeline, stage=stage)


def _optimizer(tree: Node, block: Node | None) -> Iterator[Finding]:
    clip = at(tree, "optimizer", "params", "max_grad_norm")
    if clip is not None:
        yield finding("deepspeed-max-grad-norm", clip)
    kind = at(tree, "optimizer", "type")
    name = str(kind.scalar).lower() if kind is not None and isinstance(kind.value, str) else None
    states = at(block, "offload_optimizer")
    forced = tree.table.get("zero_force_ds_cpu_optimizer")
    offloaded = states is not None and _device(states) in ("cpu", "nvme")
    is_forced = forced is None or forced.scalar is not False
    if kind is not None and name in OPTIMIZERS and name not in ON_CPU and offloaded and is_forced:
        yield finding("deepspeed-offload-optimizer-kind", kind, kind=name)
    scheduler = at(tree, "scheduler", "type")
    if scheduler is not None and isinstance(scheduler.value, str):
        same = next((each for each in SCHEDULERS if each.lower() == scheduler.value.lower()), None)
        if same is not None and same != scheduler.value:
            edit = replaced(scheduler, f'"{same}"')
            yield finding(
                "deepspeed-scheduler-case", scheduler, edits=(edit,), given=scheduler.value, same=same
            )


def _stage_three(job: Job, reading: Reading, tree: Node) -> Iterator[Finding]:
    block = tree.table["zero_optimization"]
    gather = at(block, "stage3_gather_16bit_weights_on_model_save")
    old = at(block, "stage3_gather_fp16_weights_on_model_save")
    if not _is_on(gather) and not _is_on(old) and not (gather is not None and gather.scalar == "auto"):
        yield finding("deepspeed-gather-on-save", gather if gather is not None else at(block, "stage"))
    copy = at(block, "zero_hpz_partition_size")
    ranks = count_of(copy) or 1
    if copy is not None and ranks > 1:
        yield finding("deepspeed-hpz-memory", copy, ranks=ranks)
        for offload in (at(block, name) for name in ("offload_param", "offload_optimizer")):
            if offload is not None and _device(offload) != "none":
                yield finding("deepspeed-hpz-offload", offload)
        per_node = job.count("devices_per_node")
        if per_node is not None and ranks > per_node:
            yield finding("deepspeed-hpz-nodes", copy, ranks=ranks, per_node=per_node)
    tensor = at(tree, "tensor_parallel", "autotp_size")
    if tensor is not None and (count_of(tensor) or 0) > 1 and is_before(reading.version, "0.19.3"):
        yield finding("deepspeed-tensor-zero-3", tensor, version=reading.version)
    yield from _leaves(job, reading, block)


def _leaves(job: Job, reading: Reading, block: Node) -> Iterator[Finding]:
    """Experts of a model that are no leaves for ZeRO-3."""
    model = job.value("model")
    family = family_of(str(model)) if model is not None else None
    experts = families()[family].experts if family is not None else ()
    classes = at(block, "leaf_module", "classes")
    is_default = family in DEFAULT_LEAVES and classes is None and not is_before(reading.version, VERSION)
    leaves = at(block, "leaf_module")
    named = [str(each.value) for each in _names(leaves)] if leaves is not None else []
    is_named = any(name in text for name in experts for text in named)
    is_launched = any(LEAVES in other.extra for other in job.readings)
    if experts and not (is_default or is_named or is_launched):
        yield finding("deepspeed-moe-leaves", at(block, "stage"), model=model, experts=", ".join(experts))


def _names(node: Node) -> Iterator[Node]:
    for each in node.table.values():
        yield from each.items or [each]


def _reduced_often(job: Job, tree: Node, stage: int) -> Iterator[Finding]:
    node = tree.table.get("gradient_accumulation_steps")
    steps = count_of(node)
    if node is not None and steps is not None and steps > 1:
        nodes = job.count("nodes")
        where = f" over {nodes} nodes" if nodes is not None and nodes > 1 else ""
        yield finding("deepspeed-reduces-each", node, stage=stage, steps=steps, where=where)


def _experts(tree: Node, stage: int) -> Iterator[Finding]:
    """What expert parallelism refuses (deepspeed 0.19.8, runtime/engine.py and auto_ep_folding.py)."""
    block = tree.table.get("expert_parallel")
    size = at(block, "autoep_size")
    if block is None or not _is_on(at(block, "enabled")):
        return
    etp = at(block, "expert_tensor_parallel_size")
    if etp is not None and (count_of(etp) or 1) > 1:
        yield finding("deepspeed-experts-refuse", etp, other="expert_tensor_parallel_size above 1")
    tensor = at(tree, "tensor_parallel", "autotp_size")
    if tensor is not None and (count_of(tensor) or 0) > 1 and (count_of(size) or 1) == 1:
        yield finding("deepspeed-experts-refuse", tensor, other="autotp_size with autoep_size 1")
    if stage != 3:
        return
    zero = tree.table["zero_optimization"]
    copy, quantized = at(zero, "zero_hpz_partition_size"), at(zero, "zero_quantized_gradients")
    if copy is not None and (count_of(copy) or 1) > 1:
        yield finding("deepspeed-experts-refuse", copy, other="zero_hpz_partition_size above 1 in stage 3")
    if quantized is not None and _is_on(quantized):
        yield finding("deepspeed-experts-refuse", quantized, other="zero_quantized_gradients in stage 3")
    length = tree.table.get("sequence_parallel_size")
    if length is not None and (count_of(length) or 1) > 1:
        yield finding("deepspeed-experts-refuse", length, other="sequence parallelism in stage 3")


def _recompute(job: Job, tree: Node) -> Iterator[Finding]:
    block = tree.table.get("activation_checkpointing")
    if (
        block is not None
        and job.value("recompute") is None
        and job.reads("transformers", "trl", "accelerate")
    ):
        yield finding("deepspeed-checkpointing-unused", block)
