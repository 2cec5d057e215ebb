"""What the files of all targets of Accelerate have in common: the YAML's first keys and the launch line."""

from typing import Final

import yaml

from escala.foreign.orders import Order, OutFile, Target, header
from escala.foreign.trainerscript import launch_file
from escala.model.plan import Compile, Precision

CONFIG: Final = "accelerate.yaml"
VERSION: Final = "1.15.0"
FORMATS: Final = {
    Precision.FP32: "no",
    Precision.FP16: "fp16",
    Precision.BF16: "bf16",
    Precision.FP8_TENSORWISE: "fp8",
}
"""mixed_precision by precision; torchao's default recipe scales by tensor."""


def config_file(target: Target, order: Order, kind: str, blocks: dict[str, object]) -> OutFile:
    """The YAML: where it runs, which kind of parallelism, and the blocks of that kind."""
    content: dict[str, object] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": kind,
        "mixed_precision": FORMATS[order.plan.precision],
        "num_machines": order.nodes,
        "num_processes": order.plan.devices,
        "main_training_function": "main",
        **({"rdzv_backend": "static", "same_network": True} if order.nodes > 1 else {}),
        **blocks,
    }
    text = header(target, order) + yaml.safe_dump(content, sort_keys=False)
    return OutFile(name=CONFIG, text=text)


def dynamo_block(order: Order, mode: str) -> dict[str, object]:
    """torch.compile, where the plan has it."""
    if order.plan.compile is Compile.OFF:
        return {}
    return {"dynamo_config": {"dynamo_backend": "INDUCTOR", "dynamo_mode": mode}}


def line_file(target: Target, order: Order, script: str, options: list[str]) -> OutFile:
    """The launch line; each node gives its rank and the first one's address."""
    line = ["accelerate", "launch", "--config_file", CONFIG]
    if order.nodes > 1:
        line += ["--machine_rank", "$NODE_RANK"]
        line += ["--main_process_ip", "$MASTER_ADDR", "--main_process_port", "$MASTER_PORT"]
    return launch_file(target, order, [*line, script], options)
