"""Costs of the three options by hand, their limiting cases, and beside the event engine."""

from dataclasses import replace

import numpy as np
import pytest

from escala.federated.cases import ALL, ONLY_MIDDLE, range_over
from escala.federated.costs import alone, centralised, federated
from escala.federated.criteria import break_even_bytes
from escala.federated.events import rounds_of
from escala.federated.fleet import fleet_of
from escala.federated.phases import MESSAGE_OVERHEAD_BYTES
from escala.federated.population import Population
from escala.federated.ranges import Range, exactly
from escala.federated.scenario import Scenario, Server
from escala.federated.training import Algorithm, Codec, Training
from federated.boards import access, clients, device, scenario

approx = pytest.approx
MESSAGE = 4e6 + MESSAGE_OVERHEAD_BYTES
FAST = access(up_bytes_per_s=exactly(1e9), down_bytes_per_s=exactly(1e9))


def served(*classes, **changes) -> Scenario:
    """Ten boards, two a round for ten rounds; the server is reached at 1 GB/s and works no second."""
    made = scenario(*classes)
    central = replace(made.central, access=FAST)
    server = Server(power_w=exactly(100.0), pue=1.5, round_s=0.0)
    return replace(made, central=central, server=server, **changes)


def trained(given: Scenario, **changes) -> Scenario:
    return replace(given, training=replace(given.training, **changes))


def one(cases: np.ndarray) -> float:
    return float(cases[0, 0])


def test_a_round_by_hand():
    found = federated(served(), ONLY_MIDDLE)

    # 4 MB down at 4 MB/s, 5 s start, 100 samples of 0.3 s, 4 MB up at 1 MB/s; overhead 4,096 B each way
    assert one(found.round_s) == approx(MESSAGE / 4e6 + 5 + 30 + MESSAGE / 1e6, rel=1e-12)
    # ten rounds of two clients, two messages each
    assert one(found.costs.traffic_bytes) == approx(10 * 2 * 2 * MESSAGE, rel=1e-12)
    assert one(found.costs.time_s) == approx(10 * one(found.round_s), rel=1e-12)


def test_energy_of_each_phase_by_hand():
    found = federated(served(), ONLY_MIDDLE).costs.phase_j

    # 20 visits; 2 W over 1 W idle for 35 s; transfers at idle; 1e-4 J/B; 100 W * 1.5 for ten rounds
    round_s = MESSAGE / 4e6 + 35 + MESSAGE / 1e6
    assert one(found["compute"]) == approx(20 * 3 * 35, rel=1e-12)
    assert one(found["down"]) == approx(20 * 1 * MESSAGE / 4e6, rel=1e-12)
    assert one(found["up"]) == approx(20 * 1 * MESSAGE / 1e6, rel=1e-12)
    assert one(found["network"]) == approx(20 * 2 * MESSAGE * 1e-4, rel=1e-12)
    assert one(found["wait"]) == 0.0
    assert one(found["server"]) == approx(10 * round_s * 100 * 1.5, rel=1e-12)


def test_the_fast_wait_for_the_slow():
    slow = clients(5, name="slow", device=device(start_s=exactly(105.0)))
    found = federated(trained(served(clients(5), slow), clients_per_round=10), ONLY_MIDDLE)

    # all ten are asked; five wait 100 s each at 1 W idle, ten rounds
    assert one(found.costs.phase_j["wait"]) == approx(10 * 5 * 100 * 1.0, rel=1e-12)


def test_gathering_by_hand():
    found = centralised(served(), ONLY_MIDDLE)

    # 10 clients * 100 kB; one sends 0.1 s; 1,000 samples * 3 GFLOP / 10 TFLOP/s = 0.3 s at 300 W * 1.2
    assert one(found.traffic_bytes) == approx(1e6, rel=1e-12)
    assert one(found.time_s) == approx(0.1 + 0.3, rel=1e-12)
    assert one(found.phase_j["compute"]) == approx(0.3 * 300 * 1.2, rel=1e-12)
    assert one(found.phase_j["network"]) == approx(1e6 * 1e-4, rel=1e-12)


def test_alone_nothing_is_sent():
    found = alone(served(), ONLY_MIDDLE)

    # 5 s start + one pass of 30 s, ten clients at 3 W
    assert one(found.traffic_bytes) == 0.0
    assert one(found.time_s) == approx(35, rel=1e-12)
    assert one(found.energy_j) == approx(10 * 35 * 3, rel=1e-12)


