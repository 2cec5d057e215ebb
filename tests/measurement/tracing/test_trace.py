"""Real modules of transformers on fake tensors, beside hand arithmetic and the formula; run by `make test-hf`.

All ranks of all plans are traced by one process, whose start costs more than its work.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from escala.errors import InvalidInput
from escala.formats.hf import read_network
from escala.measurement.tracing import process
from escala.measurement.tracing.beside import Beside, Compared, beside
from escala.measurement.tracing.conclude import RankStep, conclude
from escala.measurement.tracing.jobs import FORWARD, Held, Traced
from escala.measurement.tracing.ranks import TracedRank, traced_ranks
from escala.model.parameters import block_parameters, network_parameters
from escala.model.plan import Plan, Precision, Recompute, Schedule
from escala.model.problem import Problem
from tests.measurement.tracing.conftest import SIZES, TOKENS, problem_of

pytestmark = pytest.mark.optional

FSDP = Plan(dp=8, zero=3, reshard=True, shard=8)
SPLIT = Plan(dp=2, zero=3, reshard=True, shard=2, tp=4, sp=True)
PIPE = Plan(dp=2, zero=3, shard=2, pp=2, schedule=Schedule.ONE_F_ONE_B, micro_batches=4)
EIGHT: dict[str, tuple[str, Plan]] = {
    "one device": ("llama", Plan()),
    "ZeRO-3": ("llama", FSDP),
    "ZeRO-2": ("llama", replace(FSDP, reshard=False)),
    "HSDP": ("llama", replace(FSDP, dp=16, micro_batches=2)),
    "TP and SP": ("llama", SPLIT),
    "full recompute": ("llama", replace(FSDP, recompute=Recompute.FULL)),
    "1F1B": ("llama", PIPE),
    "experts": ("moe", FSDP),
    "GPT-2": ("gpt2", FSDP),
}
OTHERS: dict[str, tuple[str, Plan]] = {
    "fp32": ("llama", Plan(precision=Precision.FP32)),
    "selective recompute": ("llama", replace(FSDP, recompute=Recompute.SELECTIVE)),
    "TP": ("llama", replace(SPLIT, sp=False)),
    "interleaved": ("llama", replace(PIPE, schedule=Schedule.INTERLEAVED, virtual_stages=3)),
    "DDP": ("gpt2", Plan(dp=4)),
    "ZeRO-1": ("llama", Plan(dp=4, zero=1, shard=4)),
}


@dataclass(frozen=True)
class Case:
    problem: Problem
    found: Compared

    @property
    def parameters(self) -> int:
        return network_parameters(self.problem.workload.network).total

    @property
    def only(self) -> RankStep:
        (rank,) = self.found.ranks
        return rank

    def sent(self, operation: str, axis: str) -> tuple[float, float]:
        """How many, and their payload."""
        all_sent = [e for e in self.only.collectives if (e.operation, e.axis) == (operation, axis)]
        return sum(e.count for e in all_sent), sum(e.payload_bytes for e in all_sent)


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Problem]:
    pytest.importorskip("torch", reason="a trace runs PyTorch")
    pytest.importorskip("transformers", reason="a trace runs modules of transformers")
    folder = tmp_path_factory.mktemp("networks")
    for kind, keys in SIZES.items():
        (folder / f"{kind}.json").write_text(json.dumps(keys))
    all_plans = {**EIGHT, **OTHERS}
    return {
        name: problem_of(read_network(folder / f"{kind}.json"), plan)
        for name, (kind, plan) in all_plans.items()
    }


@pytest.fixture(scope="module")
def few_and_all(problems: dict[str, Problem]) -> dict[str, list[Traced]]:
    """The traces of every rank of every plan; ranks of six layers with three, with four, and whole."""
    return {}


@pytest.fixture(scope="module")
def cases(problems: dict[str, Problem]) -> dict[str, Case]:
    plans = {name: plan for name, (_, plan) in {**EIGHT, **OTHERS}.items()}
    ranks = {name: traced_ranks(problems[name], plan) for name, plan in plans.items()}
    traced = iter(process.run([job for each in ranks.values() for rank in each for job in rank.jobs], unseen))
    return {name: case(problems[name], plan, ranks[name], traced) for name, plan in plans.items()}


def case(problem: Problem, plan: Plan, ranks: list[TracedRank], traced: Iterator[Traced]) -> Case:
    steps = tuple(conclude(plan, rank, [next(traced) for _ in rank.jobs]) for rank in ranks)
    return Case(problem=problem, found=beside(problem, plan, steps))


def unseen(what: str, left_s: float) -> None:
    """Nobody watches a test."""


def named(pairs: tuple[Beside, ...], name: str) -> Beside:
    return next(each for each in pairs if each.name == name)


def held(rank: RankStep, kind: Held) -> float:
    """The most of one kind at any moment."""
    return max(moment.held_bytes[kind] for moment in rank.moments)


@pytest.mark.parametrize("name", EIGHT)
def test_the_formula_is_within_seven_percent_of_the_traced_peak(cases: dict[str, Case], name: str) -> None:
    peak = cases[name].found.peak

    assert peak.error is not None
    assert abs(peak.error) <= 0.07


@pytest.mark.parametrize("name", EIGHT)
def test_weights_and_optimizer_of_the_formula_are_exact(cases: dict[str, Case], name: str) -> None:
    for kind in ("weights", "optimizer"):
        each = named(cases[name].found.kinds, kind)

        # beside weights the trace has frequencies of rotation, beside moments a step count for each tensor
        assert each.formula == pytest.approx(each.traced, rel=1e-4)


def test_show(cases):
    for name, each in cases.items():
        peak = each.found.peak
        print(
            f"{name:22s} {peak.traced / 2**20:9.2f} {peak.formula / 2**20:9.2f} MiB {peak.error:+.2%}",
            each.found.moment.kind,
            each.found.moment.place,
            each.found.formula_phase,
        )
        for b in each.found.kinds:
            print(f"      {b.name:12s} {b.traced / 2**20:9.2f} {b.formula / 2**20:9.2f}")
        for b in (*each.found.sent, each.found.flop):
            print(
                f"      sent {b.name:12s} {b.traced / 2**20:9.2f} {b.formula / 2**20:9.2f} {b.error if b.error is None else round(b.error, 3)}"
            )
    for n in ("TP and SP", "TP", "ZeRO-3", "HSDP"):
        for c in cases[n].only.collectives:
            print(n, c)
    for c in cases["1F1B"].found.ranks:
        print(c.rank, c.peak)


def test_each_rank_holds_an_eighth_of_weights_gradients_and_moments(cases: dict[str, Case]) -> None:
    zero_3, parameters = cases["ZeRO-3"].only, cases["ZeRO-3"].parameters

    # fp32: 4 bytes each, two moments; frequencies of rotation and step counts take less than a ten-thousandth
    assert held(zero_3, Held.PARAMETERS) == pytest.approx(4 * parameters / 8, rel=1e-4)
    assert held(zero_3, Held.GRADIENTS) == pytest.approx(4 * parameters / 8, rel=1e-4)
    assert held(zero_3, Held.OPTIMIZER) == pytest.approx(8 * parameters / 8, rel=1e-4)


def test_a_resharded_step_gathers_twice_and_scatters_once(cases: dict[str, Case]) -> None:
    case = cases["ZeRO-3"]
    block = block_parameters(case.problem.workload.network.main.blocks[0], 4096).total

    # 7 units, 6 layers and the ends: all gathered forward, the layers once more backward, all scattered
    assert case.sent("all-gather", "sharding") == (7 + 6, 2 * (case.parameters + 6 * block))
    assert case.sent("reduce-scatter", "sharding") == (7, 4 * case.parameters)


def test_weights_that_stay_are_gathered_once(cases: dict[str, Case]) -> None:
    case = cases["ZeRO-2"]

    assert case.sent("all-gather", "sharding") == (7, 2 * case.parameters)


def test_replicas_of_shards_add_their_gradients_after_every_micro_batch(cases: dict[str, Case]) -> None:
    case = cases["HSDP"]

    # 2 micro-batches, 7 units: each rank holds an eighth of 4-byte gradients
    assert case.sent("all-reduce", "replicas") == (2 * 7, 2 * 4 * case.parameters / 8)
    assert case.sent("reduce-scatter", "sharding") == (2 * 7, 2 * 4 * case.parameters)


def test_the_first_stage_holds_two_micro_batches_and_the_last_one(cases: dict[str, Case]) -> None:
    first, last = cases["1F1B"].found.ranks

    # 3 of 6 layers each; at the end of its forward a rank keeps what its layers keep for every micro-batch
    kept = 201_352 - 512  # bytes a token of one layer, by the table of docs/model/memory.md
    assert kept == 16 * 4096 + 4 * 4096 + 4 * 1024 + 8 * 14336 + 4 * 32 + 8
    end = {
        rank.rank: max(m.held_bytes[Held.ACTIVATIONS] for m in rank.moments if m.kind == FORWARD)
        for rank in (first, last)
    }
    assert end[0] == pytest.approx(2 * 3 * kept * TOKENS, rel=0.02)
    assert first.collectives != last.collectives


def test_flop_are_two_for_each_weight_and_token_and_pass(cases: dict[str, Case]) -> None:
    case = cases["one device"]
    network = case.problem.workload.network

    # forward 2, backward 4 for each weight of a product; attention 4 s h forward, and 10 backward: it computes
    # scores again; the table of the embedding multiplies nothing
    products = 6 * (case.parameters - 128_256 * 4096 - (2 * 6 + 1) * 4096) * TOKENS
    attention = 6 * TOKENS * TOKENS * 4096 * (4 + 10)
    assert network.layers == 6
    assert case.only.flop == products + attention


def test_each_part_of_a_network_with_full_recompute_runs_forward_twice(cases: dict[str, Case]) -> None:
    plain, again = cases["ZeRO-3"].only.flop, cases["full recompute"].only.flop

    # recomputing ends before the last product of a layer, whose output backward does not need
    block = block_parameters(cases["ZeRO-3"].problem.workload.network.main.blocks[0], 4096).total - 2 * 4096
    down = 14336 * 4096
    assert again - plain == 6 * (2 * (block - down) * TOKENS + 4 * TOKENS * TOKENS * 4096)


def test_ddp_all_reduces_every_gradient_once(cases: dict[str, Case]) -> None:
    case = cases["DDP"]

    assert case.sent("all-reduce", "replicas")[1] == 4 * case.parameters


def test_zero_1_broadcasts_the_weights_that_each_rank_has_updated(cases: dict[str, Case]) -> None:
    case = cases["ZeRO-1"]

    assert (
        case.sent("all-reduce", "replicas")[1] == case.sent("broadcast", "replicas")[1] == 4 * case.parameters
    )
