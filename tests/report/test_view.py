from dataclasses import fields, replace

import pytest

from escala.catalog import cluster_for
from escala.catalog.networks import network
from escala.model.estimate import estimate
from escala.model.explain import TERMS
from escala.model.plan import Compile, Plan, Recompute, Schedule
from escala.model.steptime import StepTime
from escala.planning.defaults import Place, Question, answerable, at_site
from escala.planning.search import search
from escala.planning.space import SpaceLimits
from escala.report.front import on_front
from escala.report.plan_view import plan_view
from escala.report.problem_view import calibration_view, doubt
from escala.report.reasons import against
from escala.report.shared import times
from escala.report.view import Asked, answer
from escala.units import difference


@pytest.fixture(scope="module")
def asked() -> Asked:
    machines = cluster_for("h100-sxm", 8)
    problem, assumed = answerable(
        Question(network=network("llama-3.1-8b"), cluster=machines, total_tokens=1e10)
    )
    limits = SpaceLimits()
    return Asked(problem=problem, limits=limits, found=search(problem, limits, top=30), assumed=assumed)


def test_rate_is_tokens_of_a_step_over_seconds_and_devices(asked: Asked):
    ranking = asked.found.ranking
    assert ranking is not None

    view = plan_view(asked.problem, ranking, 0, rank=1)

    # 128 sequences of 8,192 tokens on 8 devices
    assert view.tokens_per_s_per_device.value == pytest.approx(128 * 8192 / 8 / view.step_s.value, rel=1e-12)


def test_interval_is_the_value_times_and_over_the_ratio():
    interval = times(10.0, 1.25)

    assert (interval.low, interval.value, interval.high) == (8.0, 10.0, 12.5)


def test_slowest_step_is_the_lowest_rate(asked: Asked):
    ranking = asked.found.ranking
    assert ranking is not None
    view = plan_view(asked.problem, ranking, 0, rank=1)

    assert view.tokens_per_s_per_device.low * view.step_s.high == pytest.approx(
        view.tokens_per_s_per_device.value * view.step_s.value, rel=1e-12
    )


def test_without_price_and_country_money_and_carbon_are_unknown(asked: Asked):
    ranking = asked.found.ranking
    assert ranking is not None
    view = plan_view(asked.problem, ranking, 0, rank=1)

    assert (view.cost, view.co2e_kg) == (None, None)
    assert view.energy_j_per_step is not None
    assert view.energy_j_per_step > 0


def test_every_term_has_a_title():
    assert {field.name for field in fields(StepTime)} == set(TERMS)


@pytest.mark.parametrize(
    ("value", "reference", "said"),
    [
        (1.02, 1.0, "2 % slower"),
        (0.9, 1.0, "10 % faster"),
        (1.0001, 1.0, "as fast"),
        (1.005, 1.0, "0.5 % slower"),
    ],
)
def test_differences_in_words(value: float, reference: float, said: str):
    assert difference(value, reference) == said


PLAIN = dict.fromkeys(TERMS, 0.0) | {"matmul_s": 10.0}
PIPELINE = {"pp": 2, "schedule": Schedule.ONE_F_ONE_B}


@pytest.mark.parametrize(
    ("plan", "best", "said"),
    [
        (Plan(**PIPELINE), Plan(dp=2), "as fast; adds PP"),
        (Plan(dp=2, zero=1), Plan(dp=2), "as fast; ZeRO-1 in place of DDP"),
        (Plan(dp=2, zero=3, shard=2), Plan(dp=2), "as fast; FSDP in place of DDP; keeps weights gathered"),
        (Plan(dp=4, zero=3, shard=2, reshard=True), Plan(dp=2, tp=2), "as fast; HSDP in place of DDP"),
        (Plan(dp=2), Plan(dp=2, compile=Compile.DEFAULT), "as fast; leaves out compile"),
        (
            Plan(pp=2, schedule=Schedule.ZERO_BUBBLE_V),
            Plan(pp=2, schedule=Schedule.INTERLEAVED, virtual_stages=2),
            "as fast; zero-bubble in place of interleaving",
        ),
        (
            Plan(recompute=Recompute.FIRST_LAYERS, recompute_layers=3),
            Plan(recompute=Recompute.FULL),
            "as fast; recompute of some layers in place of full recompute",
        ),
        (Plan(dp=2, tp=4), Plan(dp=4, tp=2), "as fast; no simpler"),
    ],
)
def test_the_reason_says_what_the_plan_does_differently(plan: Plan, best: Plan, said: str):
    assert against(plan, PLAIN, best, PLAIN) == said


def test_the_reason_names_the_term_that_grows():
    said = against(Plan(**PIPELINE), {**PLAIN, "bubble_s": 1.0}, Plan(dp=2), PLAIN)

    assert said == "10 % slower; adds PP; +1 s pipeline bubble"


