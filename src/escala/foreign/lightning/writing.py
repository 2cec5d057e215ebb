"""Plans as Lightning scripts: a module, its data and a Trainer. Knows no other tool's files.

What a strategy needs of the model (which layers are wrapped and computed again) is code, so that a script is
written and no YAML of LightningCLI.
"""

from string import Template
from typing import Final

from escala.foreign.lightning.meaning import SHARDINGS, WRITTEN, Sharding
from escala.foreign.lightning.reading import VERSION
from escala.foreign.orders import TRAINED, Abilities, Order, OutFile, Target, header
from escala.model.plan import Compile, Offload, Plan, Recompute
from escala.model.workload import Method, OptimizerKind

NAME: Final = "train_lightning.py"
STAGES: Final = (1, 2)
"""Stages that only DeepSpeed has."""


def also(order: Order) -> list[str]:
    """Combinations that no strategy has."""
    plan, work = order.plan, order.problem.workload
    is_deepspeed = _is_deepspeed(plan)
    reasons = {
        "a network without its class in transformers": work.network.wrapped_class is None and _is_fsdp(plan),
        f"the optimizer {work.optimizer.kind}": work.optimizer.kind is not OptimizerKind.ADAMW,
        "offload of weights below ZeRO-3": plan.offload_params is not Offload.NONE and plan.zero != 3,
        "offload without shards": plan.offload_optimizer is not Offload.NONE and plan.zero == 0,
        "DeepSpeed with weights that stay gathered, or with replicas of shards": is_deepspeed
        and ((plan.zero == 3 and not plan.reshard) or 1 < plan.shard < plan.dp),
    }
    return [reason for reason, is_lacking in reasons.items() if is_lacking]


TARGET: Final = Target(
    name="lightning",
    title="Lightning",
    version=VERSION,
    abilities=Abilities(
        zero=(0, 1, 2, 3),
        no_reshard=True,
        hybrid=True,
        recompute=(Recompute.NONE, Recompute.FULL),
        offload_optimizer=(Offload.NONE, Offload.CPU),
        offload_params=(Offload.NONE, Offload.CPU),
        precisions=tuple(WRITTEN),
        compiles=(Compile.OFF, Compile.DEFAULT),
        methods=TRAINED,
    ),
    launch=f"torchrun --standalone --nproc-per-node {{devices_per_node}} {NAME}",
    launch_nodes=(
        "torchrun --nnodes {nodes} --nproc-per-node {devices_per_node} --rdzv-backend c10d --rdzv-id escala "
        f"--rdzv-endpoint $MASTER_ADDR:$MASTER_PORT {NAME}"
    ),
    page="docs/targets/lightning.md",
    also=also,
)

SCRIPT: Final = Template('''
import lightning as L
import torch
from datasets import load_dataset
from torch.utils.data import DataLoader, IterableDataset
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
${imports}

MODEL, DATA, RANKS = ${model}, ${data}, ${ranks}


class Model(L.LightningModule):
    """A causal language model with its loss and its optimizer."""

    net = None

    def configure_model(self):
        if self.net is None:
            self.net = ${made}
${prepared}
    def training_step(self, batch, _):
        return self.net(input_ids=batch, labels=batch).loss

    def configure_optimizers(self):
        return ${optimizer}


class Samples(IterableDataset):
    """Token ids of this rank, packed to full sequences."""

    def __init__(self, max_length):
        self.max_length = max_length

    def __iter__(self):
        rank = torch.distributed.get_rank() if RANKS > 1 else 0
        tokenizer = AutoTokenizer.from_pretrained(MODEL)
        texts = load_dataset(DATA, split="train", streaming=True).shard(num_shards=RANKS, index=rank)
        ids = []
        for text in texts:
            ids += tokenizer(text["text"])["input_ids"]
            while len(ids) >= self.max_length:
                yield torch.tensor(ids[: self.max_length])
                ids = ids[self.max_length :]


if __name__ == "__main__":
    trainer = L.Trainer(
        accelerator="gpu",
        devices=${devices},
        num_nodes=${nodes},
        strategy=${strategy},
        precision=${precision},
        max_steps=${steps},
        accumulate_grad_batches=${accumulation},
        use_distributed_sampler=False,  # Samples gives each rank its own part
    )
    trainer.fit(Model(), DataLoader(Samples(max_length=${tokens}), batch_size=${batch}))
''')


