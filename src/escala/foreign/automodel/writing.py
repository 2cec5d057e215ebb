"""Writes a plan as a recipe of NeMo AutoModel. Knows no plan that its strategies cannot run."""

from typing import Any, Final

import yaml

from escala.foreign.orders import ANY, Abilities, Order, OutFile, Target, header
from escala.model.plan import Compile, ContextKind, Dispatcher, Offload, Precision, Recompute, Schedule
from escala.model.workload import Method

Settings = dict[str, Any]
ABILITIES: Final = Abilities(
    zero=(0, 1, 2, 3),
    no_reshard=True,
    hybrid=True,
    tp=ANY,
    sp=(False, True),
    pp=ANY,
    schedules=(Schedule.GPIPE, Schedule.ONE_F_ONE_B),
    cp=ANY,
    cp_kinds=(ContextKind.ALL_GATHER,),
    ep=ANY,
    dispatchers=(Dispatcher.ALL_GATHER, Dispatcher.FUSED),
    recompute=(Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL),
    offload_optimizer=(Offload.NONE, Offload.CPU),
    offload_params=(Offload.NONE, Offload.CPU),
    precisions=(Precision.FP32, Precision.BF16, Precision.FP8_TENSORWISE, Precision.FP8_ROWWISE),
    compiles=(Compile.OFF, Compile.DEFAULT),
    fused_loss=True,
    methods=(Method.PRETRAIN, Method.FULL, Method.LORA, Method.QLORA),
)
FP8: Final = {Precision.FP8_TENSORWISE: "tensorwise", Precision.FP8_ROWWISE: "rowwise"}
SCHEDULES: Final = {Schedule.GPIPE: "GPipe", Schedule.ONE_F_ONE_B: "1F1B"}
DATA: Final = "nemo_automodel.components.datasets.llm"
MODEL: Final = "nemo_automodel.NeMoAutoModelForCausalLM"
COLUMNS: Final = "# column_mapping names the columns of the data set: change it to those that yours has\n"


def _beyond(order: Order) -> list[str]:
    """What only one of its strategies has, beside what the others have."""
    plan, reasons = order.plan, []
    if plan.zero == 0 and plan.tp * plan.cp * plan.pp * plan.ep > 1:
        reasons.append("replicated weights (strategy ddp) with tensor, context, pipeline or experts")
    if plan.zero in (1, 2) and (plan.pp * plan.ep > 1 or 1 < plan.shard < plan.dp * plan.cp):
        reasons.append(f"ZeRO stage {plan.zero} (strategy megatron_fsdp) with pipeline, experts or HSDP")
    if plan.zero in (1, 2) and plan.recompute is Recompute.SELECTIVE:
        reasons.append(f"selective recompute with ZeRO stage {plan.zero} (strategy megatron_fsdp)")
    if plan.offload_optimizer is not plan.offload_params:
        reasons.append("optimizer or weights offloaded alone: CPUOffloadPolicy takes both")
    if plan.offload_optimizer is not Offload.NONE and plan.zero != 3:
        reasons.append("offload without ZeRO stage 3")
    if plan.dp * plan.cp * plan.tp % plan.ep:
        reasons.append(f"experts over {plan.ep} of {plan.dp * plan.cp * plan.tp} ranks")
    return reasons


TARGET: Final = Target(
    name="automodel",
    title="NeMo AutoModel",
    version="0.7.0",
    abilities=ABILITIES,
    launch="automodel config.yaml --nproc-per-node {devices_per_node}",
    launch_nodes=(
        "torchrun --nnodes {nodes} --nproc-per-node {devices_per_node} --node-rank $NODE_RANK"
        " --master-addr $MASTER_ADDR --master-port $MASTER_PORT -m nemo_automodel.cli.app config.yaml"
    ),
    page="docs/targets/automodel.md",
    engine="automodel",
    also=_beyond,
)


def write(order: Order) -> list[OutFile]:
    """One recipe."""
    is_pretrain = order.problem.workload.method is Method.PRETRAIN
    settings = {
        "recipe": "TrainFinetuneRecipeForNextTokenPrediction",
        "seed": 1234,
        **_steps(order),
        **_model(order),
        "distributed": _distributed(order),
        **_speed(order),
        **_data(order),
    }
    text = header(TARGET, order) + ("" if is_pretrain else COLUMNS)
    return [OutFile(name="config.yaml", text=text + yaml.safe_dump(settings, sort_keys=False))]


