"""The problems that the benchmarks ask about, and plans drawn from their spaces."""

from dataclasses import dataclass

import numpy as np

from escala import catalog
from escala.catalog.networks import network
from escala.model.estimate import estimate
from escala.model.memory import Verdict
from escala.model.plan import Plans, Recompute, concatenate
from escala.model.problem import Problem
from escala.model.workload import Workload
from escala.planning.cells import cells, expand, fill
from escala.planning.space import SpaceLimits, groups
from escala.planning.variants import changed


@dataclass(frozen=True)
class Question:
    """A network on a cluster."""

    title: str
    network: str
    device: str
    devices: int
    sequence_tokens: int
    global_batch: int

    def problem(self) -> Problem:
        """The question under the default engine."""
        return Problem(
            workload=Workload(
                network=network(self.network),
                sequence_tokens=self.sequence_tokens,
                global_batch=self.global_batch,
            ),
            cluster=catalog.cluster_for(self.device, self.devices),
            engine=catalog.engine("pytorch"),
            assumptions=catalog.assumptions(),
        )


QUESTIONS = {
    "gpt3-175b": Question("GPT-3 175B, 1,024 A100", "gpt3-175b", "a100-sxm-80gb", 1024, 2048, 1536),
    "llama-405b": Question("Llama 3.1 405B, 16,384 H100", "llama-3.1-405b", "h100-sxm", 16_384, 8192, 2048),
    "deepseek-v3": Question("DeepSeek-V3, 2,048 H800", "deepseek-v3", "h800-sxm", 2048, 4096, 15_360),
    "100k": Question("Llama 3.1 405B, 100,352 H100", "llama-3.1-405b", "h100-sxm", 100_352, 8192, 100_352),
}


def sample(problem: Problem, count: int, seed: int = 1) -> Plans:
    """Plans of the space at random, those that fit first, with every recompute mode, compiled and not."""
    rng = np.random.default_rng(seed)
    limits = SpaceLimits()
    every = groups(problem, limits)
    parts = []
    for group in every:
        columns, _ = expand(group, cells(group))
        ways = fill(columns, len(columns["dp"]), limits.plain)
        parts.append(ways.take(rng.integers(0, len(ways), 8 * count // len(every) + 1)))
    ways = concatenate(parts)
    mode = rng.integers(0, 4, len(ways))
    layers = rng.integers(1, np.maximum(problem.workload.network.layers // ways.pp, 2))
    plans = changed(
        ways,
        recompute=mode,
        recompute_layers=np.where(mode == Recompute.FIRST_LAYERS, layers, 0),
        compile=rng.integers(0, 2, len(ways)),
        fused_loss=rng.integers(0, 2, len(ways)),
    )
    fits = estimate(problem, plans).memory.verdict != Verdict.DOES_NOT_FIT
    order = rng.permutation(len(plans))
    order = order[np.argsort(~fits[order], kind="stable")]
    return plans.take(rng.permutation(order[:count]))