def test_the_front_holds_the_fastest_the_leanest_and_the_choice(asked: Asked):
    before, after = asked.found.ranking, on_front(asked, 30).found
    assert before is not None
    assert after.ranking is not None

    assert float(after.ranking.step_s.min()) == float(before.step_s.min())
    assert float(after.ranking.memory.needed_bytes.min()) == float(before.memory.needed_bytes.min())
    assert after.recommended is not None
    assert asked.found.recommended is not None
    assert after.ranking.plans[after.recommended] == before.plans[asked.found.recommended]


def test_what_goes_with_the_step_time_has_its_factor(asked: Asked):
    ranking = asked.found.ranking
    assert ranking is not None
    priced = at_site(
        asked.problem.cluster, Place(carbon_kg_per_j=1e-7, price_usd=2.0, price_date="2026-11-30")
    )
    problem = replace(asked.problem, cluster=priced)
    view = plan_view(problem, estimate(problem, ranking.plans), 0, rank=1)
    assert view.run is not None
    assert view.intervals.cost is not None
    assert view.run.cost_usd is not None

    for each in (view.step_s, view.intervals.mfu, view.intervals.hfu, view.intervals.cost):
        assert (each.low, each.high) == (each.value / view.interval_ratio, each.value * view.interval_ratio)
    for each in (view.run.duration_s, view.run.device_hours, view.run.cost_usd):
        assert each.high / each.value == pytest.approx(view.interval_ratio, rel=1e-12)
        assert each.value / each.low == pytest.approx(view.interval_ratio, rel=1e-12)


def test_energy_and_carbon_are_less_certain_than_time(asked: Asked):
    ranking = asked.found.ranking
    assert ranking is not None
    here = Place(country="ES", carbon_kg_per_j=1e-7)
    problem = replace(asked.problem, cluster=at_site(asked.problem.cluster, here))
    view = plan_view(problem, estimate(problem, ranking.plans), 0, rank=1)
    one, run = view.intervals, view.run
    assert one.energy_j_per_step is not None
    assert run is not None

    energy = one.energy_j_per_step
    assert energy.value == view.energy_j_per_step
    assert energy.high / energy.value > view.interval_ratio
    assert energy.value / energy.low > view.interval_ratio
    for other in (one.co2e_kg, run.energy_j, run.co2e_kg):
        assert other is not None
        assert other.low / other.value == pytest.approx(energy.low / energy.value, rel=1e-12)
        assert other.high / other.value == pytest.approx(energy.high / energy.value, rel=1e-12)


def test_ties_of_the_ranking_are_a_run_after_the_first(asked: Asked):
    given = answer(asked)
    steps = [plan.step_s.value for plan in given.plans]

    assert given.tie_share == 0.05
    assert [plan.is_tied for plan in given.plans] == [False, *(step <= 1.05 * steps[0] for step in steps[1:])]


def test_the_odds_are_a_tenth_where_the_interval_of_the_need_ends_at_the_capacity(asked: Asked):
    ranking = asked.found.ranking
    assert ranking is not None
    view = plan_view(asked.problem, ranking, 0, rank=1)
    group = asked.problem.cluster.groups[0]
    full = replace(group, accelerator=replace(group.accelerator, memory_bytes=view.memory_bytes.high))
    problem = replace(asked.problem, cluster=replace(asked.problem.cluster, groups=(full,)))

    assert plan_view(problem, ranking, 0, rank=1).out_of_memory_probability == pytest.approx(0.1, rel=1e-9)


@pytest.mark.parametrize("knows_engine", [True, False])
@pytest.mark.parametrize("knows_device", [True, False])
def test_what_no_published_run_calibrated_is_named(asked: Asked, *, knows_engine: bool, knows_device: bool):
    group = asked.problem.cluster.groups[0]
    chip = replace(group.accelerator, is_calibrated=knows_device)
    problem = replace(
        asked.problem,
        engine=replace(asked.problem.engine, is_calibrated=knows_engine, calibrated_on=(chip.architecture,)),
        cluster=replace(asked.problem.cluster, groups=(replace(group, accelerator=chip),)),
    )

    view = calibration_view(problem)

    assert (view.engine_is_calibrated, view.accelerator_is_calibrated) == (knows_engine, knows_device)
    starts = [note.split(";")[0] for note in view.notes]
    assert starts == ["engine pytorch: fewer than 5 published runs"] * (not knows_engine) + [
        "device h100-sxm: fewer than 5 published runs"
    ] * (not knows_device)


def test_an_engine_that_never_ran_on_an_architecture_is_named(asked: Asked):
    elsewhere = replace(asked.problem.engine, is_calibrated=True, calibrated_on=("tpu",))
    (note,) = calibration_view(replace(asked.problem, engine=elsewhere)).notes

    assert note.startswith("engine pytorch on hopper: fewer than 5 published runs;")


def test_the_doubt_names_both_ends_and_the_regime(asked: Asked):
    ranking = asked.found.ranking
    assert ranking is not None
    wide = replace(ranking, interval_ratio=ranking.interval_ratio * 0 + 1.25)

    # 1 / 1.25 is 20 % less
    assert doubt(asked.problem, wide, 0).startswith("step time −20 % to +25 % (dense network, sharded")
