"""Writes a plan as a script that runs Megatron-LM's pretrain_gpt.py; says what Megatron cannot run."""

import shlex
from collections.abc import Mapping
from typing import Final

from escala.foreign.megatron.names import (
    CONTEXT,
    DISPATCHERS,
    FORMATS,
    FP8_RECIPES,
    SHARDING,
    name_of,
)
from escala.foreign.megatron.shape import options_for
from escala.foreign.orders import ANY, Abilities, Order, OutFile, Target, header
from escala.model.plan import ContextKind, Dispatcher, Offload, Precision, Recompute, Schedule
from escala.model.workload import Method

Option = int | float | str | bool
ABILITIES: Final = Abilities(
    zero=(0, 1, 2, 3),
    hybrid=True,
    tp=ANY,
    sp=(False, True),
    pp=ANY,
    schedules=(Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED),
    cp=ANY,
    cp_kinds=(ContextKind.RING, ContextKind.ALL_GATHER, ContextKind.ULYSSES),
    ep=ANY,
    etp=ANY,
    dispatchers=(Dispatcher.ALL_TO_ALL, Dispatcher.ALL_GATHER, Dispatcher.FUSED),
    recompute=(Recompute.NONE, Recompute.SELECTIVE, Recompute.FIRST_LAYERS, Recompute.FULL),
    offload_optimizer=(Offload.NONE, Offload.CPU),
    precisions=(
        Precision.FP32,
        Precision.FP16,
        Precision.BF16,
        Precision.FP8_TENSORWISE,
        Precision.FP8_BLOCKWISE,
        Precision.MXFP8,
        Precision.NVFP4,
    ),
)
DATA: Final = """# Set DATA to the prefix of .bin and .idx files that tools/preprocess_data.py makes of the
# data, and CHECKPOINTS to a folder that all nodes see.
"""


def beyond(order: Order) -> list[str]:
    """What Megatron cannot do of combinations."""
    plan, reasons = order.plan, []
    if plan.zero >= 2 and plan.pp > 1:
        reasons.append(f"ZeRO stage {plan.zero} (Megatron-FSDP) with a pipeline")
    if plan.zero >= 2 and plan.offload_optimizer is not Offload.NONE:
        reasons.append(f"ZeRO stage {plan.zero} (Megatron-FSDP) with an offloaded optimizer")
    if plan.zero == 3 and plan.dp * plan.cp == 1:
        reasons.append("ZeRO stage 3 on a single data parallel rank")
    layers = order.problem.workload.network.layers
    if plan.pp > 1 and layers % (plan.pp * plan.virtual_stages):
        reasons.append(
            f"{layers} layers over {plan.pp} × {plan.virtual_stages} stages: they have to be equal"
        )
    if plan.recompute is Recompute.FIRST_LAYERS and plan.recompute_layers % plan.virtual_stages:
        layers = plan.recompute_layers
        reasons.append(f"recompute of {layers} layers: a multiple of the virtual stages is needed")
    return reasons


def _beyond(order: Order) -> list[str]:
    """Those, and models that its options do not describe."""
    if options_for(order.problem.workload.network) is None:
        kind = "this kind of layer: its options build decoders of equal, gated layers"
        return [kind, *beyond(order)]
    return beyond(order)


TARGET: Final = Target(
    name="megatron",
    title="Megatron-LM (core)",
    version="0.19.2",
    abilities=ABILITIES,
    launch="bash train.sh",
    page="docs/targets/megatron.md",
    engine="megatron-core",
    also=_beyond,
)


def write(order: Order) -> list[OutFile]:
    """One script, to be started on each node."""
    blocks = {
        "MODEL": _model(order),
        "PARALLEL": _parallel(order),
        "TRAINING": _training(order),
    }
    text = "".join(f"{name}=(\n{_listed(options)})\n\n" for name, options in blocks.items())
    start = f"#!/bin/bash\n{header(TARGET, order)}{DATA}set -euo pipefail\n\n{_settings(order)}\n"
    script = start + text + _line(order)
    return [OutFile(name="train.sh", text=script, is_executable=True)]


def _listed(options: Mapping[str, Option]) -> str:
    """One option a line; flags that are off are left out, what begins with $ is filled in by the shell."""
    lines = []
    for name, value in options.items():
        if value is False:
            continue
        text = (
            f'"{value}"' if isinstance(value, str) and value.startswith("$") else shlex.quote(_spoken(value))
        )
        lines.append(f"    --{name}\n" if value is True else f"    --{name} {text}\n")
    return "".join(lines)


def _spoken(value: Option) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _settings(order: Order) -> str:
    lines = ['DATA="${DATA:?}"', 'CHECKPOINTS="${CHECKPOINTS:-checkpoints}"']
    if order.problem.workload.method is Method.FULL:
        lines.append("# the weights to begin with, which Megatron-Bridge converts from Hugging Face's")
        lines.append('WEIGHTS="${WEIGHTS:?}"')
    if order.plan.zero < 2 and order.plan.tp * order.plan.cp > 1:
        lines.append("export CUDA_DEVICE_MAX_CONNECTIONS=1")
    return "\n".join(lines) + "\n"


