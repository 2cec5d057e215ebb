"""Plans as torchtitan 0.3 configurations: a Python module with one function. Knows no other version."""

from typing import Final

from escala.foreign.orders import ANY, TRAINED, Abilities, Order, OutFile, Target, header
from escala.foreign.torchtitan.meaning import BACKENDS, CONVERTERS, DTYPES, MODES, POLICIES, SCHEDULES
from escala.foreign.torchtitan.reading import VERSION
from escala.foreign.torchtitan.sizes import flavor_of, size_of
from escala.model.plan import (
    Compile,
    ContextKind,
    Dispatcher,
    Offload,
    Plan,
    Precision,
    Split,
)
from escala.model.stages import deal
from escala.model.workload import Method

MODULE: Final = "escala_torchtitan"
FUNCTION: Final = "escala_run"
DATASETS: Final = {"allenai/c4": "c4", "c4": "c4", "c4_test": "c4_test"}
"""Datasets that torchtitan knows by a name of its own."""
WITH_BACKEND: Final = ("deepseek_v3", "gpt_oss", "qwen3")
OPTIONS: Final = {
    Precision.NVFP4: 'fqns=["layers"], ',  # the head's products are no multiple of 128
    Precision.FP8_ROWWISE: 'recipe_name="rowwise", filter_fqns=["lm_head"], ',
    Precision.MXFP8: 'fqns=["layers"], ',
}


def also(order: Order) -> list[str]:
    """What torchtitan refuses beyond its abilities: other models, and combinations."""
    plan, name = order.plan, order.problem.workload.network.name
    found = flavor_of(name)
    if found is None:
        return [f"the network {name}: it ships Llama 3, Qwen3, DeepSeek V3 and gpt-oss"]
    size = size_of(*found)
    assert size is not None
    tokens = int(order.problem.workload.sequence_tokens)
    unit = (plan.tp if plan.sp else 1) * (2 * plan.cp if plan.cp > 1 else 1)
    reasons = {
        f"{tokens} tokens, no multiple of {unit}": tokens % unit != 0,
        f"{tokens} tokens: the model takes {size.max_tokens}": tokens > size.max_tokens,
        f"tp {plan.tp} for {size.kv_heads} KV heads, which it does not replicate": size.kv_heads % plan.tp
        != 0,
        "a pipeline for a model whose embedding and head are one weight": size.tied and plan.pp > 1,
        "replicas with context parallelism: it shards weights over both": plan.zero == 0 and plan.cp > 1,
        f"shards over {plan.shard} ranks, no multiple of cp {plan.cp}": plan.zero == 3
        and plan.shard % plan.cp != 0,
        "offload of weights or optimizer alone: it offloads both or neither": plan.offload_optimizer
        is not plan.offload_params,
        "offload without shards (ZeRO-3)": plan.offload_params is not Offload.NONE and plan.zero != 3,
        "experts without tensor parallelism beside it": bool(size.experts)
        and plan.ep == 1
        and plan.etp != plan.tp,
        f"expert tensor parallelism {plan.etp}: experts take their ranks from it": plan.ep > 1
        and plan.etp > 1,
        f"ep {plan.ep} for {_sparse(plan)} ranks that hold experts": _sparse(plan) % plan.ep != 0,
        "attention of gpt-oss under context parallelism": found[0] == "gpt_oss" and plan.cp > 1,
        "scaled formats without torch.compile": plan.precision in CONVERTERS.values()
        and plan.compile is Compile.OFF,
    }
    return [reason for reason, is_lacking in reasons.items() if is_lacking]


