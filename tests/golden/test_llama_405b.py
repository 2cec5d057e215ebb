"""Llama 3.1 405B as it was trained: the layout of the paper, found through the search."""

from dataclasses import replace

import pytest

from escala import catalog
from escala.catalog.networks import network
from escala.model.flops import model_flop
from escala.model.problem import Problem
from escala.model.workload import Workload
from escala.planning.search import search
from escala.planning.space import SpaceLimits, groups, size

# Llama Team 2024, The Llama 3 Herd of Models, arXiv 2407.21783, Table 4, second row: 16,384 GPUs, TP 8, CP 1,
# PP 16, DP 128, 8,192 tokens, 16 sequences for each DP rank: 400 TFLOP/s a GPU, 41 % MFU
PUBLISHED_FLOP_PER_S = 400e12
PAPER_LAYOUT = SpaceLimits(fixed={"tp": (8,), "pp": (16,), "dp": (128,), "cp": (1,)})
CLOSE = 0.12
LEAST_CONSIDERED = 10_000


def gathering_again(engine):
    """An engine with the paper's tensor and sequence parallelism, of Korthikanti et al. 2023 (section 3.3.2).

    It keeps a rank's part of an input and gathers it again in backward; PyTorch's DTensor keeps inputs whole.
    """
    return replace(engine, messages=(), memory=replace(engine.memory, keeps_gathered_inputs=False))


@pytest.fixture(scope="module")
def problem():
    return Problem(
        workload=Workload(network=network("llama-3.1-405b"), sequence_tokens=8192, global_batch=2048),
        cluster=catalog.cluster_for("h100-sxm", 16_384),
        engine=gathering_again(catalog.engine("pytorch")),
        assumptions=catalog.assumptions(),
    )


def test_the_layout_of_the_paper_reaches_its_flops(problem):
    found = search(problem, PAPER_LAYOUT)

    assert found.ranking is not None
    achieved = model_flop(problem.workload) / found.ranking.step_s[0] / 16_384
    error = achieved / PUBLISHED_FLOP_PER_S - 1
    print(f"\n400 TFLOP/s published, {achieved / 1e12:.0f} predicted ({error:+.1%})")
    assert achieved == pytest.approx(PUBLISHED_FLOP_PER_S, rel=CLOSE)


def test_the_layout_of_the_paper_fits(problem):
    found = search(problem, PAPER_LAYOUT)

    assert not found.is_risky


def test_the_unrestricted_space_has_more_than_ten_thousand_plans(problem):
    everything = SpaceLimits()

    assert size(problem, everything, groups(problem, everything)) >= LEAST_CONSIDERED
