"""Plans as Accelerate's YAML for FSDP2, DDP and one device, its launch line, and the training script."""

from typing import Final

from escala.foreign.accelerate.files import FORMATS, VERSION, config_file, dynamo_block, line_file
from escala.foreign.modules import families, family_of
from escala.foreign.orders import ANY, Abilities, Order, OutFile, Target
from escala.foreign.trainerscript import (
    COMPILES,
    LAUNCH,
    RECOMPUTES,
    SCRIPT,
    arguments,
    optimizer_lacks,
    optimizer_name,
    script_file,
    weights_dtype,
)
from escala.model.plan import Compile, ContextKind, Offload, Precision, Recompute

COMMUNICATION: Final = {ContextKind.ALL_GATHER: "allgather", ContextKind.RING: "alltoall"}
"""cp_comm_strategy by kind; alltoall passes blocks of keys and values around (torch's context_parallel)."""


def _also(order: Order) -> list[str]:
    """What goes with something else only."""
    plan = order.plan
    reasons = optimizer_lacks(order)
    offloads = {plan.offload_optimizer, plan.offload_params}
    if plan.zero == 3 and len(offloads) == 2:
        reasons.append("offload of weights or optimizer alone: FSDP2 offloads both")
    if plan.zero == 0 and offloads != {Offload.NONE}:
        reasons.append("offload without sharding (FSDP2)")
    if plan.zero == 0 and plan.cp > 1:
        reasons.append("context parallelism without sharding (FSDP2)")
    if plan.zero == 0 and plan.precision is Precision.FP8_TENSORWISE:
        reasons.append("fp8 without sharding: not tried")
    if plan.zero == 3 and plan.shard % plan.cp:
        reasons.append(f"shards over {plan.shard} ranks with context {plan.cp}: dp_shard × cp are the shards")
    if plan.offload_activations is not Offload.NONE and not (
        plan.zero == 3 and plan.recompute is Recompute.FULL
    ):
        reasons.append("offload of activations without FSDP2 and full recompute")
    if plan.zero == 3 and _blocks(order) is None:
        reasons.append(f"the repeated block of {order.model} is not known: FSDP2 has to wrap it")
    return reasons


TARGET: Final = Target(
    name="accelerate",
    title="Accelerate",
    version=VERSION,
    abilities=Abilities(
        zero=(0, 3),
        no_reshard=True,
        hybrid=True,
        cp=ANY,
        cp_kinds=tuple(COMMUNICATION),
        recompute=RECOMPUTES,
        offload_optimizer=(Offload.NONE, Offload.CPU),
        offload_params=(Offload.NONE, Offload.CPU),
        offload_activations=(Offload.NONE, Offload.CPU),
        precisions=tuple(FORMATS),
        compiles=(Compile.OFF, *COMPILES),
        fused_loss=True,
    ),
    launch=f"bash {LAUNCH}",
    page="docs/targets/accelerate.md",
    engine="hf-trainer",
    also=_also,
)


def write(order: Order) -> list[OutFile]:
    """The configuration, the script and the launch line."""
    plan = order.plan
    more = {
        "optim": optimizer_name(order.problem.workload.optimizer) or "",
        "activation_checkpointing": "true" if plan.recompute is Recompute.FULL and plan.zero == 0 else "",
    }
    dtype = weights_dtype(plan.precision, is_sharded_by_deepspeed=False)
    config = config_file(TARGET, order, _kind(order), _config_blocks(order))
    return [
        config,
        script_file(TARGET, order),
        line_file(TARGET, order, SCRIPT, arguments(order, dtype, **more)),
    ]


def _kind(order: Order) -> str:
    if order.plan.zero == 3:
        return "FSDP"
    return "MULTI_GPU" if order.plan.devices > 1 else "NO"


def _config_blocks(order: Order) -> dict[str, object]:
    plan = order.plan
    found = dynamo_block(order, COMPILES.get(plan.compile, ""))
    if plan.zero == 3:
        found["fsdp_config"] = _fsdp(order)
    mesh = _mesh(order)
    if mesh:
        found["parallelism_config"] = mesh
    if plan.precision is Precision.FP8_TENSORWISE:
        found["fp8_config"] = {"backend": "AO", "enable_fsdp_float8_all_gather": True, "pad_inner_dim": True}
    return found


def _fsdp(order: Order) -> dict[str, object]:
    plan = order.plan
    block: dict[str, object] = {
        "fsdp_version": 2,
        "fsdp_reshard_after_forward": plan.reshard,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_transformer_layer_cls_to_wrap": ",".join(_blocks(order) or ()),
        "fsdp_offload_params": plan.offload_params is Offload.CPU,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_cpu_ram_efficient_loading": plan.precision is not Precision.FP8_TENSORWISE,
        "fsdp_activation_checkpointing": plan.recompute is Recompute.FULL,
    }
    if plan.offload_activations is Offload.CPU:
        block["fsdp_activation_checkpointing_offload"] = True
    return block


def _mesh(order: Order) -> dict[str, object]:
    """The degrees, where there is more than plain sharding over all ranks."""
    plan = order.plan
    replicas = plan.dp * plan.cp // plan.shard
    if plan.zero != 3 or (plan.cp == 1 and replicas == 1):
        return {}
    block: dict[str, object] = {
        "parallelism_config_dp_replicate_size": replicas,
        "parallelism_config_dp_shard_size": plan.shard // plan.cp,
    }
    if plan.cp > 1:
        block |= {
            "parallelism_config_cp_size": plan.cp,
            "parallelism_config_cp_comm_strategy": COMMUNICATION[plan.cp_kind],
        }
    return block


def _blocks(order: Order) -> tuple[str, ...] | None:
    """The classes that are wrapped one by one."""
    family = family_of(order.model)
    return families()[family].blocks if family is not None else None