TARGET: Final = Target(
    name="torchtitan",
    title="torchtitan",
    version=VERSION,
    abilities=Abilities(
        zero=(0, 3),
        no_reshard=True,
        hybrid=True,
        tp=ANY,
        sp=(False, True),
        pp=ANY,
        schedules=tuple(SCHEDULES.values()),
        splits=tuple(Split),
        cp=ANY,
        cp_kinds=(ContextKind.ALL_GATHER,),
        ep=ANY,
        etp=ANY,
        dispatchers=(Dispatcher.ALL_TO_ALL, Dispatcher.FUSED),
        recompute=tuple(MODES.values()),
        offload_optimizer=(Offload.NONE, Offload.CPU),
        offload_params=(Offload.NONE, Offload.CPU),
        precisions=(*DTYPES.values(), *CONVERTERS.values()),
        compiles=(Compile.OFF, Compile.DEFAULT),
        fused_loss=True,
        methods=TRAINED,
    ),
    launch=(
        "PYTHONPATH=. torchrun --standalone --nproc-per-node {devices_per_node} "
        f"-m torchtitan.train --module {MODULE} --config {FUNCTION}"
    ),
    launch_nodes=(
        "PYTHONPATH=. torchrun --nnodes {nodes} --nproc-per-node {devices_per_node} --rdzv-backend c10d "
        "--rdzv-id escala --rdzv-endpoint $MASTER_ADDR:$MASTER_PORT "
        f"-m torchtitan.train --module {MODULE} --config {FUNCTION}"
    ),
    page="docs/targets/torchtitan.md",
    also=also,
)


def write(order: Order) -> list[OutFile]:
    """The module of an order."""
    text = header(TARGET, order) + _imports(order) + _function(order)
    return [OutFile(name=f"{MODULE}.py", text=text)]


def _sparse(plan: Plan) -> int:
    """Ranks that experts are spread over: shards of data * cp * tp."""
    return (plan.shard if plan.zero == 3 else plan.cp) * plan.tp


def _flavor(order: Order) -> tuple[str, str]:
    found = flavor_of(order.problem.workload.network.name)
    assert found is not None
    return found


def _imports(order: Order) -> str:
    plan = order.plan
    names = {_policy(plan): "torchtitan.distributed.activation_checkpoint", _converter(plan): QUANTIZATION}
    lines = [f"from {module} import {name}" for name, module in names.items() if name]
    loss = "ChunkedLossWrapper, CrossEntropyLoss" if plan.fused_loss else "CrossEntropyLoss"
    lines += [
        "from torchtitan.components.checkpoint import CheckpointManager",
        f"from torchtitan.components.loss import {loss}",
        "from torchtitan.components.optimizer import default_adamw",
        "from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig",
        "from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader",
        "from torchtitan.models.common.config_utils import decoder_vocab_size",
        f"from torchtitan.models.{_flavor(order)[0]} import model_registry",
        "from torchtitan.trainer import Trainer",
    ]
    return "\n" + "\n".join(sorted(lines)) + "\n"


QUANTIZATION: Final = "torchtitan.components.quantization"


def _policy(plan: Plan) -> str:
    """The class of the checkpointing of a plan; empty for none."""
    mode = next(name for name, choice in MODES.items() if choice is plan.recompute)
    return next((name for name, each in POLICIES.items() if each == mode), "")


def _converter(plan: Plan) -> str:
    return next((name for name, precision in CONVERTERS.items() if precision is plan.precision), "")


def _function(order: Order) -> str:
    plan, work = order.plan, order.problem.workload
    local = plan.micro_batch * (plan.micro_batches if plan.pp > 1 else 1)
    policy = _policy(plan)
    loss = "CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(model_spec))"
    sections = {
        "hf_assets_path": repr(order.model),
        "model_spec": "model_spec",
        "loss": f"ChunkedLossWrapper.Config(loss_fn={loss})" if plan.fused_loss else loss,
        "optimizer": f"default_adamw(lr={order.learning_rate!r})",
        "training": _call("TrainingConfig", _training(order, local)),
        "dataloader": _call("HuggingFaceTextDataLoader.Config", _data(order.data)),
        "parallelism": _call("ParallelismConfig", _parallelism(order)),
        "compile": f"CompileConfig(enable={plan.compile is Compile.DEFAULT})",
        "activation_checkpoint": f"{policy}.Config()" if policy else "None",
        "checkpoint": _call("CheckpointManager.Config", _start(work.method)),
    }
    body = "".join(f"        {name}={value},\n" for name, value in sections.items())
    return (
        f"\n\ndef {FUNCTION}() -> Trainer.Config:\n"
        f"    model_spec = {_model(order)}\n"
        f"    return Trainer.Config(\n{body}    )\n"
    )


