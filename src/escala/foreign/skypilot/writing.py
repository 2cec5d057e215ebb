"""A plan as a task of SkyPilot: nodes with their accelerators, and the line that starts the ranks there."""

from typing import Any, Final

from escala.foreign.orders import Order, OutFile, Target, header
from escala.foreign.scheduled import PORT, also, line_of, name_of, own_files, script, yaml_of
from escala.foreign.torchrun import writing

NAMES: Final = {
    "a10g": "A10G",
    "a10": "A10",
    "a100-sxm-40gb": "A100",
    "a100-pcie-40gb": "A100",
    "a100-sxm-80gb": "A100-80GB",
    "a100-pcie-80gb": "A100-80GB",
    "b200-sxm": "B200",
    "h100-sxm": "H100",
    "h100-pcie": "H100",
    "h200-sxm": "H200",
    "l4": "L4",
    "l40": "L40",
    "l40s": "L40S",
    "rtx-3090": "RTX3090",
    "rtx-4090": "RTX4090",
    "rtx-a6000": "RTXA6000",
    "t4": "T4",
    "v100-sxm2-16gb": "V100",
    "v100-sxm2-32gb": "V100-32GB",
}
"""Names of SkyPilot's catalogue; some clouds have both forms of a device under one."""


def _also(order: Order) -> list[str]:
    name = order.problem.accelerator.name
    unknown = [] if name in NAMES else [f"{name}: SkyPilot's catalogue has no such name that escala knows"]
    return [*unknown, *also(order)]


TARGET: Final = Target(
    name="skypilot",
    title="SkyPilot",
    version="0.14.1",
    abilities=writing.TARGET.abilities,
    launch="sky launch -c escala task.yaml",
    page="docs/targets/skypilot.md",
    wraps=True,
    also=_also,
)


def write(order: Order) -> list[OutFile]:
    """The task, and escala's own script where no other line is given."""
    return [
        OutFile(name="task.yaml", text=yaml_of(header(TARGET, order), task(order))),
        *own_files(TARGET, order),
    ]


def task(order: Order) -> dict[str, Any]:
    """Everything but the cloud, which SkyPilot chooses or the command line says."""
    resources: dict[str, Any] = {
        "accelerators": f"{NAMES[order.problem.accelerator.name]}:{order.devices_per_node}"
    }
    if order.nodes > 1:
        resources["network_tier"] = "best"
    run = (
        "set -euo pipefail",
        'MASTER_ADDR=$(echo "$SKYPILOT_NODE_IPS" | sed -n 1p)',
        f'export MASTER_ADDR MASTER_PORT={PORT} NODE_RANK="$SKYPILOT_NODE_RANK"',
        line_of(order),
    )
    setup = {} if order.launch else {"setup": script("pip install 'escala[torch]'")}
    head = {"name": name_of(order), "num_nodes": order.nodes, "resources": resources, "workdir": "."}
    return {**head, **setup, "run": script(*run)}
