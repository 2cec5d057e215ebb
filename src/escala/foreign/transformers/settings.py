"""Plans as settings of the trainer, for the tools that take its arguments. Knows no tool's own keys."""

import json
from collections.abc import Iterable
from typing import Final

import yaml

from escala.foreign.orders import Order, OutFile, Target, header
from escala.foreign.trainerscript import COMPILES, launch_file, optimizer_name
from escala.model.plan import Compile, Offload, Plan, Precision, Recompute
from escala.model.workload import Method

DEEPSPEED: Final = "ds_config.json"
MODULES: Final = {
    "q": "q_proj",
    "k": "k_proj",
    "v": "v_proj",
    "o": "o_proj",
    "gate": "gate_proj",
    "up": "up_proj",
    "down": "down_proj",
}
"""Linear maps that carry adapters, by the names that models of the Llama kind give them."""
ADAPTED: Final = (Method.LORA, Method.QLORA)
MIXED: Final = {Precision.BF16: "bf16", Precision.FP16: "fp16", Precision.TF32: "tf32"}


def trainer_settings(order: Order) -> dict[str, object]:
    """Batch, length of the run, number format, optimizer and compilation."""
    plan, work = order.plan, order.problem.workload
    settings: dict[str, object] = {
        "output_dir": "output",
        "per_device_train_batch_size": plan.micro_batch,
        "gradient_accumulation_steps": plan.micro_batches,
        "max_steps": order.steps,
        "learning_rate": order.learning_rate,
        "optim": optimizer_name(work.optimizer),
        "logging_steps": 10,
    }
    if plan.precision in MIXED:
        settings[MIXED[plan.precision]] = True
    if plan.compile is not Compile.OFF:
        settings |= {"torch_compile": True, "torch_compile_mode": COMPILES[plan.compile]}
    if plan.fused_loss:
        settings["use_liger_kernel"] = True
    return settings


def modules_of(order: Order) -> list[str]:
    """The linear maps that carry adapters."""
    lora = order.problem.workload.lora
    return [MODULES.get(name, name) for name in lora.targets] if lora is not None else []


def moves_by_deepspeed(plan: Plan) -> bool:
    """Whether ZeRO is DeepSpeed's here: stages 1 and 2, and the optimizer alone in host memory."""
    is_alone = plan.offload_optimizer is not plan.offload_params
    return plan.zero in (1, 2) or (plan.zero == 3 and is_alone)


def uses_fsdp(plan: Plan) -> bool:
    """Whether weights are sharded by FSDP2 and not by DeepSpeed."""
    return plan.zero == 3 and not moves_by_deepspeed(plan)


def sharding_lacks(plan: Plan, *, only_deepspeed: bool = False) -> Iterable[str]:
    """Offload and resharding that neither FSDP nor DeepSpeed has in this form."""
    by_deepspeed = only_deepspeed or moves_by_deepspeed(plan)
    if plan.zero == 0 and (plan.offload_optimizer, plan.offload_params) != (Offload.NONE, Offload.NONE):
        yield "offload without sharding"
    if plan.zero in (1, 2) and plan.offload_params is not Offload.NONE:
        yield "offload of weights below ZeRO stage 3"
    if plan.zero == 3 and by_deepspeed and not plan.reshard:
        yield "weights that stay gathered from forward to backward, with DeepSpeed"


def written(
    target: Target, order: Order, name: str, settings: dict[str, object], module: str
) -> list[OutFile]:
    """The settings, the script that starts a module with them, and DeepSpeed's file where there is one."""
    files = [yaml_file(target, order, name, settings), torchrun_file(target, order, [*module.split(), name])]
    return [*files, deepspeed_file(order.plan)] if moves_by_deepspeed(order.plan) else files


def lora_settings(order: Order, switch: dict[str, object]) -> dict[str, object]:
    """The adapters of a plan behind what turns them on; nothing without adapters."""
    work = order.problem.workload
    if work.lora is None:
        return {}
    settings: dict[str, object] = {
        **switch,
        "lora_r": work.lora.rank,
        "lora_alpha": 2 * work.lora.rank,
        "lora_dropout": 0.05 if work.lora.has_dropout else 0.0,
        "lora_target_modules": modules_of(order),
    }
    return {**settings, "load_in_4bit": True} if work.method is Method.QLORA else settings


def deepspeed_file(plan: Plan) -> OutFile:
    """DeepSpeed's file; what the arguments say too is auto."""
    zero: dict[str, object] = {"stage": plan.zero, "overlap_comm": True, "contiguous_gradients": True}
    for key, where in (("offload_optimizer", plan.offload_optimizer), ("offload_param", plan.offload_params)):
        if where is Offload.CPU:
            zero[key] = {"device": "cpu", "pin_memory": True}
    if plan.zero == 3:
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    config = {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        "zero_optimization": zero,
    }
    return OutFile(name=DEEPSPEED, text=json.dumps(config, indent=2) + "\n")


def yaml_file(target: Target, order: Order, name: str, settings: dict[str, object]) -> OutFile:
    """Settings with the header above them."""
    text = yaml.safe_dump(settings, sort_keys=False, width=100)
    return OutFile(name=name, text=header(target, order) + text)


def torchrun_file(target: Target, order: Order, module: list[str]) -> OutFile:
    """A script that starts a module on each device of one node, or of each of several."""
    line = ["torchrun", "--nproc-per-node", str(order.devices_per_node)]
    if order.nodes > 1:
        line += ["--nnodes", str(order.nodes), "--node-rank", "$NODE_RANK"]
        line += ["--master-addr", "$MASTER_ADDR", "--master-port", "$MASTER_PORT"]
    else:
        line.append("--standalone")
    return launch_file(target, order, [*line, "-m", *module], [])


def recomputes(plan: Plan) -> bool:
    """Whether each block is computed again in backward."""
    return plan.recompute is Recompute.FULL
