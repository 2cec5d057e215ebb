"""Plans as Axolotl's YAML, with DeepSpeed's file where ZeRO is its, and the script that starts it."""

from typing import Final

from escala.foreign.axolotl.reading import VERSION
from escala.foreign.orders import ANY, MIXED, Abilities, Order, OutFile, Target
from escala.foreign.trainerscript import LAUNCH, RECOMPUTES, optimizer_lacks
from escala.foreign.transformers.settings import (
    ADAPTED,
    DEEPSPEED,
    lora_settings,
    recomputes,
    sharding_lacks,
    trainer_settings,
    uses_fsdp,
    written,
)
from escala.model.plan import Compile, ContextKind, Offload, Precision
from escala.model.workload import Method

CONFIG: Final = "axolotl.yaml"
FUSED: Final = "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"
HALF: Final = (Precision.BF16, Precision.FP16)
OPTIMIZERS: Final = {"adamw_bnb_8bit": "adamw_torch_8bit"}
"""What takes the place of an optimizer under FSDP2, which refuses it."""


def _also(order: Order) -> list[str]:
    """What goes with something else only."""
    plan = order.plan
    reasons = [*optimizer_lacks(order), *sharding_lacks(plan)]
    is_fsdp = uses_fsdp(plan)
    if plan.offload_activations is not Offload.NONE and not recomputes(plan):
        reasons.append("offload of activations without full recompute")
    if plan.fused_loss and plan.precision not in HALF:
        reasons.append("a fused loss in fp32: cut_cross_entropy computes in bf16 or fp16")
    if plan.cp > 1 and not (is_fsdp and plan.precision in HALF):
        reasons.append("context parallelism without FSDP, or not in bf16 or fp16 (FlashAttention)")
    if 1 < plan.shard < plan.dp * plan.cp and (not is_fsdp or plan.cp > 1):
        reasons.append("smaller groups of shards (HSDP) but with FSDP, without context parallelism")
    return reasons


TARGET: Final = Target(
    name="axolotl",
    title="Axolotl",
    version=VERSION,
    abilities=Abilities(
        zero=(0, 1, 2, 3),
        no_reshard=True,
        hybrid=True,
        cp=ANY,
        cp_kinds=(ContextKind.RING,),
        recompute=RECOMPUTES,
        offload_optimizer=(Offload.NONE, Offload.CPU),
        offload_params=(Offload.NONE, Offload.CPU),
        offload_activations=(Offload.NONE, Offload.CPU),
        precisions=MIXED,
        compiles=(Compile.OFF, Compile.DEFAULT),
        fused_loss=True,
        methods=(Method.FULL, *ADAPTED),
    ),
    launch=f"bash {LAUNCH}",
    page="docs/targets/axolotl.md",
    engine="hf-trainer",
    also=_also,
)


def write(order: Order) -> list[OutFile]:
    """The settings, the launch line, and DeepSpeed's file where there is one."""
    return written(TARGET, order, CONFIG, _settings(order), "axolotl.cli.train")


def _settings(order: Order) -> dict[str, object]:
    plan, work, trainer = order.plan, order.problem.workload, trainer_settings(order)
    settings: dict[str, object] = {
        "base_model": order.model,
        "datasets": [{"path": order.data, "type": "completion"}],
        "val_set_size": 0,
        "output_dir": trainer["output_dir"],
        "sequence_len": work.sequence_tokens,
        "sample_packing": True,
        "attn_implementation": "flash_attention_2" if plan.precision in HALF else "sdpa",
        "micro_batch_size": plan.micro_batch,
        "gradient_accumulation_steps": plan.micro_batches,
        "max_steps": order.steps,
        "learning_rate": order.learning_rate,
        "lr_scheduler": "cosine",
        "optimizer": _optimizer(order),
        "gradient_checkpointing": recomputes(plan),
        **{name: trainer[name] for name in ("bf16", "fp16", "tf32", "torch_compile") if name in trainer},
        **_adapters(order),
        **_sharding(order),
    }
    if plan.offload_activations is Offload.CPU:
        settings["activation_offloading"] = True
    if plan.fused_loss:
        settings |= {"plugins": [FUSED], "cut_cross_entropy": True}
    return settings


def _optimizer(order: Order) -> object:
    name = str(trainer_settings(order)["optim"])
    return OPTIMIZERS.get(name, name) if uses_fsdp(order.plan) else name


def _adapters(order: Order) -> dict[str, object]:
    is_quantized = order.problem.workload.method is Method.QLORA
    return lora_settings(order, {"adapter": "qlora" if is_quantized else "lora"})


def _sharding(order: Order) -> dict[str, object]:
    """DeepSpeed's file, or FSDP2 with the groups over which it shards."""
    plan = order.plan
    if not uses_fsdp(plan):
        return {"deepspeed": DEEPSPEED} if plan.zero else {}
    settings: dict[str, object] = {
        "fsdp_version": 2,
        "fsdp_config": {
            "offload_params": plan.offload_params is Offload.CPU,
            "reshard_after_forward": plan.reshard,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "state_dict_type": "SHARDED_STATE_DICT",
        },
    }
    replicas = plan.dp * plan.cp // plan.shard
    if plan.cp > 1 or replicas > 1:
        settings["dp_shard_size"] = plan.shard // plan.cp
    if replicas > 1:
        settings["dp_replicate_size"] = replicas
    if plan.cp > 1:
        settings["context_parallel_size"] = plan.cp
    return settings