def write(order: Order) -> list[OutFile]:
    """The script of an order."""
    return [OutFile(name=NAME, text=header(TARGET, order) + SCRIPT.substitute(_words(order)))]


def _words(order: Order) -> dict[str, object]:
    plan, work = order.plan, order.problem.workload
    pretrains = work.method is Method.PRETRAIN
    return {
        "imports": _imports(order),
        "model": repr(order.model),
        "data": repr(order.data),
        "ranks": plan.dp,
        "made": "AutoModelForCausalLM."
        + ("from_config(AutoConfig.from_pretrained(MODEL))" if pretrains else "from_pretrained(MODEL)"),
        "prepared": _prepared(plan),
        "optimizer": _optimizer(order),
        "tokens": int(work.sequence_tokens),
        "devices": order.devices_per_node,
        "nodes": order.nodes,
        "strategy": _strategy(order),
        "precision": repr(WRITTEN[plan.precision]),
        "steps": order.steps,
        "accumulation": plan.micro_batches,
        "batch": plan.micro_batch,
    }


def _is_deepspeed(plan: Plan) -> bool:
    """Whether only DeepSpeed has it: stages 1 and 2, or an optimizer on the host without the weights."""
    return plan.zero in STAGES or (plan.zero == 3 and plan.offload_optimizer is not plan.offload_params)


def _is_fsdp(plan: Plan) -> bool:
    return plan.zero == 3 and not _is_deepspeed(plan)


def _imports(order: Order) -> str:
    plan, network = order.plan, order.problem.workload.network
    lines: list[str] = []
    if _is_fsdp(plan):
        module = f"transformers.models.{network.family}.modeling_{network.family}"
        lines += [
            f"from {module} import {network.wrapped_class}",
            "from lightning.pytorch.strategies import FSDPStrategy",
        ]
    if _is_deepspeed(plan):
        lines.append("from lightning.pytorch.strategies import DeepSpeedStrategy")
    if _is_deepspeed(plan) and plan.offload_optimizer is Offload.CPU:
        lines.append("from deepspeed.ops.adam import DeepSpeedCPUAdam")
    return "".join(f"{line}\n" for line in lines)


def _prepared(plan: Plan) -> str:
    """What is done to the network before it is wrapped."""
    lines: list[str] = []
    if plan.recompute is Recompute.FULL:
        lines.append("self.net.gradient_checkpointing_enable()")
    if plan.compile is Compile.DEFAULT:
        lines.append("self.net.compile()")
    return "".join(f"            {line}\n" for line in lines)


def _optimizer(order: Order) -> str:
    plan, rate = order.plan, f"lr={order.learning_rate!r}"
    if plan.offload_optimizer is Offload.CPU:
        name = "DeepSpeedCPUAdam" if _is_deepspeed(plan) else "torch.optim.AdamW"
        return f"{name}(self.parameters(), {rate})"
    return f"torch.optim.AdamW(self.parameters(), {rate}, fused=True)"


def _strategy(order: Order) -> str:
    plan = order.plan
    if _is_deepspeed(plan):
        words = [f"stage={plan.zero}"]
        words += ["offload_optimizer=True"] if plan.offload_optimizer is Offload.CPU else []
        words += ["offload_parameters=True"] if plan.offload_params is Offload.CPU else []
        return f"DeepSpeedStrategy({', '.join(words)})"
    if not _is_fsdp(plan):
        return '"ddp"' if plan.dp > 1 else '"auto"'
    is_hybrid = 1 < plan.shard < plan.dp
    wanted = Sharding(zero=3, reshard=plan.reshard, is_hybrid=is_hybrid)
    name = next(name for name, each in SHARDINGS.items() if each == wanted)
    words = [
        f"auto_wrap_policy={{{order.problem.workload.network.wrapped_class}}}",
        f'sharding_strategy="{name}"',
    ]
    words += [f"device_mesh=({plan.dp // plan.shard}, {plan.shard})"] if is_hybrid else []
    words += ["cpu_offload=True"] if plan.offload_params is Offload.CPU else []
    return f"FSDPStrategy({', '.join(words)})"
