"""The training script and its options, for targets that start Hugging Face's Trainer. Knows no launcher."""

import shlex
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Final

from escala.foreign.orders import Order, OutFile, Target, header
from escala.model.plan import Compile, Precision, Recompute
from escala.model.workload import Method, Optimizer, OptimizerKind

SCRIPT: Final = "train.py"
LAUNCH: Final = "launch.sh"
COMPILES: Final[Mapping[Compile, str]] = {
    Compile.DEFAULT: "default",
    Compile.REDUCE_OVERHEAD: "reduce-overhead",
    Compile.MAX_AUTOTUNE: "max-autotune",
}
"""torch.compile's modes by name."""
RECOMPUTES: Final = (Recompute.NONE, Recompute.FULL)


def optimizer_name(optimizer: Optimizer) -> str | None:
    """The Trainer's name of an optimizer; None where it has none without another library."""
    if optimizer.kind is OptimizerKind.ADAMW and optimizer.state_bytes == 4:
        return "adamw_torch_fused" if optimizer.is_fused else "adamw_torch"
    if optimizer.kind is OptimizerKind.ADAMW and optimizer.state_bytes < 2:
        return "paged_adamw_8bit" if optimizer.is_paged else "adamw_bnb_8bit"
    if optimizer.kind is OptimizerKind.SGD and optimizer.moments == 0:
        return "sgd"
    return "adafactor" if optimizer.kind is OptimizerKind.ADAFACTOR else None


def optimizer_lacks(order: Order) -> list[str]:
    """Why the optimizer of an order cannot be written."""
    optimizer = order.problem.workload.optimizer
    if optimizer_name(optimizer) is not None:
        return []
    return [f"{optimizer.kind} with {optimizer.state_bytes:g}-byte states: the Trainer has no such optimizer"]


def arguments(order: Order, dtype: str, **more: str) -> list[str]:
    """The options of the script: the task, the batch and how long; `more` are those of a target."""
    plan, work = order.plan, order.problem.workload
    options = {
        "model_name_or_path": order.model,
        "dataset_name": order.data,
        "block_size": str(work.sequence_tokens),
        "dtype": dtype,
        "from_scratch": "true" if work.method is Method.PRETRAIN else "",
        "per_device_train_batch_size": str(plan.micro_batch),
        "gradient_accumulation_steps": str(plan.micro_batches),
        "max_steps": str(order.steps),
        "learning_rate": f"{order.learning_rate:g}",
        "use_liger_kernel": "true" if plan.fused_loss else "",
        **more,
        "output_dir": "output",
    }
    return [word for name, value in options.items() if value for word in (f"--{name}", value)]


def weights_dtype(precision: Precision, *, is_sharded_by_deepspeed: bool) -> str:
    """The format in which weights are loaded: DeepSpeed keeps its own fp32 copy, FSDP and DDP train these."""
    if not is_sharded_by_deepspeed:
        return "float32"
    return {Precision.FP16: "float16", Precision.BF16: "bfloat16"}.get(precision, "float32")


def script_file(target: Target, order: Order) -> OutFile:
    """The training script under the header of its order."""
    text = files("escala.foreign").joinpath("data/templates/trainer.py.txt").read_text("utf-8")
    return OutFile(name=SCRIPT, text=header(target, order) + "\n" + text)


def launch_file(target: Target, order: Order, line: list[str], options: list[str]) -> OutFile:
    """A shell script that runs a launch line beside its files; words that begin with $ are variables."""
    first = " ".join(_quoted(word) for word in line)
    pairs = [" ".join(_quoted(word) for word in pair) for pair in _pairs(options)]
    body = " \\\n  ".join([first, *pairs])
    start = 'set -euo pipefail\ncd "$(dirname "$0")"\n'
    return OutFile(
        name=LAUNCH, text=f"#!/usr/bin/env bash\n{header(target, order)}{start}{body}\n", is_executable=True
    )


def _pairs(options: list[str]) -> Iterator[list[str]]:
    """Each option with its value."""
    for index in range(0, len(options), 2):
        yield options[index : index + 2]


def _quoted(word: str) -> str:
    """A word for a shell; a variable keeps its meaning."""
    return f'"{word}"' if word.startswith("$") else shlex.quote(word)