def _line(order: Order) -> str:
    nodes = f"--nnodes {order.nodes} --nproc-per-node {order.devices_per_node}"
    meeting = (
        '--node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT"'
        if order.nodes > 1
        else "--standalone"
    )
    arguments = '"${MODEL[@]}" "${PARALLEL[@]}" "${TRAINING[@]}"'
    return f"torchrun {nodes} \\\n    {meeting} \\\n    pretrain_gpt.py {arguments}\n"


def _model(order: Order) -> dict[str, Option]:
    work = order.problem.workload
    options = options_for(work.network)
    assert options is not None
    return {
        **options,
        "seq-length": work.sequence_tokens,
        "max-position-embeddings": max(work.sequence_tokens, work.network.max_tokens or 0),
        "tokenizer-type": "HuggingFaceTokenizer",
        "tokenizer-model": order.model,
        "attention-dropout": 0,
        "hidden-dropout": 0,
    }


def _parallel(order: Order) -> dict[str, Option]:
    plan = order.plan
    found: dict[str, Option] = {
        "tensor-model-parallel-size": plan.tp,
        "sequence-parallel": plan.sp and plan.tp > 1,
        "pipeline-model-parallel-size": plan.pp,
        "context-parallel-size": plan.cp,
        "expert-model-parallel-size": plan.ep,
    }
    if plan.pp > 1 and plan.virtual_stages > 1:
        found["num-virtual-stages-per-pipeline-rank"] = plan.virtual_stages
    if plan.cp > 1:
        found["cp-comm-type"] = name_of(CONTEXT, plan.cp_kind)
    if plan.ep > 1:
        found["expert-tensor-parallel-size"] = plan.etp
        found["moe-token-dispatcher-type"] = name_of(DISPATCHERS, plan.dispatcher)
    return {**found, **_states(order), **_recompute(order)}


def _states(order: Order) -> dict[str, Option]:
    plan = order.plan
    if plan.zero == 0:
        return {"overlap-grad-reduce": plan.dp * plan.cp > 1}
    found: dict[str, Option] = {"use-distributed-optimizer": True}
    if plan.zero >= 2:
        strategy = next(name for name, stage in SHARDING.items() if stage == plan.zero)
        found |= {
            "use-megatron-fsdp": True,
            "data-parallel-sharding-strategy": strategy,
            "ckpt-format": "fsdp_dtensor",
            "no-gradient-accumulation-fusion": True,
        }
    if 1 < plan.shard < plan.dp * plan.cp:
        found["num-distributed-optimizer-instances"] = plan.dp * plan.cp // plan.shard
    offload: dict[str, Option] = {"optimizer-cpu-offload": True, "use-precision-aware-optimizer": True}
    overlap: dict[str, Option] = {"overlap-grad-reduce": True, "overlap-param-gather": True}
    is_offloaded = plan.offload_optimizer is Offload.CPU
    return {**found, **overlap, **(offload if is_offloaded else {})}


def _recompute(order: Order) -> dict[str, Option]:
    plan = order.plan
    if plan.recompute is Recompute.NONE:
        return {}
    if plan.recompute is Recompute.SELECTIVE:
        return {"recompute-granularity": "selective"}
    is_some = plan.recompute is Recompute.FIRST_LAYERS
    return {
        "recompute-granularity": "full",
        "recompute-method": "block" if is_some else "uniform",
        "recompute-num-layers": plan.recompute_layers // plan.virtual_stages if is_some else 1,
    }


def _training(order: Order) -> dict[str, Option]:
    work, plan = order.problem.workload, order.plan
    is_full = work.method is Method.FULL
    return {
        "micro-batch-size": plan.micro_batch,
        "global-batch-size": work.global_batch,
        "train-iters": order.steps,
        "lr": order.learning_rate,
        "lr-decay-style": "cosine",
        "min-lr": order.learning_rate / 10,
        "lr-warmup-fraction": 0.01,
        "weight-decay": 0.1,
        "adam-beta2": 0.95,
        "clip-grad": 1,
        **_precision(plan.precision),
        "data-path": "$DATA",
        "split": "99,1,0",
        "finetune": is_full,
        "load": "$WEIGHTS" if is_full else "$CHECKPOINTS",
        "save": "$CHECKPOINTS",
        "save-interval": max(order.steps // 10, 1),
        "log-interval": 1,
        "log-throughput": True,
        "eval-iters": 10,
        "eval-interval": max(order.steps // 10, 1),
    }


def _precision(precision: Precision) -> dict[str, Option]:
    if precision in FORMATS.values():
        return {name_of(FORMATS, precision): True}
    if precision is Precision.NVFP4:
        return {"bf16": True, "fp4-format": "e2m1", "fp4-recipe": "nvfp4"}
    if precision in FP8_RECIPES.values():
        form = "e4m3" if precision is Precision.MXFP8 else "hybrid"
        return {"bf16": True, "fp8-format": form, "fp8-recipe": name_of(FP8_RECIPES, precision)}
    return {}
