from dataclasses import fields

import pytest

from escala import catalog
from escala.catalog.networks import network
from escala.model.estimate import estimate
from escala.model.explain import LEDGER, TERMS, explain, field_names, sharing, words
from escala.model.memory import Phases
from escala.model.plan import Compile, Plan, Plans, Recompute, Schedule
from escala.model.problem import Problem
from escala.model.workload import Workload

PLANS = [
    Plan(dp=16, zero=3, reshard=True, shard=16, recompute=Recompute.FULL),
    Plan(dp=2, tp=8, sp=True, zero=3, reshard=True, shard=2, micro_batches=8, compile=Compile.DEFAULT),
    Plan(dp=2, tp=4, pp=2, schedule=Schedule.ONE_F_ONE_B, micro_batches=8),
    Plan(dp=4, tp=2, cp=2, zero=3, reshard=True, shard=8, micro_batches=4, recompute=Recompute.SELECTIVE),
]
PIPED = {"schedule": Schedule.ONE_F_ONE_B, "micro_batches": 8}
# the waterfall leaves out falls below one ten-thousandth of the step
LEFT_OUT = 1e-4


@pytest.fixture(scope="module")
def problem():
    return Problem(
        workload=Workload(network=network("llama-3.1-8b"), sequence_tokens=8192, global_batch=16),
        cluster=catalog.cluster_for("h100-sxm", 16),
        engine=catalog.engine("pytorch"),
        assumptions=catalog.assumptions(),
    )


@pytest.fixture(scope="module")
def found(problem):
    return estimate(problem, Plans.of(PLANS))


def test_every_term_and_every_kind_is_explained():
    terms, kinds = field_names()

    assert set(TERMS) == terms
    assert set(LEDGER) == kinds


@pytest.mark.parametrize("name", TERMS)
def test_a_term_has_a_title_a_formula_and_a_source(name):
    title, function = TERMS[name]
    formula, source = words(function)

    assert title
    assert len(formula.split()) >= 4, formula
    assert source, f"{function.__module__}.{function.__name__} names no source"


@pytest.mark.parametrize("name", LEDGER)
def test_a_kind_of_memory_has_a_title_and_a_formula(name):
    title, function = LEDGER[name]

    assert title
    assert len(words(function)[0].split()) >= 4


@pytest.mark.parametrize("row", range(len(PLANS)))
def test_terms_are_those_of_the_estimate(problem, found, row):
    told = explain(problem, found, row)

    assert sum(term.seconds_s for term in told.terms) == pytest.approx(found.step_s[row], rel=1e-12)
    assert sum(term.share for term in told.terms) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("row", range(len(PLANS)))
def test_the_waterfall_falls_from_the_peak_to_what_is_achieved(problem, found, row):
    told = explain(problem, found, row)

    reached = sum(fall.share for fall in told.waterfall) + told.achieved_flop_per_s / told.peak_flop_per_s

    assert abs(reached - 1.0) <= LEFT_OUT * (len(TERMS) - len(told.waterfall))
    assert told.achieved_flop_per_s / told.peak_flop_per_s == pytest.approx(found.mfu[row], rel=1e-12)


@pytest.mark.parametrize("row", range(len(PLANS)))
def test_the_ledger_and_the_phases_are_those_of_the_estimate(problem, found, row):
    told = explain(problem, found, row)

    kinds = {entry.name: entry.held_bytes for entry in told.ledger}
    assert kinds == {name: float(getattr(found.memory.kinds, name)[row]) for name in LEDGER}
    assert told.phase_bytes == {
        f.name: float(getattr(found.memory.phases, f.name)[row]) for f in fields(Phases)
    }


@pytest.mark.parametrize(
    ("plan", "name", "told"),
    [
        (PLANS[0], "weights_bytes", "sharded over 16"),
        (PLANS[2], "weights_bytes", "replicated on 2, split by TP 4, split by PP 2"),
        (PLANS[1], "optimizer_bytes", "sharded over 2, split by TP 8"),
        (PLANS[3], "activations_bytes", "split by TP 2 and CP 2"),
        (Plan(dp=2, pp=2, zero=3, shard=2, **PIPED), "weights_bytes", "sharded over 2, split by PP 2"),
        (Plan(dp=2, pp=2, zero=3, shard=2, **PIPED), "gradients_bytes", "replicated on 2, split by PP 2"),
        (Plan(), "weights_bytes", "whole"),
        (Plan(), "activations_bytes", "own"),
    ],
)
def test_who_holds_it_is_said_in_words(problem, plan, name, told):
    assert sharing(problem, plan, name) == told
