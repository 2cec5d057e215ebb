"""Writes a plan as a recipe of Megatron-Bridge with its launch. Knows no plan that Megatron cannot run."""

import json
from dataclasses import replace
from typing import Final

from escala.foreign.megatron.names import CONTEXT, DISPATCHERS, SHARDING, name_of
from escala.foreign.megatron.writing import ABILITIES, beyond
from escala.foreign.megatron_bridge.names import RECIPES, VIRTUAL
from escala.foreign.orders import Order, OutFile, Target, header
from escala.model.plan import Offload, Precision, Recompute
from escala.model.workload import Method

Setting = int | float | str | bool | list[str] | None
STARTS: Final = {
    Method.PRETRAIN: "_pretrain_common",
    Method.FULL: "_sft_common",
    Method.LORA: "_peft_common",
}
RUNS: Final = {
    Method.PRETRAIN: ("pretrain", "pretrain"),
    Method.FULL: ("finetune", "finetune"),
    Method.LORA: ("finetune", "finetune"),
}
"""Module of megatron.bridge.training, and its function."""
TARGET: Final = Target(
    name="megatron-bridge",
    title="Megatron-Bridge",
    version="0.6.2",
    abilities=replace(
        ABILITIES,
        methods=tuple(STARTS),
        precisions=tuple(each for each in ABILITIES.precisions if each is not Precision.FP32),
    ),
    launch="bash train.sh",
    page="docs/targets/megatron-bridge.md",
    engine="megatron-bridge",
    also=beyond,
)
DATA: Final = {
    Method.PRETRAIN: "# DATA is the prefix of .bin and .idx files that preprocess_data.py of Megatron makes",
    Method.FULL: "# its columns are those that dataset.preprocessing names: input and output",
}


def write(order: Order) -> list[OutFile]:
    """A recipe in Python, and the script that starts it on each node."""
    return [
        OutFile(name="recipe.py", text=_recipe(order)),
        OutFile(name="train.sh", text=_launch(order), is_executable=True),
    ]


def _recipe(order: Order) -> str:
    method = order.problem.workload.method
    module, function = RUNS[method]
    settings = "".join(
        f"    cfg.{name} = {_spoken(value)}\n" for name, value in {**_parallel(order), **_task(order)}.items()
    )
    return (
        f"{header(TARGET, order)}"
        "import os\n\n"
        "import torch\n"
        "from megatron.bridge import AutoBridge\n"
        f"from megatron.bridge.recipes.common import {STARTS[method]}\n"
        "from megatron.bridge.training.gpt_step import forward_step\n"
        f"from megatron.bridge.training.{module} import {function}\n\n\n"
        "def escala_config():\n"
        f"    cfg = {STARTS[method]}()\n"
        f"    bridge = AutoBridge.from_hf_pretrained({json.dumps(order.model)})\n"
        "    cfg.model = bridge.to_megatron_provider(load_weights=False)\n"
        f"    cfg.tokenizer.tokenizer_model = {json.dumps(order.model)}\n"
        f"{settings}{_data(order)}"
        "    return cfg\n\n\n"
        'if __name__ == "__main__":\n'
        f"    {function}(escala_config(), forward_step)\n"
    )


def _spoken(value: Setting) -> str:
    return value.removeprefix("=") if isinstance(value, str) and value.startswith("=") else repr(value)


def _data(order: Order) -> str:
    """Where samples and first weights come from."""
    if order.problem.workload.method is Method.PRETRAIN:
        data = f'os.environ.get("DATA", {json.dumps(order.data)})'
        return f"    {DATA[Method.PRETRAIN]}\n    cfg.dataset.blend = ([{data}], None)\n"
    return (
        f"    {DATA[Method.FULL]}\n"
        "    cfg.dataset.hf_dataset.dataset_name = None\n"
        f"    cfg.dataset.hf_dataset.path_or_dataset = {json.dumps(order.data)}\n"
        "    # the weights to begin with, converted by AutoBridge.import_ckpt\n"
        '    cfg.checkpoint.pretrained_checkpoint = os.environ["WEIGHTS"]\n'
    )


