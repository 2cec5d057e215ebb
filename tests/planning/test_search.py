"""The search against brute force: every plan of a small space is estimated, the answers must be the same."""

from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from escala import catalog
from escala.errors import InvalidInput
from escala.model.estimate import Estimate, estimate
from escala.model.memory import Verdict
from escala.model.network import (
    Attention,
    Block,
    Embedding,
    Experts,
    FeedForward,
    Head,
    Network,
    Stack,
    StackRole,
)
from escala.model.plan import PLACEMENTS, ContextKind, Plan, Plans, Precision, Recompute, Schedule, Split
from escala.model.problem import Problem
from escala.model.rejects import Reject
from escala.model.workload import Lora, Method, Optimizer, OptimizerKind, Phase, Workload
from escala.planning.search import Found, Objective, search
from escala.planning.simplicity import complexity, family_masks
from escala.planning.space import SpaceLimits, finish_choices, goes_with_offload, groups

TOLERANCE = 0.05
EVERYTHING = SpaceLimits()
ATTENTION = Attention(heads=8, kv_heads=4, head_dim=128, value_head_dim=128)
DENSE = Block(name="dense", parts=(ATTENTION, FeedForward(width=4096)))
MIXTURE = Block(name="mixture", parts=(ATTENTION, Experts(experts=8, top_k=2, width=2048)))


def network(*blocks: Block, layers: int, vocab: int = 32000) -> Network:
    kinds = blocks or (DENSE,)
    stack = Stack(
        role=StackRole.DECODER,
        hidden=1024,
        blocks=kinds,
        pattern=tuple(layer % len(kinds) for layer in range(layers)),
        embedding=Embedding(vocab=vocab),
        head=Head(outputs=vocab),
    )
    return Network(name="small", family="test", stacks=(stack,))


def question(
    of: Network,
    *,
    devices: int = 8,
    memory_gib: float = 79.0,
    engine: str = "pytorch",
    batch: int = 16,
    tokens: int = 2048,
    **workload,
) -> Problem:
    """A workload on H100s of the given memory."""
    cluster = catalog.cluster_for("h100-sxm", devices)
    group = cluster.groups[0]
    chip = replace(group.accelerator, memory_bytes=memory_gib * 2**30)
    return Problem(
        workload=Workload(network=of, sequence_tokens=tokens, global_batch=batch, **workload),
        cluster=replace(cluster, groups=(replace(group, accelerator=chip),)),
        engine=catalog.engine(engine),
        assumptions=catalog.assumptions(),
    )


@dataclass(frozen=True)
class Case:
    """One small space, small enough to estimate every plan of it."""

    problem: Problem
    limits: SpaceLimits = EVERYTHING
    objective: Objective = Objective.TIME


CASES = {
    "everything fits": Case(question(network(layers=4))),
    "only recompute fits": Case(question(network(layers=6, vocab=128_000), memory_gib=7.0, tokens=8192)),
    "only model parallelism fits": Case(question(network(layers=8), memory_gib=2.5, tokens=4096)),
    "one device": Case(question(network(layers=4), devices=1, batch=8)),
    "two nodes": Case(question(network(layers=4), devices=16, batch=32)),
    "two nodes with pipelines": Case(
        question(network(layers=16), devices=16, batch=64, memory_gib=12.0, tokens=4096),
        SpaceLimits(fixed={"pp": (2, 4, 8, 16), "micro_batch": (1, 2, 4)}),
    ),
    "ragged stages": Case(
        question(network(layers=7), batch=24, memory_gib=10.0),
        SpaceLimits(fixed={"pp": (1, 2, 4), "placement": (0,)}),
    ),
    "mixture of experts": Case(question(network(MIXTURE, layers=4), memory_gib=24.0)),
    "alternating layers on two nodes": Case(
        question(network(DENSE, MIXTURE, layers=4), devices=16, batch=16, memory_gib=16.0),
        SpaceLimits(fixed={"micro_batch": (1,)}),
    ),
    "energy": Case(question(network(layers=4), memory_gib=8.0), objective=Objective.ENERGY),
    "energy on two nodes": Case(
        question(network(layers=4), devices=16, batch=16, memory_gib=8.0), objective=Objective.ENERGY
    ),
    "Megatron": Case(question(network(layers=8), engine="megatron-core", memory_gib=9.0, batch=32)),
    "DeepSpeed": Case(question(network(layers=4), engine="deepspeed", memory_gib=9.0)),
    "Hugging Face Trainer": Case(question(network(layers=4), engine="hf-trainer", memory_gib=14.0)),
    "torchtune": Case(
        question(network(layers=4, vocab=128_000), devices=2, engine="torchtune", memory_gib=6.0, tokens=4096)
    ),
    "LoRA": Case(
        question(network(layers=4), engine="hf-bf16", memory_gib=5.0, method=Method.LORA, lora=Lora())
    ),
    "states on the host": Case(
        question(network(layers=4), memory_gib=3.0),
        SpaceLimits(fixed={"offload_params": (1,), "offload_optimizer": (1,)}),
    ),
    "checkpoints on the host": Case(
        question(network(layers=8, vocab=8000), engine="trl-fsdp2", memory_gib=4.0, tokens=8192),
        SpaceLimits(fixed={"offload_activations": (1,)}),
    ),
    "Muon": Case(
        question(
            network(layers=4),
            memory_gib=9.0,
            optimizer=Optimizer(kind=OptimizerKind.MUON, moments=1),
        )
    ),
    "fp8": Case(question(network(layers=4)), SpaceLimits(precision=Precision.FP8_TENSORWISE)),
    "every mesh order": Case(
        question(network(layers=4), devices=16), SpaceLimits(all_placements=True, fixed={"micro_batch": (1,)})
    ),
    "no compile, no fused loss": Case(
        question(network(layers=4, vocab=128_000), memory_gib=8.0),
        SpaceLimits(fixed={"compile": (0,), "fused_loss": (0,)}),
    ),
    "full recompute asked for": Case(
        question(network(layers=4)), SpaceLimits(fixed={"recompute": (int(Recompute.FULL),)})
    ),
    "first layers asked for": Case(
        question(network(layers=4)), SpaceLimits(fixed={"recompute": (int(Recompute.FIRST_LAYERS),)})
    ),
}


