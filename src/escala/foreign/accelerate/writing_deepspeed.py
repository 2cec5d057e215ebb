"""Plans as Accelerate's YAML for DeepSpeed, its launch line, and the training script."""

from dataclasses import replace
from typing import Final

from escala.foreign.accelerate.files import VERSION, config_file, dynamo_block, line_file
from escala.foreign.deepspeed import writing
from escala.foreign.orders import Order, OutFile, Target
from escala.foreign.trainerscript import (
    COMPILES,
    LAUNCH,
    SCRIPT,
    arguments,
    optimizer_lacks,
    optimizer_name,
    script_file,
    weights_dtype,
)
from escala.model.plan import Offload, Recompute


def _also(order: Order) -> list[str]:
    """What goes with something else only."""
    return [*optimizer_lacks(order), *writing.offload_lacks(order.plan)]


TARGET: Final = Target(
    name="accelerate-deepspeed",
    title="Accelerate with DeepSpeed",
    version=VERSION,
    abilities=replace(writing.TARGET.abilities, tp=1),
    launch=f"bash {LAUNCH}",
    page="docs/targets/accelerate.md",
    engine="deepspeed",
    also=_also,
)


def write(order: Order) -> list[OutFile]:
    """The configuration, the script and the launch line."""
    plan = order.plan
    blocks: dict[str, object] = {"deepspeed_config": _deepspeed(order)}
    if plan.cp > 1:
        blocks["parallelism_config"] = {
            "parallelism_config_dp_shard_size": plan.dp,
            "parallelism_config_sp_size": plan.cp,
            "parallelism_config_sp_backend": "deepspeed",
            "parallelism_config_sp_seq_length_is_variable": False,
            "parallelism_config_sp_seq_length": order.problem.workload.sequence_tokens,
            "parallelism_config_sp_attn_implementation": "sdpa",
        }
    blocks |= dynamo_block(order, COMPILES.get(plan.compile, ""))
    more = {
        "optim": optimizer_name(order.problem.workload.optimizer) or "",
        "activation_checkpointing": "true" if plan.recompute is Recompute.FULL else "",
    }
    dtype = weights_dtype(plan.precision, is_sharded_by_deepspeed=True)
    return [
        config_file(TARGET, order, "DEEPSPEED", blocks),
        script_file(TARGET, order),
        line_file(TARGET, order, SCRIPT, arguments(order, dtype, **more)),
    ]


def _deepspeed(order: Order) -> dict[str, object]:
    plan = order.plan
    block: dict[str, object] = {
        "zero_stage": plan.zero,
        "gradient_accumulation_steps": plan.micro_batches,
        "gradient_clipping": 1.0,
        "zero3_init_flag": plan.zero == 3,
        "zero3_save_16bit_model": plan.zero == 3,
        "offload_optimizer_device": plan.offload_optimizer.name.lower(),
        "offload_param_device": plan.offload_params.name.lower(),
    }
    for name, where in (("optimizer", plan.offload_optimizer), ("param", plan.offload_params)):
        if where is Offload.NVME:
            block[f"offload_{name}_nvme_path"] = writing.NVME
    if order.nodes > 1:
        block["deepspeed_multinode_launcher"] = "standard"
    return block
