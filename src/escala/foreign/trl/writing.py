"""Plans as YAML for `trl sft`, with DeepSpeed's file where ZeRO is its, and the script that starts it."""

from typing import Final

from escala.foreign.orders import MIXED, Abilities, Order, OutFile, Target
from escala.foreign.trainerscript import COMPILES, LAUNCH, RECOMPUTES, optimizer_lacks, weights_dtype
from escala.foreign.transformers.settings import (
    ADAPTED,
    DEEPSPEED,
    lora_settings,
    moves_by_deepspeed,
    recomputes,
    sharding_lacks,
    trainer_settings,
    uses_fsdp,
    written,
)
from escala.foreign.trl.reading import VERSION
from escala.model.plan import Compile, Offload
from escala.model.workload import Method

CONFIG: Final = "trl.yaml"


def _also(order: Order) -> list[str]:
    """What goes with something else only."""
    return [*optimizer_lacks(order), *sharding_lacks(order.plan)]


TARGET: Final = Target(
    name="trl",
    title="TRL",
    version=VERSION,
    abilities=Abilities(
        zero=(0, 1, 2, 3),
        no_reshard=True,
        recompute=RECOMPUTES,
        offload_optimizer=(Offload.NONE, Offload.CPU),
        offload_params=(Offload.NONE, Offload.CPU),
        precisions=MIXED,
        compiles=(Compile.OFF, *COMPILES),
        fused_loss=True,
        methods=(Method.FULL, *ADAPTED),
    ),
    launch=f"bash {LAUNCH}",
    page="docs/targets/trl.md",
    engine="hf-trainer",
    also=_also,
)


def write(order: Order) -> list[OutFile]:
    """The settings, the launch line, and DeepSpeed's file where there is one."""
    return written(TARGET, order, CONFIG, _settings(order), "trl.scripts.sft --config")


def _settings(order: Order) -> dict[str, object]:
    plan, work = order.plan, order.problem.workload
    settings: dict[str, object] = {
        "model_name_or_path": order.model,
        "dtype": _dtype(order),
        "attn_implementation": "sdpa",
        "dataset_name": order.data,
        "max_length": work.sequence_tokens,
        "packing": True,
        "packing_strategy": "wrapped",
        **trainer_settings(order),
        "bf16": trainer_settings(order).get("bf16", False),
        "gradient_checkpointing": recomputes(plan) and not uses_fsdp(plan),
        **_adapters(order),
    }
    if uses_fsdp(plan):
        settings |= {"fsdp": True, "fsdp_config": _fsdp(order)}
    elif plan.zero:
        settings["deepspeed"] = DEEPSPEED
    return settings


def _dtype(order: Order) -> str:
    """The format of weights: frozen ones in that of computing, trained ones as mixed precision has them."""
    plan = order.plan
    if order.problem.workload.method in ADAPTED:
        return {"bf16": "bfloat16", "fp16": "float16"}.get(plan.precision.name.lower(), "float32")
    return weights_dtype(plan.precision, is_sharded_by_deepspeed=moves_by_deepspeed(plan))


def _fsdp(order: Order) -> dict[str, object]:
    plan = order.plan
    return {
        "version": 2,
        "reshard_after_forward": plan.reshard,
        "cpu_offload": plan.offload_params is Offload.CPU,
        "state_dict_type": "SHARDED_STATE_DICT",
        "activation_checkpointing": recomputes(plan),
    }


def _adapters(order: Order) -> dict[str, object]:
    settings = lora_settings(order, {"use_peft": True})
    if order.problem.workload.method is Method.QLORA:
        settings |= {"bnb_4bit_quant_type": "nf4", "use_bnb_nested_quant": True}
        settings["bnb_4bit_quant_storage"] = _dtype(order)
    return settings