def every_plan(case: Case) -> Plans:
    """Every plan of the space, one way after the other."""
    recompute = _recompute(case)
    rows = []
    for group in groups(case.problem, case.limits):
        degrees = (group.dp, group.tp, group.pp, group.cp)
        compiles, losses = finish_choices(case.problem, case.limits)
        for (ep, etp), sharding, order, (each, m), sp, kind in product(
            group.experts, group.modes, group.orders, group.micro, group.sequence, group.context
        ):
            for pipe, (mode, some), compiled, fused in product(
                group.pipelines[m], recompute[group.pp], compiles, losses
            ):
                rows.append(
                    (
                        *degrees,
                        ep,
                        etp,
                        *sharding,
                        order,
                        each,
                        m,
                        sp,
                        kind,
                        *pipe,
                        mode,
                        some,
                        compiled,
                        fused,
                    )
                )
    names = "dp tp pp cp ep etp zero reshard shard placement micro_batch micro_batches sp cp_kind "
    names += "schedule virtual_stages split recompute recompute_layers compile fused_loss"
    table = np.array(rows, np.int64).T
    given = dict(zip(names.split(), table, strict=True))
    blank = Plans.of([case.limits.plain])
    others = {n: np.repeat(getattr(blank, n), len(rows)) for n in Plans.__slots__ if n != "splits"}
    return Plans(**(others | {name: column.copy() for name, column in given.items()}))


