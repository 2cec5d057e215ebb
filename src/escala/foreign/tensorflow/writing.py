"""A script that tells each host its TF_CONFIG and starts a program of TensorFlow: one worker a host."""

import shlex
from collections.abc import Iterator
from typing import Final

from escala.foreign.orders import Abilities, Order, OutFile, Target, header
from escala.foreign.tensorflow.reading import POLICIES
from escala.model.plan import Compile, Precision
from escala.model.precision import recipe

PRECISIONS: Final = (Precision.FP32, Precision.TF32, Precision.BF16, Precision.FP16)
TARGET: Final = Target(
    name="tf-config",
    title="TF_CONFIG for TensorFlow",
    version="2.21.0",
    abilities=Abilities(precisions=PRECISIONS, compiles=(Compile.OFF, Compile.DEFAULT), images=True),
    launch="HOSTS='host0 host1 ...' bash tf_config.sh train.py",
    page="docs/targets/tf-config.md",
    engine="deeplearningexamples-tf2",
)


def write(order: Order) -> list[OutFile]:
    """The script, and in its comments what the program has to say itself."""
    lines = (
        "#!/usr/bin/env bash",
        header(TARGET, order).rstrip("\n"),
        *_program(order),
        "set -euo pipefail",
        f"nodes={order.nodes}",
        'program="${1:?name of the program}"',
        "shift",
        'read -r -a hosts <<< "${HOSTS:?names of the hosts, the same order on all of them}"',
        'if [ "${#hosts[@]}" -ne "$nodes" ]; then',
        '  echo "the plan is made for $nodes hosts, and HOSTS names ${#hosts[@]}" >&2',
        "  exit 2",
        "fi",
        'index="${NODE_RANK:-${SLURM_NODEID:-}}"',
        'for number in "${!hosts[@]}"; do',
        '  if [ -z "$index" ] && [ "${hosts[$number]}" = "$(hostname)" ]; then',
        '    index="$number"',
        "  fi",
        "done",
        ': "${index:?this host is none of HOSTS; give its number as NODE_RANK}"',
        'port="${MASTER_PORT:-12345}"',
        """workers="$(printf '"%s:'"$port"'",' "${hosts[@]}")\"""",
        """task='{"type": "worker", "index": %s}'""",
        """format='{"cluster": {"worker": [%s]}, "task": '"$task"'}'""",
        """# shellcheck disable=SC2059  # the format is the one above""",
        """config="$(printf "$format" "${workers%,}" "$index")\"""",
        'exec env TF_CONFIG="$config" python "$program" "$@"',
    )
    return [OutFile(name="tf_config.sh", text="\n".join(lines) + "\n", is_executable=True)]


def _program(order: Order) -> Iterator[str]:
    """What stands in the program, since no variable says it."""
    plan, devices = order.plan, order.plan.devices
    policies = {name: policy for policy, name in POLICIES.items()}
    policy = policies.get(recipe(plan.precision).name, "float32")
    several = order.nodes > 1
    strategy = "MultiWorkerMirroredStrategy" if several else "MirroredStrategy"
    yield "# in the program:"
    yield f"#   strategy = tf.distribute.{strategy}()  # {devices} devices"
    yield f'#   tf.keras.mixed_precision.set_global_policy("{policy}")'
    yield f"#   dataset.batch({plan.micro_batch} * strategy.num_replicas_in_sync)"
    rate = f"learning_rate={order.learning_rate:g}"
    steps = f", gradient_accumulation_steps={plan.micro_batches}" if plan.micro_batches > 1 else ""
    yield f"#   optimizer with {rate}{steps}, under strategy.scope()"
    if plan.compile:
        yield "#   model.compile(..., jit_compile=True)"
    yield f"#   model: {_in_comment(order.model)}"


def _in_comment(text: str) -> str:
    return shlex.quote(" ".join(text.split()))
