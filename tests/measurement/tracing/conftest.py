"""Published networks with few layers, as files, and problems for plans."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from escala.catalog import assumptions, cluster_for, engine
from escala.catalog.networks import config as config_of
from escala.formats.hf import read_network
from escala.model.network import Network
from escala.model.plan import Plan
from escala.model.problem import Problem
from escala.model.workload import Workload

SIZES: dict[str, dict[str, Any]] = {
    "llama": {**config_of("llama-3.1-8b"), "num_hidden_layers": 6},
    "moe": {**config_of("qwen3-30b-a3b"), "num_hidden_layers": 4},
    "gpt2": {**config_of("gpt2-xl"), "n_layer": 4},
}
TOKENS = 1024


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., Path]:
    """Writes a config.json, with changes."""

    def write(kind: str, **changes: Any) -> Path:
        folder = tmp_path / kind
        folder.mkdir(exist_ok=True)
        file = folder / "config.json"
        file.write_text(json.dumps({**SIZES[kind], **changes}))
        return file

    return write


def problem_of(network: Network, plan: Plan, tokens: int = TOKENS) -> Problem:
    return Problem(
        workload=Workload(
            network=network,
            sequence_tokens=tokens,
            global_batch=plan.dp * plan.micro_batch * plan.micro_batches,
        ),
        cluster=cluster_for("h100-sxm", plan.devices),
        engine=engine("pytorch"),
        assumptions=assumptions(),
    )


@pytest.fixture
def problem(config: Callable[..., Path]) -> Callable[..., Problem]:
    """The problem of a plan for one of the small networks."""

    def of(plan: Plan, kind: str = "llama", **changes: Any) -> Problem:
        return problem_of(read_network(config(kind, **changes)), plan)

    return of