def _parallel(order: Order) -> dict[str, Setting]:
    plan = order.plan
    found: dict[str, Setting] = {
        "model.tensor_model_parallel_size": plan.tp,
        "model.sequence_parallel": plan.sp and plan.tp > 1,
        "model.pipeline_model_parallel_size": plan.pp,
        f"model.{VIRTUAL}": plan.virtual_stages if plan.virtual_stages > 1 else None,
        "model.pipeline_dtype": "=torch.bfloat16" if plan.pp > 1 else None,
        "model.context_parallel_size": plan.cp,
        "model.expert_model_parallel_size": plan.ep,
    }
    if plan.precision is Precision.FP16 and plan.pp > 1:
        found["model.pipeline_dtype"] = "=torch.float16"
    if plan.cp > 1:
        found["model.cp_comm_type"] = name_of(CONTEXT, plan.cp_kind)
    if plan.ep > 1:
        found["model.expert_tensor_parallel_size"] = plan.etp
        found["model.moe_token_dispatcher_type"] = name_of(DISPATCHERS, plan.dispatcher)
        found["model.moe_grouped_gemm"] = True
    return {**found, **_recompute(order), **_states(order)}


def _recompute(order: Order) -> dict[str, Setting]:
    plan = order.plan
    mode = plan.recompute
    some = mode is Recompute.FIRST_LAYERS
    whole = mode in (Recompute.FULL, Recompute.FIRST_LAYERS)
    layers = plan.recompute_layers // plan.virtual_stages if some else 1
    granularity = "selective" if mode is Recompute.SELECTIVE else "full" if whole else None
    return {
        "model.recompute_granularity": granularity,
        "model.recompute_method": ("block" if some else "uniform") if whole else None,
        "model.recompute_num_layers": layers if whole else None,
    }


def _states(order: Order) -> dict[str, Setting]:
    plan = order.plan
    found: dict[str, Setting] = {
        "ddp.use_distributed_optimizer": plan.zero > 0,
        "optimizer.use_distributed_optimizer": plan.zero > 0,
        "ddp.overlap_grad_reduce": plan.dp * plan.cp > 1,
        "ddp.overlap_param_gather": plan.zero > 0,
        "ddp.use_megatron_fsdp": plan.zero >= 2,
    }
    if plan.zero >= 2:
        found["ddp.data_parallel_sharding_strategy"] = next(n for n, z in SHARDING.items() if z == plan.zero)
        found["checkpoint.ckpt_format"] = "fsdp_dtensor"
        found["model.gradient_accumulation_fusion"] = False
    if 1 < plan.shard < plan.dp * plan.cp:
        found["ddp.num_distributed_optimizer_instances"] = plan.dp * plan.cp // plan.shard
    if plan.offload_optimizer is Offload.CPU:
        found["optimizer.optimizer_cpu_offload"] = True
        found["optimizer.use_precision_aware_optimizer"] = True
    return found


def _task(order: Order) -> dict[str, Setting]:
    work, plan = order.problem.workload, order.plan
    found: dict[str, Setting] = {
        "model.seq_length": work.sequence_tokens,
        "dataset.seq_length": work.sequence_tokens,
        "train.micro_batch_size": plan.micro_batch,
        "train.global_batch_size": work.global_batch,
        "train.train_iters": order.steps,
        "optimizer.lr": order.learning_rate,
        "optimizer.min_lr": order.learning_rate / 10,
        "scheduler.lr_warmup_iters": max(order.steps // 100, 1),
        "mixed_precision": next(name for name, each in RECIPES.items() if each is plan.precision),
    }
    if work.lora is not None:
        found |= {"peft.dim": work.lora.rank, "peft.alpha": 2 * work.lora.rank}
    return found


def _launch(order: Order) -> str:
    nodes = f"--nnodes {order.nodes} --nproc-per-node {order.devices_per_node}"
    meeting = '--node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT"'
    joined = meeting if order.nodes > 1 else "--standalone"
    one = order.plan.zero < 2 and order.plan.tp * order.plan.cp > 1
    setting = "export CUDA_DEVICE_MAX_CONNECTIONS=1\n" if one else ""
    start = f"#!/bin/bash\n{header(TARGET, order)}set -euo pipefail\n{setting}"
    return f"{start}torchrun {nodes} \\\n    {joined} \\\n    recipe.py\n"
