from dataclasses import fields, replace

import numpy as np
import pytest

from escala.model.energy import (
    communication_s,
    compute_s,
    device_energy_j,
    energy_factors,
    footprint,
    idle_s,
)
from escala.model.plan import Plan, Plans
from escala.model.steptime import StepTime

TWO = Plans.of(Plan(dp=2))


def only(**seconds: float) -> StepTime:
    """A step of the given terms and nothing else."""
    return StepTime(**{f.name: np.array([seconds.get(f.name, 0.0)]) for f in fields(StepTime)})


@pytest.fixture
def problem(ideal, llama):
    known = ideal(llama(), devices=2)
    shares = {"power_compute_share": 0.9, "power_communication_share": 0.5, "power_idle_share": 0.3}
    return replace(known, assumptions=replace(known.assumptions, **shares))


def at(problem, **site):
    return replace(problem, cluster=replace(problem.cluster, site=replace(problem.cluster.site, **site)))


@pytest.mark.parametrize(
    ("term", "share"),
    [
        ("matmul_s", 0.9),
        ("optimizer_s", 0.9),
        ("gradient_sync_s", 0.5),
        ("transfer_s", 0.5),
        ("bubble_s", 0.3),
    ],
)
def test_a_step_of_one_kind_draws_the_power_of_that_kind(problem, term, share):
    # 2 devices * 500 W * share * 10 s
    assert device_energy_j(problem, TWO, only(**{term: 10.0}))[0] == pytest.approx(
        2 * 500 * share * 10, rel=1e-12
    )


def test_kinds_add_up():
    time = only(matmul_s=5.0, sharding_s=2.0, bubble_s=1.0, dispatch_s=0.5)

    assert compute_s(time)[0] == pytest.approx(5.0, rel=1e-12)
    assert communication_s(time)[0] == 2.0
    assert idle_s(time)[0] == 1.5


def test_every_term_is_computing_communicating_or_idle():
    for field in fields(StepTime):
        time = only(**{field.name: 1.0})

        assert sorted([compute_s(time)[0], communication_s(time)[0], idle_s(time)[0]]) == [0.0, 0.0, 1.0]


def test_the_site_multiplies_by_node_and_building(problem):
    # 9,000 J * 1.5 * 1.2
    found = footprint(at(problem, node_power_ratio=1.5, pue=1.2), TWO, only(matmul_s=10.0))

    assert found.energy_j[0] == pytest.approx(9000 * 1.8, rel=1e-12)
    assert found.power_w[0] == pytest.approx(900 * 1.8, rel=1e-12)


def test_money_is_device_hours_times_price(problem):
    # 2 devices * 1800 s = 1 device-hour at 3 dollars
    found = footprint(at(problem, price_usd_per_device_hour=3.0), TWO, only(matmul_s=1800.0))

    assert found.cost_usd[0] == pytest.approx(3.0, rel=1e-12)


def test_carbon_is_energy_times_the_grid(problem):
    # 9,000 J * 0.36 kg/kWh = 9000 / 3.6e6 * 0.36 kg
    found = footprint(at(problem, carbon_kg_per_j=0.36 / 3.6e6), TWO, only(matmul_s=10.0))

    assert found.carbon_kg[0] == pytest.approx(9000 / 3.6e6 * 0.36, rel=1e-12)


def test_what_is_unknown_is_none(problem):
    group = problem.cluster.groups[0]
    dark = replace(group, accelerator=replace(group.accelerator, power_w=None))
    unknown = replace(problem, cluster=replace(problem.cluster, groups=(dark,)))

    found = footprint(at(unknown, carbon_kg_per_j=1e-7), TWO, only(matmul_s=1.0))

    assert (found.energy_j, found.power_w, found.carbon_kg, found.cost_usd) == (None, None, None, None)


def factors(problem, time: StepTime, ratio: float) -> tuple[float, float]:
    """Ends of the interval of energy with shares from 0.85, 0.4, 0.2 to 0.95, 0.6, 0.4."""
    names = ("power_compute_share", "power_communication_share", "power_idle_share")
    low, high = (
        replace(problem.assumptions, **dict(zip(names, shares, strict=True)))
        for shares in ((0.85, 0.4, 0.2), (0.95, 0.6, 0.4))
    )
    ends = energy_factors(problem, time, np.array([ratio]), (low, high))
    return float(ends[0][0]), float(ends[1][0])


def test_the_interval_of_energy_has_the_errors_of_time_and_of_power(problem):
    # ln 1.16 = 0.148420; ln(0.95 / 0.9) = 0.054067, root of the sum of squares 0.157961, exp 1.171121;
    # ln(0.9 / 0.85) = 0.057158, root 0.159046, exp(-0.159046) = 0.852957
    low, high = factors(problem, only(matmul_s=10.0), 1.16)

    assert (low, high) == pytest.approx((0.852957, 1.171121), abs=5e-6)


def test_with_an_exact_time_the_interval_of_energy_is_that_of_the_shares(problem):
    assert factors(problem, only(matmul_s=10.0), 1.0) == pytest.approx((0.85 / 0.9, 0.95 / 0.9), rel=1e-12)
    assert factors(problem, only(bubble_s=10.0), 1.0) == pytest.approx((0.2 / 0.3, 0.4 / 0.3), rel=1e-12)


def test_with_exact_shares_the_interval_of_energy_is_that_of_time(problem):
    exact = (problem.assumptions, problem.assumptions)
    low, high = energy_factors(problem, only(matmul_s=10.0, sharding_s=1.0), np.array([1.25]), exact)

    assert (low[0], high[0]) == pytest.approx((0.8, 1.25), rel=1e-12)


def test_a_step_that_waits_has_a_less_certain_energy(problem):
    busy, waiting = (factors(problem, only(**{term: 10.0}), 1.1) for term in ("matmul_s", "bubble_s"))

    assert waiting[0] < busy[0] < 1.0 < busy[1] < waiting[1]