def _steps(order: Order) -> Settings:
    plan = order.plan
    local = plan.micro_batch * (plan.micro_batches if plan.pp > 1 else 1)
    return {
        "step_scheduler": {
            "global_batch_size": order.problem.workload.global_batch,
            "local_batch_size": local,
            "max_steps": order.steps,
            "ckpt_every_steps": max(order.steps // 10, 1),
        },
        "dist_env": {"backend": "nccl", "timeout_minutes": 10},
    }


def _model(order: Order) -> Settings:
    """The model, with adapters and 4 bits where the method has them."""
    work = order.problem.workload
    dtype = "float32" if work.method in (Method.PRETRAIN, Method.FULL) else "bfloat16"
    if work.method is Method.PRETRAIN:
        config = {
            "_target_": "transformers.AutoConfig.from_pretrained",
            "pretrained_model_name_or_path": order.model,
        }
        model: Settings = {"_target_": f"{MODEL}.from_config", "config": config, "torch_dtype": dtype}
    else:
        model = {
            "_target_": f"{MODEL}.from_pretrained",
            "pretrained_model_name_or_path": order.model,
            "torch_dtype": dtype,
        }
    if order.plan.ep > 1:
        fused = order.plan.dispatcher is Dispatcher.FUSED
        backend = "nemo_automodel.components.models.common.BackendConfig"
        model["backend"] = {"_target_": backend, "dispatcher": "deepep" if fused else "torch"}
    return {"model": model, **_adapters(order)}


def _adapters(order: Order) -> Settings:
    lora, method = order.problem.workload.lora, order.problem.workload.method
    if lora is None:
        return {}
    peft = {
        "_target_": "nemo_automodel.components._peft.lora.PeftConfig",
        "match_all_linear": True,
        "dim": lora.rank,
        "alpha": 2 * lora.rank,
    }
    four = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": "bfloat16"}
    return {"peft": peft} if method is Method.LORA else {"peft": peft, "quantization": four}


def _distributed(order: Order) -> Settings:
    plan = order.plan
    found: Settings = {
        "strategy": {0: "ddp", 3: "fsdp2"}.get(plan.zero, "megatron_fsdp"),
        "dp_size": plan.dp,
        "tp_size": plan.tp,
        "pp_size": plan.pp,
        "cp_size": plan.cp,
        "ep_size": plan.ep,
    }
    if plan.zero in (1, 2):
        found["zero_dp_strategy"] = plan.zero
    if 1 < plan.shard < plan.dp * plan.cp:
        found["dp_replicate_size"] = plan.dp * plan.cp // plan.shard
    if plan.tp > 1:
        found["sequence_parallel"] = plan.sp
    if plan.zero == 3:
        found["reshard_after_forward"] = plan.reshard
    if plan.recompute is not Recompute.NONE:
        found["activation_checkpointing"] = "selective" if plan.recompute is Recompute.SELECTIVE else True
    if plan.offload_params is Offload.CPU:
        found["offload_policy"] = {"_target_": "torch.distributed.fsdp.CPUOffloadPolicy"}
    if plan.pp > 1:
        found["pipeline"] = {
            "pp_schedule": SCHEDULES[plan.schedule],
            "pp_microbatch_size": plan.micro_batch,
        }
    if plan.precision is Precision.FP32:
        policy = "torch.distributed.fsdp.MixedPrecisionPolicy"
        found["mp_policy"] = {"_target_": policy, "param_dtype": "float32", "reduce_dtype": "float32"}
    return found


def _speed(order: Order) -> Settings:
    plan, found = order.plan, Settings()
    if plan.compile is Compile.DEFAULT:
        found["compile"] = {"enabled": True, "mode": "default"}
    if plan.precision in FP8:
        whole = plan.precision is Precision.FP8_TENSORWISE
        found["fp8"] = {
            "enabled": True,
            "recipe_name": FP8[plan.precision],
            "enable_fsdp_float8_all_gather": whole,
            "precompute_float8_dynamic_scale_for_fsdp": whole,
            "filter_fqns": ["lm_head"],
        }
    kind = "linear_ce.FusedLinearCrossEntropy" if plan.fused_loss else "masked_ce.MaskedCrossEntropy"
    return {**found, "loss_fn": {"_target_": f"nemo_automodel.components.loss.{kind}"}}


def _data(order: Order) -> Settings:
    work = order.problem.workload
    if work.method is Method.PRETRAIN:
        dataset: Settings = {
            "_target_": f"{DATA}.megatron_dataset.MegatronPretrainingConfig",
            "paths": order.data,
            "seq_length": work.sequence_tokens,
        }
    else:
        dataset = {
            "_target_": f"{DATA}.column_mapped_text_instruction_dataset.ColumnMappedTextInstructionDataset",
            "path_or_dataset_id": order.data,
            "column_mapping": {"question": "instruction", "answer": "output"},
            "seq_length": work.sequence_tokens,
        }
    return {
        "dataset": dataset,
        "dataloader": {"_target_": "torchdata.stateful_dataloader.StatefulDataLoader"},
        "optimizer": {
            "_target_": "torch.optim.AdamW",
            "lr": order.learning_rate,
            "betas": [0.9, 0.95],
            "weight_decay": 0.1,
        },
        "lr_scheduler": {"lr_decay_style": "cosine", "min_lr": order.learning_rate / 10},
    }
