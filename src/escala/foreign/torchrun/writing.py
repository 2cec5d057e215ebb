"""A script that starts escala's own training of a plan under torchrun, on one node or on each of several."""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from escala.foreign.orders import ANY, MIXED, Abilities, Order, OutFile, Target, header
from escala.model.compositions import composition_reasons
from escala.model.plan import Compile, ContextKind, Dispatcher, Offload, Precision, Recompute, Schedule, Split
from escala.model.workload import Method

ADAPTED: Final = (Method.LORA, Method.QLORA)
TUNED: Final = (Method.FULL, *ADAPTED)
CORPORA: Final = ("stdlib", "synthetic")
"""Data of `escala train` that need no folder."""


def _also(order: Order) -> list[str]:
    """What escala's own engine does not run, beyond the number formats that abilities name."""
    plan = order.plan
    reasons = list(composition_reasons(replace(plan, precision=Precision.BF16, fused_loss=False)))
    if order.problem.workload.method in ADAPTED and plan.tp * plan.ep * plan.pp > 1:
        reasons.append("adapters with tensor, expert or pipeline parallelism")
    if plan.compile and plan.schedule is Schedule.ZERO_BUBBLE_V:
        reasons.append("zero-bubble-v with torch.compile")
    return reasons


TARGET: Final = Target(
    name="torchrun",
    title="torchrun with escala, torch",
    version="2.13.0",
    abilities=Abilities(
        zero=(0, 1, 2, 3),
        no_reshard=True,
        hybrid=True,
        tp=ANY,
        sp=(False, True),
        pp=ANY,
        schedules=tuple(each for each in Schedule if each),
        splits=tuple(Split),
        cp=ANY,
        cp_kinds=tuple(ContextKind),
        ep=ANY,
        etp=ANY,
        dispatchers=(Dispatcher.ALL_TO_ALL, Dispatcher.ALL_GATHER),
        recompute=tuple(Recompute),
        offload_optimizer=(Offload.NONE, Offload.CPU),
        offload_params=(Offload.NONE, Offload.CPU),
        offload_activations=(Offload.NONE, Offload.CPU),
        precisions=MIXED,
        compiles=tuple(Compile),
        local_steps=ANY,
        placements=True,
        methods=(Method.PRETRAIN, *TUNED),
        images=True,
    ),
    launch="bash launch.sh",
    launch_nodes="MASTER_ADDR=$MASTER_ADDR bash launch.sh",
    page="docs/targets/torchrun.md",
    also=_also,
)


def write(order: Order) -> list[OutFile]:
    """The script; the plan itself lies beside it."""
    lines = (
        "#!/usr/bin/env bash",
        header(TARGET, order).rstrip("\n"),
        "set -euo pipefail",
        'cd "$(dirname "$0")"',
        "# threads of each rank; torchrun sets 1 where nothing is said",
        'export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"',
        *_what(order),
        *_torchrun(order),
    )
    return [OutFile(name="launch.sh", text="\n".join(lines) + "\n", is_executable=True)]


def _what(order: Order) -> Iterator[str]:
    """The model and the data: folders where they are there, and what stands in for them where not."""
    model, data = shlex.quote(order.model), shlex.quote(order.data)
    yield f"arguments=(train plan.json --steps {order.steps} --lr {order.learning_rate:g})"
    yield f"model={model}"
    yield 'if [ -e "$model" ]; then'
    yield '  arguments+=(--module "$model")'
    yield "else"
    if order.problem.workload.method in TUNED:
        yield '  echo "there is no folder $model with weights to train on; download it first" >&2'
        yield "  exit 2"
    else:
        yield '  echo "there is no folder $model: the network of the plan begins with random weights" >&2'
    yield "fi"
    yield f"data={data}"
    if order.data not in CORPORA:
        yield 'if [ ! -d "$data" ]; then'
        yield '  echo "there is no folder $data (escala data prepare makes one): training on stdlib" >&2'
        yield "  data=stdlib"
        yield "fi"


def _torchrun(order: Order) -> Iterator[str]:
    """One command, the same on every node."""
    yield "exec torchrun \\"
    if order.nodes > 1:
        yield f"  --nnodes={order.nodes} --nproc-per-node={order.devices_per_node} \\"
        yield f"  --rdzv-backend=c10d --rdzv-id=escala-{order.digest} \\"
        yield '  --rdzv-endpoint="${MASTER_ADDR:?name of the first node}:${MASTER_PORT:-29500}" \\'
    else:
        yield f"  --standalone --nproc-per-node={order.devices_per_node} \\"
    yield '  -m escala "${arguments[@]}" --data "$data"'
