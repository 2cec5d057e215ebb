"""A fleet is drawn from its classes: percentiles are the ranges' ends, equal ends are exact."""

from dataclasses import replace

import numpy as np
import pytest

from escala.federated.fleet import fleet_of, sample_flop, spread
from escala.federated.ranges import Range, exactly
from escala.federated.scenario import Target
from escala.federated.training import Part, Selection, Training
from federated.boards import LEARNT, clients, device, scenario

CPU = Target(name="cpu", flop_per_s=exactly(1e10), power_w=exactly(2.0))
# twice as slow, a quarter of the power: half the energy of a sample
SAVING = Target(name="cpu at half clock", flop_per_s=exactly(5e9), power_w=exactly(0.5))


def test_equal_ends_give_each_client_exactly_its_class():
    fleet = fleet_of(scenario(clients(3)), seed=1)

    # 3 * 1e9 FLOP / 1e10 FLOP/s = 0.3 s
    assert fleet.sample_s.tolist() == [3e9 / 1e10] * 3
    assert fleet.up_bytes_per_s.tolist() == [1e6] * 3
    assert fleet.start_s.tolist() == [5.0] * 3


def test_tenth_and_ninetieth_percentiles_are_the_ends_and_the_median_is_mid():
    draws = np.random.default_rng(0).standard_normal(200_001)

    found = np.percentile(spread(Range(low=2, mid=3, high=30), draws), (10, 50, 90))

    assert found == pytest.approx([2, 3, 30], rel=0.03)


def test_an_end_of_zero_is_reached_and_never_passed():
    found = spread(Range(low=0, mid=1, high=2), np.array([-5.0, 0.0, 1.2815515655446004]))

    assert found.tolist() == pytest.approx([0, 1, 2])


def test_a_client_is_the_same_whatever_follows_it():
    spreading = replace(device(), start_s=Range(low=1, mid=5, high=20))
    few, many = (fleet_of(scenario(clients(count, device=spreading)), seed=3).start_s for count in (5, 50))

    assert np.array_equal(few, many[:5])
    assert len(set(many.tolist())) == 50


def test_measured_samples_win_over_flop():
    measured = replace(CPU, sample_s=exactly(0.7))

    fleet = fleet_of(scenario(clients(1, device=device(targets=(measured,)))), seed=0)

    assert fleet.sample_s[0] == 0.7


@pytest.mark.parametrize(
    ("selection", "deadline_s", "target"),
    [
        (Selection.UNIFORM, None, 0),
        (Selection.ENERGY, None, 1),
        # 5 s to start, 4 MB at 1 MB/s up and at 4 MB/s down: 10 s; 100 samples of 0.6 s on the saving target
        (Selection.ENERGY, 70.0, 1),
        (Selection.ENERGY, 69.9, 0),
        # nothing is in time: the fastest
        (Selection.ENERGY, 20.0, 0),
    ],
)
def test_energy_computes_where_a_sample_costs_least_in_time(selection, deadline_s, target):
    training = Training(
        rounds=exactly(1), clients_per_round=1, selection=selection, round_deadline_s=deadline_s
    )
    population = scenario(clients(1, device=device(targets=(CPU, SAVING))), training=training)

    assert fleet_of(population, seed=0).target.tolist() == [target]


def test_flop_of_a_sample_by_part():
    # a tenth of 1e6 weights is trained
    tenth = replace(LEARNT, trained_weights=1e5)

    assert sample_flop(LEARNT, Part.FULL) == 3e9
    assert sample_flop(tenth, Part.LORA) == pytest.approx(2.1e9)
    assert sample_flop(tenth, Part.LAST_LAYERS) == pytest.approx(1.2e9)


def test_carbon_is_that_of_the_hour_or_of_the_country():
    hourly = tuple(float(hour) for hour in range(24))
    population = scenario(clients(1, hourly_carbon_kg_per_j=hourly), clients(1, country="FR"), clients(1))

    fleet = fleet_of(population, seed=0)

    assert fleet.carbon_kg_per_j[0].tolist() == list(hourly)
    assert len(set(fleet.carbon_kg_per_j[1].tolist())) == 1
    assert fleet.has_carbon.tolist() == [True, True, False]