def _recompute(case: Case) -> dict[int, list[tuple[int, int]]]:
    """By pp: no, selective and full recompute, and 1 to n - 1 first layers of a rank with n."""
    allowed = case.limits.keep("recompute", tuple(int(mode) for mode in Recompute))
    allowed = tuple(m for m in allowed if goes_with_offload(case.problem, case.limits, Recompute(m)))
    lacks = case.problem.engine.lacks
    names = {int(Recompute.SELECTIVE): "selective", int(Recompute.FIRST_LAYERS): "first-layers"}
    found = {}
    for pp in range(1, case.problem.cluster.devices + 1):
        of_rank = -(-case.problem.workload.network.layers // pp)
        some = [(int(Recompute.FIRST_LAYERS), n) for n in range(1, of_rank)]
        every = [(int(m), 0) for m in (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)] + some
        found[pp] = [(mode, n) for mode, n in every if mode in allowed and names.get(mode) not in lacks]
    return found


@cache
def brute(name: str) -> Estimate:
    return estimate(CASES[name].problem, every_plan(CASES[name]))


@cache
def searched(name: str) -> Found:
    case = CASES[name]
    return search(case.problem, case.limits, objective=case.objective, tolerance=TOLERANCE)


def values_of(name: str, found: Estimate) -> np.ndarray:
    if CASES[name].objective is Objective.ENERGY:
        assert found.footprint.energy_j is not None
        return found.footprint.energy_j
    return found.step_s


def fitting(name: str) -> np.ndarray:
    return np.flatnonzero(brute(name).memory.verdict == Verdict.FITS)


@pytest.mark.parametrize("name", CASES)
def test_the_space_has_as_many_plans_as_are_said_to_be_considered(name):
    assert searched(name).considered == len(brute(name))


@pytest.mark.parametrize("name", CASES)
def test_every_plan_of_the_space_can_be_built(name):
    bits = brute(name).reject & ~int(Reject.MEMORY)

    assert np.unique(bits).tolist() == [0]


@pytest.mark.parametrize("name", CASES)
def test_no_plan_stands_twice_in_the_space(name):
    plans = brute(name).plans
    rows = np.column_stack([getattr(plans, column) for column in Plans.__slots__ if column != "splits"])

    assert len(np.unique(rows, axis=0)) == len(rows)


@pytest.mark.parametrize("name", CASES)
def test_the_best_plan_is_the_best_of_all(name):
    values = values_of(name, brute(name))[fitting(name)]
    ranking = searched(name).ranking

    assert ranking is not None
    assert values_of(name, ranking)[0] == pytest.approx(values.min(), rel=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_the_recommended_plan_is_the_simplest_near_the_best(name):
    rows = fitting(name)
    values, plans = values_of(name, brute(name))[rows], brute(name).plans.take(rows)
    points, near = complexity(plans), values <= values.min() * (1 + TOLERANCE)
    simplest = points[near].min()
    least_sharded = plans.zero[near & (points == simplest)].min()
    fastest = values[near & (points == simplest) & (plans.zero == least_sharded)].min()

    found = searched(name)

    assert found.ranking is not None
    assert found.recommended is not None
    assert found.complexity[found.recommended] == simplest
    assert values_of(name, found.ranking)[found.recommended] == pytest.approx(fastest, rel=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_the_ranking_has_the_best_plan_of_each_of_the_best_layouts(name):
    rows = fitting(name)
    values, plans = values_of(name, brute(name))[rows], brute(name).plans.take(rows)
    fields = ("dp", "tp", "pp", "cp", "ep", "etp", "zero", "reshard", "shard")
    layouts = np.column_stack([getattr(plans, field) for field in fields])
    _, owner = np.unique(layouts, axis=0, return_inverse=True)
    best = np.sort([values[owner == k].min() for k in range(owner.max() + 1)])[:10]

    found = searched(name)

    assert found.ranking is not None
    assert found.recommended is not None
    told = values_of(name, found.ranking).tolist()
    # the recommended plan stands beside them when it is none of them
    if len(told) > len(best):
        told.pop(found.recommended)
    assert told == pytest.approx(best.tolist(), rel=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_the_best_of_every_family_is_the_best_of_all_its_plans(name):
    rows = fitting(name)
    values, masks = values_of(name, brute(name))[rows], family_masks(brute(name).plans.take(rows))
    expected = {family: float(values[mask].min()) for family, mask in masks.items() if mask.any()}

    found = {family: plan for family, plan in searched(name).families.items() if plan is not None}
    told = {
        family: float(values_of(name, estimate(CASES[name].problem, Plans.of(plan)))[0])
        for family, plan in found.items()
    }

    assert told == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_what_is_shown_fits_and_can_be_built(name):
    found = searched(name)
    shown = [plan for plan in found.families.values() if plan is not None]

    assert found.ranking is not None
    assert (found.ranking.reject == 0).all()
    assert (found.ranking.memory.verdict == Verdict.FITS).all()
    assert not found.is_risky
    assert (estimate(CASES[name].problem, Plans.of(shown)).reject == 0).all()


@pytest.mark.parametrize("name", CASES)
def test_plans_are_estimated_or_rejected_and_never_more_than_there_are(name):
    found = searched(name)

    assert found.estimated > 0
    assert sum(found.rejected.values()) <= found.considered
    assert found.feasible <= found.considered


def test_fixed_fields_are_respected():
    fixed = {"tp": (2,), "sp": (1,), "zero": (3,), "micro_batch": (2,), "recompute": (int(Recompute.FULL),)}

    found = search(CASES["everything fits"].problem, SpaceLimits(fixed=fixed))

    assert found.ranking is not None
    for field, values in fixed.items():
        assert set(getattr(found.ranking.plans, field).tolist()) <= set(values), field


def test_a_wider_tolerance_never_recommends_a_more_complex_plan():
    problem = CASES["two nodes"].problem
    points = []

    for tolerance in (0.0, 0.05, 0.2, 1.0):
        found = search(problem, tolerance=tolerance)
        assert found.recommended is not None
        points.append(int(found.complexity[found.recommended]))

    assert points == sorted(points, reverse=True)


def test_no_tolerance_recommends_the_best():
    found = search(CASES["two nodes"].problem, tolerance=0.0)

    assert found.recommended == 0


def test_top_limits_the_ranking_which_has_the_recommended_plan_as_well():
    found = search(CASES["everything fits"].problem, top=3)

    assert found.ranking is not None
    assert found.recommended is not None
    assert len(found.ranking) == max(3, found.recommended + 1)
    assert len(found.ranking) <= 4


def test_nothing_fits_on_a_tiny_device():
    found = search(question(network(layers=4), memory_gib=0.75))  # less than the reserve alone

    assert found.ranking is None
    assert found.recommended is None
    assert set(found.families.values()) == {None}
    assert found.rejected.keys() == {"does not fit"}


def test_risky_plans_are_shown_when_nothing_else_fits():
    # one device, one way: need is between 93 % and 104 % of the memory
    limits = SpaceLimits(fixed={"recompute": (0,), "micro_batch": (1,), "compile": (0,), "fused_loss": (0,)})
    whole = question(network(layers=4), devices=1, batch=1)
    needed = float(estimate(whole, Plans.of(Plan())).memory.needed_bytes[0])

    found = search(question(network(layers=4), devices=1, batch=1, memory_gib=needed / 2**30), limits)

    assert found.is_risky
    assert found.ranking is not None
    assert found.ranking.memory.verdict.tolist() == [Verdict.RISKY]


def test_cost_ranks_as_time_does_on_the_same_devices():
    problem = CASES["everything fits"].problem

    by_time, by_cost = search(problem), search(problem, objective=Objective.COST)

    assert by_time.ranking is not None
    assert by_cost.ranking is not None
    assert by_time.ranking.step_s.tolist() == by_cost.ranking.step_s.tolist()


def test_the_same_question_has_the_same_answer():
    one, two = (search(CASES["two nodes"].problem) for _ in range(2))

    assert one.ranking is not None
    assert two.ranking is not None
    assert [one.ranking.plans[i] for i in range(len(one.ranking))] == [
        two.ranking.plans[i] for i in range(len(two.ranking))
    ]


def test_a_batch_that_no_degree_divides_has_no_plan():
    found = search(question(network(layers=4), batch=1))

    # one sequence: dp 1 and model parallelism alone
    assert found.ranking is not None
    assert set(found.ranking.plans.dp.tolist()) == {1}


def test_unplanned_phases_are_refused():
    asked = question(network(layers=4))
    evaluating = replace(asked, workload=replace(asked.workload, phase=Phase.EVAL))

    with pytest.raises(InvalidInput, match="not planned yet"):
        search(evaluating)


def test_codes_stand_for_the_names_that_they_index():
    # the brute force above writes codes into columns
    plan = Plans.of(Plan(schedule=Schedule.INTERLEAVED, split=Split.BALANCED, cp_kind=ContextKind.ULYSSES))

    assert (int(plan.schedule[0]), int(plan.split[0]), int(plan.cp_kind[0])) == (3, 1, 2)
    assert PLACEMENTS[int(plan.placement[0])] == "tp-cp-dp-pp"


def test_one_layout_asked_for_is_the_best_one():
    # Llama 3.2 1B on two devices: the recommended plan is not the fastest
    problem = question(network(layers=16), devices=2, batch=16)
    ten = search(problem)

    one = search(problem, top=1)

    assert ten.ranking is not None
    assert one.ranking is not None
    assert one.ranking.step_s[0] == ten.ranking.step_s[0]


def test_energy_of_a_device_without_a_known_power_is_refused():
    case = question(network(layers=4))
    group = case.cluster.groups[0]
    unknown = replace(group, accelerator=replace(group.accelerator, power_w=None))
    problem = replace(case, cluster=replace(case.cluster, groups=(unknown,)))

    with pytest.raises(InvalidInput, match="power of h100-sxm is not known; rank by time"):
        search(problem, objective=Objective.ENERGY)


@pytest.mark.parametrize(
    ("site", "chip", "said"),
    [
        ({"rack_power_limit_w": 40e3}, {}, "give devices_per_rack as well"),
        ({"power_limit_w": 1e6}, {"power_w": None}, "power of h100-sxm is not known"),
    ],
)
def test_a_limit_of_power_that_cannot_be_checked_is_refused(site, chip, said):
    case = question(network(layers=4))
    group = case.cluster.groups[0]
    groups = (replace(group, accelerator=replace(group.accelerator, **chip)),)
    cluster = replace(case.cluster, groups=groups, site=replace(case.cluster.site, **site))

    with pytest.raises(InvalidInput, match=said):
        search(replace(case, cluster=cluster))
