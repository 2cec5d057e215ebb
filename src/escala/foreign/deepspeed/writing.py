"""Plans as DeepSpeed's JSON, its launch line, and the training script that it starts."""

import json
from typing import Final

from escala.foreign.orders import ANY, Abilities, Order, OutFile, Target
from escala.foreign.trainerscript import (
    COMPILES,
    LAUNCH,
    RECOMPUTES,
    SCRIPT,
    arguments,
    launch_file,
    script_file,
    weights_dtype,
)
from escala.model.plan import Compile, ContextKind, Offload, Plan, Precision, Recompute
from escala.model.workload import OptimizerKind

CONFIG: Final = "ds_config.json"
HOSTS: Final = "hostfile"
NVME: Final = "/local_nvme"
"""Where offloaded states lie, until somebody writes another folder."""
ON: Final = {Precision.BF16: "bf16", Precision.FP16: "fp16"}


def _also(order: Order) -> list[str]:
    """What goes with something else only."""
    plan, optimizer = order.plan, order.problem.workload.optimizer
    reasons = offload_lacks(plan)
    if plan.tp > 1 and plan.cp > 1:
        reasons.append("tensor and sequence parallelism together (AutoTP and Ulysses): one of the two")
    if optimizer.kind is not OptimizerKind.ADAMW or optimizer.state_bytes != 4:
        reasons.append(f"{optimizer.kind} with {optimizer.state_bytes:g}-byte states: AdamW in fp32 only")
    return reasons


def offload_lacks(plan: Plan) -> list[str]:
    """What ZeRO cannot offload at the stage of a plan."""
    reasons: list[str] = []
    if plan.zero < 3 and plan.offload_params is not Offload.NONE:
        reasons.append("offload of weights below ZeRO stage 3")
    if plan.zero < 1 and plan.offload_optimizer is not Offload.NONE:
        reasons.append("offload of the optimizer below ZeRO stage 1")
    return reasons


TARGET: Final = Target(
    name="deepspeed",
    title="DeepSpeed",
    version="0.19.8",
    abilities=Abilities(
        zero=(0, 1, 2, 3),
        tp=ANY,
        cp=ANY,
        cp_kinds=(ContextKind.ULYSSES,),
        recompute=RECOMPUTES,
        offload_optimizer=tuple(Offload),
        offload_params=tuple(Offload),
        precisions=(Precision.FP32, Precision.FP16, Precision.BF16),
        compiles=(Compile.OFF, *COMPILES),
        fused_loss=True,
    ),
    launch=f"bash {LAUNCH}",
    page="docs/targets/deepspeed.md",
    engine="deepspeed",
    also=_also,
)


def write(order: Order) -> list[OutFile]:
    """The configuration, the script, the launch line, and for several nodes a file of hosts."""
    content = json.dumps(_config(order), indent=2) + "\n"
    files = [OutFile(name=CONFIG, text=content), script_file(TARGET, order), _launch(order)]
    return [*files, _hosts(order)] if order.nodes > 1 else files


def _config(order: Order) -> dict[str, object]:
    plan = order.plan
    config: dict[str, object] = {
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": plan.micro_batches,
        "gradient_clipping": 1.0,
        "optimizer": {
            "type": "AdamW",
            "params": {
                "lr": order.learning_rate,
                "betas": [0.9, 0.999],
                "eps": 1e-8,
                "weight_decay": 0.0,
            },
        },
        "zero_optimization": _zero(order),
    }
    if plan.precision in ON:
        config[ON[plan.precision]] = {"enabled": True}
    if plan.tp > 1:
        config["tensor_parallel"] = {"autotp_size": plan.tp}
    if plan.cp > 1:
        config["sequence_parallel_size"] = plan.cp
    return config


def _zero(order: Order) -> dict[str, object]:
    plan = order.plan
    block: dict[str, object] = {"stage": plan.zero}
    if plan.zero:
        block |= {"overlap_comm": True, "contiguous_gradients": True}
    if plan.zero == 3:
        block["stage3_gather_16bit_weights_on_model_save"] = True
    for name, where in (
        ("offload_optimizer", plan.offload_optimizer),
        ("offload_param", plan.offload_params),
    ):
        if where is Offload.CPU:
            block[name] = {"device": "cpu", "pin_memory": True}
        elif where is Offload.NVME:
            block[name] = {"device": "nvme", "nvme_path": NVME, "pin_memory": True}
    return block


def _launch(order: Order) -> OutFile:
    plan = order.plan
    line = ["deepspeed"]
    if order.nodes > 1:
        line += ["--hostfile", HOSTS, "--no_ssh", "--node_rank", "$NODE_RANK"]
        line += ["--master_addr", "$MASTER_ADDR", "--master_port", "$MASTER_PORT"]
    line += ["--num_gpus", str(order.devices_per_node), SCRIPT]
    more = {
        "deepspeed": CONFIG,
        "bf16": "true" if plan.precision is Precision.BF16 else "",
        "fp16": "true" if plan.precision is Precision.FP16 else "",
        "activation_checkpointing": "true" if plan.recompute is Recompute.FULL else "",
        "torch_compile": "true" if plan.compile is not Compile.OFF else "",
        "torch_compile_mode": COMPILES.get(plan.compile, ""),
        "sequence_parallel": str(plan.cp) if plan.cp > 1 else "",
    }
    dtype = weights_dtype(plan.precision, is_sharded_by_deepspeed=True)
    return launch_file(TARGET, order, line, arguments(order, dtype, **more))


def _hosts(order: Order) -> OutFile:
    """As many hosts as nodes; with --no_ssh only their number counts, not their names."""
    rows = "".join(f"node-{node} slots={order.devices_per_node}\n" for node in range(order.nodes))
    return OutFile(name=HOSTS, text=rows)
