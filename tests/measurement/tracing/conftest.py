"""Problems of published networks with few layers, whose config.json lies in a file."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from escala.catalog import assumptions, cluster_for, engine
from escala.catalog.networks import config as config_of
from escala.formats.hf import read_network
from escala.model.plan import Plan
from escala.model.problem import Problem
from escala.model.workload import Workload

SIZES: dict[str, dict[str, Any]] = {
    "llama": {**config_of("llama-3.1-8b"), "num_hidden_layers": 6},
    "moe": {**config_of("qwen3-30b-a3b"), "num_hidden_layers": 4},
    "gpt2": {**config_of("gpt2-xl"), "n_layer": 4},
}
TOKENS = {"llama": 8192, "moe": 8192, "gpt2": 1024}


@pytest.fixture(scope="session")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Problem]:
    """The problem of a plan for one of the networks, with changes of its config.json."""

    def of(plan: Plan, kind: str = "llama", **changes: Any) -> Problem:
        file = tmp_path_factory.mktemp(kind) / f"{kind}.json"
        file.write_text(json.dumps({**SIZES[kind], **changes}))
        return Problem(
            workload=Workload(
                network=read_network(file),
                sequence_tokens=TOKENS[kind],
                global_batch=plan.dp * plan.micro_batch * plan.micro_batches,
            ),
            cluster=cluster_for("h100-sxm", plan.devices),
            engine=engine("pytorch"),
            assumptions=assumptions(),
        )

    return of