def test_carbon_is_that_of_each_country_and_unknown_without_one():
    at_home = served(clients(10, country="FR"))
    hourly = served(clients(10, hourly_carbon_kg_per_j=tuple([1e-7] * 12 + [3e-7] * 12)))
    placed = replace(hourly, server_country="FR")

    energy_j = federated(placed, ONLY_MIDDLE).costs
    clients_j = one(energy_j.energy_j) - one(energy_j.phase_j["server"])
    server_kg = one(energy_j.phase_j["server"]) * 56.0e-3 / 3.6e6

    assert federated(served(), ONLY_MIDDLE).costs.carbon_kg is None
    assert federated(at_home, ONLY_MIDDLE).costs.carbon_kg is None  # nobody says where the server stands
    assert federated(replace(at_home, server_country="FR"), ONLY_MIDDLE).costs.carbon_kg is not None
    # the mean of 24 hours is 2e-7 kg/J
    carbon_kg = federated(placed, ONLY_MIDDLE).costs.carbon_kg
    assert carbon_kg is not None
    assert one(carbon_kg) == approx(clients_j * 2e-7 + server_kg, rel=0.01)


def test_money_counts_what_has_a_price():
    priced = clients(10, price_usd_per_device_hour=3.6, access=access(price_usd_per_byte=1e-9))
    found = federated(served(priced), ONLY_MIDDLE)

    # 20 visits of a round's seconds at 3.6 USD/h, and 40 messages at 1 USD/GB
    assert found.costs.money_usd is not None
    expected = 20 * one(found.round_s) * 3.6 / 3600 + 40 * MESSAGE * 1e-9
    assert one(found.costs.money_usd) == approx(expected, rel=1e-12)
    assert federated(served(), ONLY_MIDDLE).costs.money_usd is None
    sent_only = served(clients(10, access=access(price_usd_per_byte=1e-9)))
    assert alone(sent_only, ONLY_MIDDLE).money_usd is None


def test_the_clock_runs_only_in_hours_with_clients():
    whole, night = (
        federated(served(), ONLY_MIDDLE),
        federated(served(clients(10, hours=(0, 1, 2))), ONLY_MIDDLE),
    )

    # three of 24 hours; a client's hours end before its return with (its seconds / 3 h), and a round in which
    # both are lost is repeated
    visit_s = MESSAGE / 4e6 + 35 + MESSAGE / 1e6
    lost = (visit_s / 10800) ** 2
    assert night.usable_hours == 3
    assert one(night.costs.time_s) / one(night.round_s) == approx(10 / (1 - lost) * 24 / 3, rel=1e-12)
    assert one(whole.costs.time_s) / one(whole.round_s) == approx(10, rel=1e-12)


def test_nobody_there_is_never_done():
    found = federated(trained(served(clients(3)), clients_per_round=3, least_clients=3), ONLY_MIDDLE)
    apart = served(clients(1, name="a", hours=(1,)), clients(2, name="b", hours=(2,)))

    assert np.isfinite(found.costs.time_s).all()
    assert np.isinf(
        federated(trained(apart, least_clients=3, clients_per_round=3), ONLY_MIDDLE).costs.time_s
    ).all()


def test_who_does_not_fit_is_not_asked():
    small = clients(90, name="small", device=device(memory_bytes=1.0))

    found = federated(served(clients(10), small), ONLY_MIDDLE)

    assert found.fitting == (True, False)
    assert found.shares.tolist() == [1.0, 0.0]


def test_transfers_that_fail_are_paid_again():
    found = federated(served(clients(10, access=access(arrival_ratio=0.5))), ONLY_MIDDLE)

    # tries: 1 + 0.5 + 0.25 = 1.75 down; up only if one of three arrives (0.875); none back: again
    sent = 2 * (1.75 + 0.875 * 1.75) * MESSAGE
    assert one(found.costs.traffic_bytes) == approx(10 * sent / (1 - (1 - 0.875**2) ** 2), rel=1e-12)
    assert one(found.lost_ratio) == approx(1 - 0.875**2, rel=1e-12)


def test_a_server_that_many_share_slows_each():
    shared = replace(served(), central=replace(served().central, access=access()))

    # two of the clients share 1 MB/s to and 4 MB/s from the server: 0.5 MB/s down, 1 MB/s up
    assert one(federated(shared, ONLY_MIDDLE).round_s) == approx(
        MESSAGE / 5e5 + 35 + MESSAGE / 1e6, rel=1e-12
    )


