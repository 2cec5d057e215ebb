"""Real modules of transformers on fake tensors, by hand arithmetic and formula; run by `make test-hf`.

All ranks of all plans are traced by one process, whose start costs more than its work.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from escala.catalog.networks import config as config_of
from escala.errors import InvalidInput
from escala.measurement.tracing import process
from escala.measurement.tracing.beside import Beside, Compared, beside
from escala.measurement.tracing.conclude import RankStep, conclude
from escala.measurement.tracing.jobs import BACKWARD, BEGIN, FORWARD, Held, Traced
from escala.measurement.tracing.ranks import TracedRank, traced_ranks
from escala.model.parameters import block_parameters, network_parameters
from escala.model.plan import Plan, Recompute, Schedule
from escala.model.problem import Problem

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
    "GPT-2": ("gpt2", replace(FSDP, micro_batch=8)),
}
OTHERS: dict[str, tuple[str, Plan]] = {
    "interleaved": ("llama", replace(PIPE, schedule=Schedule.INTERLEAVED, virtual_stages=3)),
    "DDP": ("gpt2", Plan(dp=4)),
    "ZeRO-1": ("llama", Plan(dp=4, zero=1, shard=4)),
}


@dataclass(frozen=True)
class Case:
    problem: Problem
    traced: tuple[Traced, ...]
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
def problems(problem: Callable[..., Problem]) -> dict[str, Problem]:
    pytest.importorskip("torch", reason="a trace runs PyTorch")
    pytest.importorskip("transformers", reason="a trace runs modules of transformers")
    return {name: problem(plan, kind) for name, (kind, plan) in {**EIGHT, **OTHERS}.items()}


@pytest.fixture(scope="module")
def cases(problems: dict[str, Problem]) -> dict[str, Case]:
    plans = {name: plan for name, (_, plan) in {**EIGHT, **OTHERS}.items()}
    ranks = {name: traced_ranks(problems[name], plan) for name, plan in plans.items()}
    whole = whole_of(ranks["ZeRO-3"][0])
    jobs = [job for each in ranks.values() for rank in each for job in rank.jobs]
    traced = iter(process.run([*jobs, *whole.jobs], unseen))
    found = {name: case(problems[name], plan, ranks[name], traced) for name, plan in plans.items()}
    return {**found, "whole": case(problems["ZeRO-3"], plans["ZeRO-3"], [whole], traced)}


def whole_of(rank: TracedRank) -> TracedRank:
    """The same rank with all its layers in one trace."""
    chunks = tuple(replace(chunk, layers=rank.layers) for chunk in rank.jobs[0].chunks)
    return replace(rank, jobs=(replace(rank.jobs[0], chunks=chunks),))


def case(problem: Problem, plan: Plan, ranks: list[TracedRank], replies: Iterator[Traced]) -> Case:
    traced = [[next(replies) for _ in rank.jobs] for rank in ranks]
    steps = tuple(conclude(plan, rank, each) for rank, each in zip(ranks, traced, strict=True))
    return Case(problem=problem, traced=tuple(traced[0]), found=beside(problem, plan, steps))


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


def test_the_formula_is_within_seven_percent_for_the_first_and_the_last_stage(cases: dict[str, Case]) -> None:
    errors = {each.name: each.error for each in cases["1F1B"].found.rank_peaks}

    assert list(errors) == ["rank 0", "rank 1"]
    assert all(error is not None and abs(error) <= 0.07 for error in errors.values())


@pytest.mark.parametrize("name", [name for name in EIGHT if name != "one device"])
def test_weights_and_optimizer_of_the_formula_are_exact(cases: dict[str, Case], name: str) -> None:
    for kind in ("weights", "optimizer"):
        each = named(cases[name].found.kinds, kind)

        # beside weights the trace has frequencies of rotation, beside moments a step count for each tensor
        assert each.formula == pytest.approx(each.traced, rel=1e-4)


def test_autocast_copies_every_weight_but_the_table_of_the_embedding(cases: dict[str, Case]) -> None:
    case = cases["one device"]
    norms = (2 * 6 + 1) * 4096

    # 4 bytes, and 2 for those of matrix products, when the loss runs
    copies = 2 * (case.parameters - 128_256 * 4096 - norms)
    assert named(case.found.kinds, "weights").traced == pytest.approx(4 * case.parameters + copies, rel=1e-6)


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


def test_six_layers_follow_exactly_from_three_and_from_four(cases: dict[str, Case]) -> None:
    concluded, whole = cases["ZeRO-3"].only, cases["whole"].only
    all_moments = {(each.kind, each.place): each for each in whole.moments}

    for each in concluded.moments:
        assert each == all_moments[each.kind, each.place]
    assert concluded.peak == whole.peak
    assert concluded.flop == whole.flop
    assert set(concluded.collectives) == set(whole.collectives)


def test_a_layer_keeps_what_the_table_of_the_formula_says(cases: dict[str, Case]) -> None:
    three, four = (at_loss(each) for each in cases["ZeRO-3"].traced)

    # 16 h + 4 q + 4 kv + 8 f + 4 a + 8 bytes a token
    assert four - three == (16 * 4096 + 4 * 4096 + 4 * 1024 + 8 * 14336 + 4 * 32 + 8) * 8192


def at_loss(traced: Traced) -> float:
    """Activations when the loss runs backward."""
    (moment,) = [each for each in traced.moments if (each.kind, each.place) == (BACKWARD, BEGIN)]
    return moment.held_bytes[Held.ACTIVATIONS]


def test_inputs_of_linear_maps_stay_whole_under_sequence_parallelism(cases: dict[str, Case]) -> None:
    three, four = (at_loss(each) for each in cases["TP and SP"].traced)

    # a quarter of what a layer keeps without, but for two inputs of 2 h bytes
    whole = 4 * 4096
    rest = 16 * 4096 + 4 * 4096 + 4 * 1024 + 8 * 14336 + 4 * 32 + 8 - whole
    assert four - three == (rest / 4 + whole) * 8192


def test_gelu_in_python_operations_keeps_five_tensors(cases: dict[str, Case]) -> None:
    (four,) = cases["GPT-2"].traced
    layer = [each.held_bytes[Held.ACTIVATIONS] for each in four.moments if each.kind == FORWARD]

    # two layer norms 2 h + 4, two inputs 2 h, query, key, value and output 8 h, statistics 4 a, 5 of 2 x 4 h
    kept = 2 * (2 * 1600 + 4) + 2 * 2 * 1600 + 8 * 1600 + 4 * 25 + 5 * 2 * 6400
    assert layer[2] - layer[1] == kept * 8 * 1024


def test_flop_are_two_for_each_weight_and_token_and_pass(cases: dict[str, Case]) -> None:
    case = cases["one device"]
    network = case.problem.workload.network

    # forward 2, backward 4 for each weight of a product; attention 4 s h forward, 10 backward, as it computes
    # scores again; the table of the embedding multiplies nothing
    products = 6 * (case.parameters - 128_256 * 4096 - (2 * 6 + 1) * 4096) * 8192
    attention = 6 * 8192 * 8192 * 4096 * (4 + 10)
    assert network.layers == 6
    assert case.only.flop == products + attention


def test_each_part_of_a_network_with_full_recompute_runs_forward_twice(cases: dict[str, Case]) -> None:
    plain, again = cases["ZeRO-3"].only.flop, cases["full recompute"].only.flop

    # recomputing ends before the last product of a layer, whose output backward does not need
    block = block_parameters(cases["ZeRO-3"].problem.workload.network.main.blocks[0], 4096).total - 2 * 4096
    down = 14336 * 4096
    assert again - plain == 6 * (2 * (block - down) * 8192 + 4 * 8192 * 8192 * 4096)


def test_ddp_all_reduces_every_gradient_once(cases: dict[str, Case]) -> None:
    case = cases["DDP"]

    assert case.sent("all-reduce", "replicas")[1] == 4 * case.parameters


def test_zero_1_broadcasts_the_weights_that_each_rank_has_updated(cases: dict[str, Case]) -> None:
    case = cases["ZeRO-1"]

    assert (
        case.sent("all-reduce", "replicas")[1] == case.sent("broadcast", "replicas")[1] == 4 * case.parameters
    )


def test_a_network_that_is_no_language_model_is_refused(problems: dict[str, Problem]) -> None:
    from escala.measurement.tracing.modules import configured

    with pytest.raises(InvalidInput, match="no causal language model of type 'vit'"):
        configured({"model_type": "vit"})


def test_dropout_is_off_in_every_traced_module(problems: dict[str, Problem]) -> None:
    from escala.measurement.tracing.modules import configured

    config = configured({**config_of("gpt2"), "attn_pdrop": 0.1})

    assert (config.attn_pdrop, config.embd_pdrop, config.resid_pdrop) == (0.0, 0.0, 0.0)


def test_the_process_group_of_the_caller_is_left_alone(cases: dict[str, Case]) -> None:
    import torch.distributed

    assert cases["ZeRO-3"].only.collectives != ()
    assert not torch.distributed.is_initialized()