def _call(name: str, values: dict[str, object]) -> str:
    """A call with one argument a line, two levels deep."""
    inside = "".join(f"            {key}={_shown(value)},\n" for key, value in values.items())
    return f"{name}(\n{inside}        )"


def _shown(value: object) -> str:
    """A value as Python has it; of lists in a list each has its own line."""
    if not isinstance(value, list):
        return repr(value)
    inside = "".join(f"                {each!r},\n" for each in value)
    return f"[\n{inside}            ]"


def _model(order: Order) -> str:
    plan, (module, flavor) = order.plan, _flavor(order)
    words = [repr(flavor)]
    if plan.ep > 1 and module in WITH_BACKEND:
        backend = next(name for name, each in BACKENDS.items() if each is plan.dispatcher)
        words.append(f"moe_comm_backend={backend!r}")
    if converter := _converter(plan):
        options = OPTIONS[plan.precision]
        words.append(f"converters=[{converter}.Config({options}model_compile_enabled=True)]")
    return f"model_registry({', '.join(words)})"


def _training(order: Order, local: int) -> dict[str, object]:
    plan, work = order.plan, order.problem.workload
    values: dict[str, object] = {
        "local_batch_size": local,
        "global_batch_size": int(work.global_batch),
        "seq_len": int(work.sequence_tokens),
        "steps": order.steps,
        "disable_cuda_graphs": True,
    }
    if plan.offload_params is Offload.CPU:
        values["enable_cpu_offload"] = True
    if plan.precision is Precision.FP32:
        values["mixed_precision_param"] = "float32"
    return values


def _data(data: str) -> dict[str, object]:
    name = DATASETS.get(data)
    return {"dataset": name} if name else {"dataset": "c4", "dataset_path": data}


def _parallelism(order: Order) -> dict[str, object]:
    plan = order.plan
    shard = plan.shard // plan.cp if plan.zero == 3 else 1
    values: dict[str, object] = {
        "data_parallel_replicate_degree": plan.dp // shard,
        "data_parallel_shard_degree": shard,
        "tensor_parallel_degree": plan.tp,
        "pipeline_parallel_degree": plan.pp,
        "context_parallel_degree": plan.cp,
        "expert_parallel_degree": plan.ep,
    }
    if plan.tp > 1:
        values["enable_sequence_parallel"] = plan.sp
    if plan.zero == 3:
        values["fsdp_reshard_after_forward"] = "always" if plan.reshard else "never"
    return values | (_pipeline(order) if plan.pp > 1 else {})


def _pipeline(order: Order) -> dict[str, object]:
    """The schedule, and the modules of each stage, since torchtitan deals layers in another way."""
    plan, network_of_it = order.plan, order.problem.workload.network
    stages = deal(network_of_it.layers, plan.pp * plan.virtual_stages, plan.split, plan.stage_layers)
    return {
        "pipeline_parallel_schedule": next(name for name, each in SCHEDULES.items() if each is plan.schedule),
        "pipeline_parallel_microbatch_size": plan.micro_batch,
        "module_fqns_per_model_part": _parts(stages),
    }


def _parts(stages: list[int]) -> list[list[str]]:
    parts, first = list[list[str]](), 0
    for count in stages:
        parts.append([f"layers.{layer}" for layer in range(first, first + count)])
        first += count
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "lm_head"]
    return parts


def _start(method: Method) -> dict[str, object]:
    """Where weights come from: nowhere for a pretraining, else hf_assets_path."""
    if method is Method.PRETRAIN:
        return {"enable": True, "interval": 500}
    return {"enable": True, "interval": 500, "initial_load_in_hf": True}