def test_with_a_buffer_nobody_waits():
    buffered = trained(served(), algorithm=Algorithm.FEDBUFF, buffer=5, clients_per_round=4)

    found = federated(buffered, ONLY_MIDDLE)

    # four at work, a step after five: 5/4 of a client's seconds
    visit_s = MESSAGE / 4e6 + 35 + MESSAGE / 1e6
    assert one(found.round_s) == approx(visit_s * 5 / 4, rel=1e-12)
    assert one(found.costs.phase_j["wait"]) == 0.0


def test_break_even_is_rounds_times_share_times_both_messages():
    packed = trained(served(), codec_up=Codec(kind="int8"))
    ours = federated(packed, ONLY_MIDDLE)

    # D* = R q S (1/c_d + 1/c_u) = 10 * 0.2 * (4 MB + 1 MB), and headers
    assert one(break_even_bytes(packed, ours)) == approx(10 * 0.2 * 5e6, rel=0.01)


def test_more_rounds_cost_in_proportion():
    single = federated(served(), ONLY_MIDDLE).costs
    double = federated(trained(served(), rounds=exactly(20)), ONLY_MIDDLE).costs

    for name in ("traffic_bytes", "time_s", "energy_j"):
        assert one(getattr(double, name)) == approx(2 * one(getattr(single, name)), rel=1e-12)


def test_cases_run_from_best_to_worst():
    wide = served(
        clients(
            10,
            device=device(idle_w=Range(low=0.5, mid=1, high=2), start_s=Range(low=1, mid=5, high=9)),
            access=access(up_bytes_per_s=Range(low=5e5, mid=1e6, high=2e6)),
        )
    )

    found = federated(wide, ALL).costs

    for cases in (found.energy_j, found.time_s):
        assert (np.diff(cases, axis=0) >= 0).all()
        assert (np.diff(cases, axis=1) >= 0).all()
    assert range_over(found.energy_j).mid == approx(
        one(federated(served(), ONLY_MIDDLE).costs.energy_j), rel=1e-12
    )


def simulated(given: Scenario, count: int) -> np.ndarray:
    population = Population(given, fleet_of(given, 0))
    return np.array([each.round_s for each in rounds_of(population, count)])


def test_without_spread_it_is_the_event_engine_to_the_last_digit():
    given = served(clients(10_000))

    assert simulated(given, 3) == approx(one(federated(given, ONLY_MIDDLE).round_s), rel=1e-12)


def test_it_is_the_mean_of_the_event_engine_where_tiers_race_a_deadline():
    tiers = [
        clients(2000 * count, name=f"tier {place}", device=device(start_s=exactly(seconds)))
        for place, (count, seconds) in enumerate(((1, 5.0), (3, 20.0), (1, 60.0)))
    ]
    training = Training(rounds=exactly(10), clients_per_round=20, over_selection=1.3, round_deadline_s=90.0)
    given = replace(served(*tiers), training=training)

    draws = simulated(given, 400)

    assert one(federated(given, ONLY_MIDDLE).round_s) == approx(draws.mean(), abs=4 * draws.std() / 20)


def test_a_round_spends_what_the_event_engine_spends():
    slow = clients(1, name="slow", device=device(start_s=exactly(105.0)))
    given = trained(served(clients(1), slow), clients_per_round=2, rounds=exactly(1))
    record = next(iter(rounds_of(Population(given, fleet_of(given, 0)), 1)))

    found = federated(given, ONLY_MIDDLE)

    # transfers of the engine hold what the network takes
    ours = {name: one(each) for name, each in found.costs.phase_j.items()}
    theirs = {name: each[1] for name, each in record.energy_j.items()}
    moved = ours["up"] + ours["down"] + ours["network"]
    assert one(found.round_s) == approx(record.round_s, rel=1e-12)
    assert one(found.costs.traffic_bytes) == record.up_bytes + record.down_bytes
    assert ours["compute"] == approx(theirs["compute"], rel=1e-12)
    assert ours["wait"] == approx(theirs["wait"], rel=1e-12)
    assert ours["server"] == approx(theirs["server"], rel=1e-12)
    assert moved == approx(theirs["up"] + theirs["down"], rel=1e-12)
