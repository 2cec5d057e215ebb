"""Writes a plan as MaxText's YAML, which runs on TPUs and GPUs. Knows no plan that XLA cannot run."""

from typing import Final

import yaml

from escala.foreign.maxtext.names import DTYPES, MODELS, QUANTIZATIONS, REMAT, STRATEGIES
from escala.foreign.orders import ANY, Abilities, Order, OutFile, Target, header
from escala.model.plan import Compile, ContextKind, Dispatcher, Offload, Precision, Recompute
from escala.model.workload import Method

Setting = int | float | str | bool
ABILITIES: Final = Abilities(
    zero=(0, 1, 3),
    hybrid=True,
    tp=ANY,
    sp=(False, True),
    cp=ANY,
    cp_kinds=(ContextKind.ALL_GATHER, ContextKind.RING, ContextKind.ULYSSES),
    ep=ANY,
    etp=ANY,
    dispatchers=(Dispatcher.ALL_TO_ALL,),
    recompute=(Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL),
    offload_optimizer=(Offload.NONE, Offload.CPU),
    offload_params=(Offload.NONE, Offload.CPU),
    precisions=(
        Precision.FP32,
        Precision.BF16,
        Precision.FP8_TENSORWISE,
        Precision.MXFP8,
        Precision.NVFP4,
    ),
    compiles=(Compile.OFF, Compile.DEFAULT),
    fused_loss=True,
    methods=(Method.PRETRAIN,),
)
PREFERRED: Final = {
    Recompute.SELECTIVE: "minimal",
    Recompute.NONE: "minimal_with_context",
    Recompute.FULL: "full",
}
GPU_QUANTIZATIONS: Final = {
    Precision.FP8_TENSORWISE: "te_fp8_currentscaling",
    Precision.MXFP8: "te_mxfp8",
    Precision.NVFP4: "te_nvfp4",
}
TILES: Final = 8
"""Parts in which the logits are made where the loss is fused."""
assert all(REMAT[word] is mode for mode, word in PREFERRED.items())
assert all(QUANTIZATIONS[word] is form for form, word in GPU_QUANTIZATIONS.items())


def _beyond(order: Order) -> list[str]:
    """Models that MaxText has no settings for, and axes that it puts together otherwise."""
    plan, reasons = order.plan, []
    if _model(order) is None:
        name = order.problem.workload.network.name
        reasons.append(f"the model {name}: it has no settings for it")
    if plan.zero == 3 and (plan.dp * plan.cp) % max(plan.shard, 1):
        reasons.append(f"shards over {plan.shard} of {plan.dp} × {plan.cp} replicas")
    if plan.zero == 3 and plan.cp * plan.ep > 1 and plan.shard % (plan.cp * plan.ep):
        reasons.append("shards over less than the axes of context and experts, which always shard weights")
    if plan.zero < 3 and plan.cp * plan.ep > 1:
        reasons.append(f"ZeRO stage {plan.zero} with context or experts, whose axes shard weights")
    if plan.ep > 1 and plan.etp != plan.tp:
        reasons.append(f"experts over {plan.etp} ranks of TP {plan.tp}: theirs are those of all layers")
    if plan.dp % plan.ep:
        reasons.append(f"experts over {plan.ep} of {plan.dp} data parallel ranks")
    return reasons


TARGET: Final = Target(
    name="maxtext",
    title="MaxText",
    version="0.2.5",
    abilities=ABILITIES,
    launch="python3 -m maxtext.trainers.pre_train.train config.yml",
    page="docs/targets/maxtext.md",
    engine="maxtext",
    also=_beyond,
)


def _model(order: Order) -> str | None:
    wanted = order.problem.workload.network.name
    return next((name for name, ours in MODELS.items() if ours == wanted), None)


def write(order: Order) -> list[OutFile]:
    """One file of settings, on top of MaxText's own."""
    settings = {**_task(order), **_mesh(order), **_memory(order)}
    text = header(TARGET, order) + yaml.safe_dump(settings, sort_keys=False)
    return [OutFile(name="config.yml", text=text)]


def _task(order: Order) -> dict[str, Setting]:
    model, work = _model(order), order.problem.workload
    assert model is not None
    return {
        "base_config": "base.yml",
        "run_name": f"escala-{order.digest}",
        "base_output_directory": "maxtext_output",
        "hardware": "gpu" if _is_gpu(order) else "tpu",
        "model_name": model,
        "dataset_type": "hf",
        "hf_path": order.data,
        "tokenizer_type": "huggingface",
        "tokenizer_path": order.model,
        "max_target_length": work.sequence_tokens,
        "steps": order.steps,
        "learning_rate": order.learning_rate,
        "opt_type": "adamw",
    }


def _is_gpu(order: Order) -> bool:
    return "tpu" not in order.problem.accelerator.name.lower()


def _mesh(order: Order) -> dict[str, Setting]:
    """Axes inside a slice; samples are counted for each device, also for those that share one."""
    plan = order.plan
    sharded = plan.shard if plan.zero == 3 else 1
    replicas = plan.dp * plan.cp // sharded
    found: dict[str, Setting] = {
        "dcn_data_parallelism": 1,
        "ici_data_parallelism": replicas,
        "ici_fsdp_parallelism": sharded // (plan.cp * plan.ep) if plan.zero == 3 else 1,
        "ici_tensor_parallelism": 1 if plan.sp else plan.tp,
        "ici_tensor_sequence_parallelism": plan.tp if plan.sp else 1,
        "ici_context_parallelism": plan.cp,
        "ici_expert_parallelism": plan.ep,
        "per_device_batch_size": _plain(plan.micro_batch / (plan.tp * plan.cp)),
        "gradient_accumulation_steps": plan.micro_batches,
    }
    if plan.cp > 1:
        found["context_parallel_strategy"] = next(n for n, each in STRATEGIES.items() if each is plan.cp_kind)
    if plan.zero == 1:
        found["shard_optimizer_over_data"] = True
    return found


def _plain(number: float) -> int | float:
    return int(number) if number.is_integer() else number


def _memory(order: Order) -> dict[str, Setting]:
    plan = order.plan
    quantized = plan.precision not in DTYPES.values()
    form = Precision.BF16 if quantized else plan.precision
    found: dict[str, Setting] = {
        "dtype": next(name for name, each in DTYPES.items() if each is form),
        "weight_dtype": "float32",
        "remat_policy": PREFERRED[plan.recompute],
    }
    if quantized:
        found["quantization"] = GPU_QUANTIZATIONS[plan.precision] if _is_gpu(order) else "fp8_full"
    if plan.fused_loss:
        found["num_vocab_tiling"] = TILES
    if plan.offload_optimizer is Offload.CPU:
        found["optimizer_memory_host_offload"] = True
    if plan.offload_params is Offload.CPU:
        found["parameter_memory_host_offload"] = True
    return found
