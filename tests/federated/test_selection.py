"""Cohorts: from seed, round and numbers alone; each policy prefers what it says."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escala.errors import InvalidInput
from escala.federated.fleet import Fleet, fleet_of, no_history
from escala.federated.ranges import exactly
from escala.federated.scenario import Target
from escala.federated.selection import asked_clients, choose
from escala.federated.training import Selection, Training
from federated.boards import clients, device, scenario

ALL = tuple(Selection)


def training(policy: Selection, wanted: int = 10, **changes) -> Training:
    return Training(rounds=exactly(10), clients_per_round=wanted, selection=policy, **changes)


def fleet(*classes, policy: Selection = Selection.UNIFORM) -> Fleet:
    return fleet_of(scenario(*classes, training=training(policy)), seed=0)


def chosen(asked: Training, devices: Fleet, history=None, here=None, round_: int = 1, hour: int = 0):
    history = no_history(len(devices)) if history is None else history
    here = np.ones(len(devices), bool) if here is None else here
    return choose(asked, devices, history, here, round_=round_, hour=hour)


def times_chosen(asked: Training, devices: Fleet, history=None, rounds: int = 300, hour: int = 0):
    counts = np.zeros(len(devices), int)
    for round_ in range(rounds):
        counts[chosen(asked, devices, history, round_=round_, hour=hour)] += 1
    return counts


@pytest.mark.parametrize("policy", ALL)
def test_a_cohort_is_sorted_here_and_has_no_client_twice(policy: Selection):
    devices = fleet(clients(50, country="ES"))
    here = np.arange(50) % 2 == 0

    found = chosen(training(policy), devices, here=here)

    assert np.array_equal(found, np.unique(found))
    assert here[found].all()
    if policy is not Selection.POISSON:
        assert len(found) == 10


@pytest.mark.parametrize("policy", ALL)
def test_a_cohort_is_the_same_again_and_another_in_another_round_or_seed(policy: Selection):
    devices = fleet(clients(200, country="ES"))
    asked = training(policy)

    first, again = chosen(asked, devices), chosen(asked, devices)

    assert np.array_equal(first, again)
    assert not np.array_equal(first, chosen(asked, devices, round_=2))
    assert not np.array_equal(first, chosen(replace(asked, seed=9), devices))


@given(st.integers(0, 2**31), st.integers(1, 10_000), st.integers(1, 40))
@settings(max_examples=30)
def test_uniform_cohorts_ignore_what_clients_have(seed: int, round_: int, wanted: int):
    plain = fleet(clients(40))
    order = np.random.default_rng(seed).permutation(40)
    other = replace(plain, sample_s=plain.sample_s[order] * 3, samples=plain.samples[order] + order)
    asked = training(Selection.UNIFORM, wanted, seed=seed)

    assert np.array_equal(chosen(asked, plain, round_=round_), chosen(asked, other, round_=round_))


def test_everyone_is_chosen_where_as_many_are_wanted_as_there_are():
    devices = fleet(clients(10))

    assert chosen(training(Selection.UNIFORM, 10), devices).tolist() == list(range(10))
    assert chosen(training(Selection.UNIFORM, 99), devices).tolist() == list(range(10))


def test_uniform_gives_each_client_the_same_chance():
    # 300 rounds of 10 of 50: 60 each, sd sqrt(300 * 0.2 * 0.8) = 6.9
    counts = times_chosen(training(Selection.UNIFORM), fleet(clients(50)))

    assert counts.sum() == 3000
    assert np.abs(counts - 60).max() < 4.5 * 6.9


def test_poisson_cohorts_are_binomial():
    # 1,000 rounds of 50 clients with probability 1/5: mean 10, variance 8
    asked, devices = training(Selection.POISSON), fleet(clients(50))

    sizes = [len(chosen(asked, devices, round_=round_)) for round_ in range(1000)]

    assert np.mean(sizes) == pytest.approx(10, abs=0.35)
    assert np.var(sizes) == pytest.approx(8, rel=0.2)


def test_over_selection_asks_more_and_poisson_refuses_it():
    # 10 * 1.3 = 13, whatever floating point says
    assert asked_clients(training(Selection.UNIFORM, over_selection=1.3)) == 13
    with pytest.raises(InvalidInput, match="choose uniform"):
        chosen(training(Selection.POISSON, over_selection=1.3), fleet(clients(50)))


def test_utility_returns_to_clients_that_still_learn_in_time():
    devices = fleet(clients(60))
    history = no_history(60)
    history.last_round[:], history.round_s[:], history.loss[:] = 1, 10.0, 0.1
    history.loss[:20] = 2.0  # these teach; ten of them are ten times too slow
    history.round_s[:10] = 100.0

    counts = times_chosen(training(Selection.UTILITY, 5), devices, history)

    assert counts[10:20].mean() > 20 * max(counts[:10].mean(), counts[20:].mean(), 0.1)


def test_utility_keeps_a_share_of_each_cohort_for_the_untried():
    devices = fleet(clients(60))
    history = no_history(60)
    history.last_round[:30], history.round_s[:30], history.loss[:30] = 1, 10.0, 1.0

    found = chosen(training(Selection.UTILITY), devices, history, round_=200)

    # late rounds explore with 3 of 10
    assert (found >= 30).sum() == 3


def test_energy_prefers_cheap_samples_and_spares_batteries():
    dear = Target(name="dear", flop_per_s=exactly(1e10), power_w=exactly(4.0))
    # a round of 100 samples * 0.3 s * 2 W = 60 J; the battery holds 120 J
    with_battery = device(battery_j=120.0)
    devices = fleet(
        clients(20), clients(20, device=device(targets=(dear,))), clients(20, device=with_battery)
    )
    history = no_history(60)
    history.charge_ratio[40:50] = 0.69  # 0.69 - 0.5 is below a fifth

    counts = times_chosen(training(Selection.ENERGY, 3), devices, history)

    # twice the energy is a quarter of the chance
    assert counts[:20].sum() / counts[20:40].sum() == pytest.approx(4, rel=0.3)
    assert counts[40:50].sum() == 0
    # half a battery left is half the chance
    assert counts[50:].mean() / counts[:20].mean() == pytest.approx(0.5, rel=0.3)


def test_low_carbon_waits_for_the_hour_of_each_grid():
    night, day = ((1e-7,) * 12 + (3e-7,) * 12), ((3e-7,) * 12 + (1e-7,) * 12)
    devices = fleet(
        clients(20, hourly_carbon_kg_per_j=night), clients(20, hourly_carbon_kg_per_j=day), clients(20)
    )

    early, late = (times_chosen(training(Selection.LOW_CARBON), devices, rounds=20, hour=h) for h in (3, 15))

    assert early[:20].sum() == 200
    assert late[20:40].sum() == 200


def test_low_carbon_without_any_country_is_refused():
    with pytest.raises(InvalidInput, match="needs the country"):
        chosen(training(Selection.LOW_CARBON), fleet(clients(5)))
