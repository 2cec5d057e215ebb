"""Plans as Accelerate's YAML for Megatron-LM, and the launch line of Accelerate's own example for it."""

from typing import Final

from escala.foreign.accelerate.files import VERSION, config_file, line_file
from escala.foreign.orders import ANY, Abilities, Order, OutFile, Target
from escala.foreign.trainerscript import LAUNCH
from escala.model.plan import ContextKind, Dispatcher, Offload, Precision, Recompute, Schedule
from escala.model.workload import Method, OptimizerKind

SCRIPT: Final = "megatron_lm_gpt_pretraining.py"
"""Of accelerate's examples/by_feature; Hugging Face's Trainer does not run on Megatron-LM."""


def _also(order: Order) -> list[str]:
    """What goes with something else only."""
    plan, optimizer = order.plan, order.problem.workload.optimizer
    reasons: list[str] = []
    if optimizer.kind not in (OptimizerKind.ADAMW, OptimizerKind.SGD):
        reasons.append(f"{optimizer.kind}: Megatron-LM takes Adam and SGD here")
    if plan.recompute is Recompute.FIRST_LAYERS and plan.pp > 1:
        reasons.append("recompute of first layers in a pipeline: the number would count for every stage")
    if plan.zero == 1 and plan.shard != plan.dp * plan.cp:
        reasons.append("an optimizer that is sharded over part of the replicas")
    return reasons


TARGET: Final = Target(
    name="accelerate-megatron",
    title="Accelerate with Megatron-LM",
    version=VERSION,
    abilities=Abilities(
        zero=(0, 1),
        tp=ANY,
        sp=(False, True),
        pp=ANY,
        schedules=(Schedule.ONE_F_ONE_B,),
        cp=ANY,
        cp_kinds=(ContextKind.RING,),
        ep=ANY,
        etp=ANY,
        dispatchers=(Dispatcher.ALL_GATHER,),
        recompute=(Recompute.NONE, Recompute.FIRST_LAYERS, Recompute.FULL),
        offload_optimizer=(Offload.NONE, Offload.CPU),
        precisions=(Precision.FP16, Precision.BF16),
        methods=(Method.PRETRAIN,),
    ),
    launch=f"bash {LAUNCH}",
    page="docs/targets/accelerate.md",
    engine="megatron-core",
    also=_also,
)


def write(order: Order) -> list[OutFile]:
    """The configuration and the launch line; the script is Accelerate's example, or one's own like it."""
    plan, work = order.plan, order.problem.workload
    options = {
        "config_name": order.model,
        "tokenizer_name": order.model,
        "dataset_name": order.data,
        "block_size": str(work.sequence_tokens),
        "per_device_train_batch_size": str(plan.micro_batch),
        "max_train_steps": str(order.steps),
        "learning_rate": f"{order.learning_rate:g}",
        "output_dir": "output",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    config = config_file(TARGET, order, "MEGATRON_LM", {"megatron_lm_config": _megatron(order)})
    return [config, line_file(TARGET, order, SCRIPT, words)]


def _megatron(order: Order) -> dict[str, object]:
    """Every degree is written, since Accelerate's own defaults are not one throughout."""
    plan = order.plan
    block: dict[str, object] = {
        "megatron_lm_tp_degree": plan.tp,
        "megatron_lm_pp_degree": plan.pp,
        "megatron_lm_context_parallel_size": plan.cp,
        "megatron_lm_expert_model_parallel_size": plan.ep,
        "megatron_lm_expert_tensor_parallel_size": plan.etp,
        "megatron_lm_num_micro_batches": plan.micro_batches,
        "megatron_lm_sequence_parallelism": plan.sp,
        "megatron_lm_use_distributed_optimizer": plan.zero == 1,
        "megatron_lm_optimizer_cpu_offload": plan.offload_optimizer is Offload.CPU,
        "megatron_lm_gradient_clipping": 1.0,
        "megatron_lm_recompute_granularity": "full",
        "megatron_lm_recompute_method": "uniform",
        "megatron_lm_recompute_num_layers": 1,
    }
    if plan.recompute is not Recompute.FULL:
        # without a granularity Accelerate takes full; the first 0 layers of a stage are none of them
        layers = plan.recompute_layers if plan.recompute is Recompute.FIRST_LAYERS else 0
        block["megatron_lm_recompute_method"] = "block"
        block["megatron_lm_recompute_num_layers"] = layers
    return block
