"""Rounds on a virtual clock: a round by hand, its limiting cases, and what always holds."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escala.errors import InvalidInput
from escala.federated.batteries import FULL_CHARGE_S
from escala.federated.buffered import buffered_steps
from escala.federated.cases import ONLY_MIDDLE
from escala.federated.costs import federated
from escala.federated.events import NOTICED_S, rounds_of, steps_of
from escala.federated.fates import ATTEMPTS
from escala.federated.fleet import fleet_of
from escala.federated.phases import MESSAGE_OVERHEAD_BYTES, training_s, transfer_s
from escala.federated.population import Population
from escala.federated.ranges import Range, exactly
from escala.federated.roundrecord import Round
from escala.federated.scenario import ClientClass, Scenario, Target
from escala.federated.training import Algorithm, Codec, Selection, Training
from federated.boards import access, clients, device, scenario

SENT = 4_000_000 + MESSAGE_OVERHEAD_BYTES
DOWN_S, START_S, TRAIN_S, UP_S = SENT / 4e6, 5.0, 30.0, SENT / 1e6
WHOLE_S = DOWN_S + START_S + TRAIN_S + UP_S
SERVER_S = 1.0


def slower(times: float) -> ClientClass:
    """One client whose training takes so many times 30 s."""
    target = Target(name="cpu", flop_per_s=exactly(1e10 / times), power_w=exactly(2.0))
    return clients(1, device=device(targets=(target,)), country="ES")


def three(**changes) -> Scenario:
    """Clients that train for 30, 60 and 90 s, all asked, in a country as is their server."""
    training = replace(Training(rounds=exactly(1), clients_per_round=3), **changes)
    return scenario(slower(1), slower(2), slower(3), training=training, server_country="ES")


def first(given: Scenario) -> Round:
    return rounds(given, 1)[0]


def rounds(given: Scenario, count: int, seed: int = 0) -> list[Round]:
    return list(rounds_of(Population(given, fleet_of(given, seed)), count))


def test_a_round_of_three_by_hand():
    found = first(three())

    assert found.cohort == found.returned == (0, 1, 2)
    assert found.down_bytes == found.up_bytes == 3 * SENT
    # the slowest trains 90 s; the others wait 60 and 30 s for it
    assert found.round_s == pytest.approx(WHOLE_S + 60 + SERVER_S, rel=1e-12)
    assert found.phase_s["wait"] == pytest.approx((60 + 30 + 0) / 3, rel=1e-9)
    # 2 W above 1 W idle while starting and training: 3 W * (3 * 5 + 30 + 60 + 90) s
    assert found.energy_j["compute"] == pytest.approx((585,) * 3, rel=1e-12)
    # 1 W idle * seconds + 1e-5, 1e-4 or 4e-4 J a byte
    by_byte = np.array([1e-5, 1e-4, 4e-4])
    assert found.energy_j["up"] == pytest.approx(3 * UP_S + by_byte * 3 * SENT, rel=1e-12)
    assert found.energy_j["down"] == pytest.approx(3 * DOWN_S + by_byte * 3 * SENT, rel=1e-12)
    assert found.energy_j["wait"] == pytest.approx((90,) * 3, rel=1e-9)
    # 5, 45 or 300 W * 1.09
    assert found.energy_j["server"] == pytest.approx(np.array([5, 45, 300]) * 1.09 * found.round_s)


def test_carbon_is_energy_times_the_grid_of_its_place():
    given = three()

    found = first(given)

    grid = fleet_of(given, 0).carbon_kg_per_j[0, 0]
    energy = np.sum(list(found.energy_j.values()), axis=0)
    assert found.carbon_kg == pytest.approx(energy * grid, rel=1e-12)
    assert first(replace(given, server_country=None)).carbon_kg is None


def test_without_spread_a_round_takes_what_the_formulas_say():
    given = scenario(clients(5), training=Training(rounds=exactly(1), clients_per_round=5))

    expected_s = (
        transfer_s(SENT, np.array([4e6]), np.zeros(1))
        + START_S
        + training_s(np.array([100]), 1, np.array([0.3]))
        + transfer_s(SENT, np.array([1e6]), np.zeros(1))
    )
    assert first(given).round_s == pytest.approx(expected_s[0] + given.server.round_s, rel=1e-12)


def test_an_assessment_gives_the_same_round_where_nothing_spreads():
    # all alike, nobody lost, in two countries: with and without a deadline, some asked in vain, or everybody
    for changes in ({"clients_per_round": 4}, {"clients_per_round": 3, "over_selection": 1.3}):
        for deadline_s in (None, 300.0):
            training = Training(rounds=exactly(10), round_deadline_s=deadline_s, **changes)
            given = scenario(clients(5, country="ES"), clients(5, country="FR"), training=training)

            assessed, simulated = federated(given, ONLY_MIDDLE), first(given)

            assert simulated.round_s == pytest.approx(
                assessed.round_s[0, 0] + given.server.round_s, rel=1e-12
            )
            assert len(simulated.cohort) == assessed.asked
            assert len(simulated.returned) == assessed.counted[0, 0]


def test_the_mean_of_many_rounds_is_what_an_assessment_expects():
    # transfers and clients get lost in two classes; 30 % more are asked than are needed
    given = scenario(
        clients(600, access=access(arrival_ratio=0.95), dropout_ratio=0.05),
        clients(400, dropout_ratio=0.1, device=device(start_s=exactly(8.0))),
        training=Training(rounds=exactly(1), clients_per_round=20, over_selection=1.3),
    )

    assessed, simulated = federated(given, ONLY_MIDDLE), rounds(given, 300)

    taken_s = np.mean([each.round_s for each in simulated]) - given.server.round_s
    assert taken_s == pytest.approx(assessed.round_s[0, 0], rel=0.01)
    sent = np.mean([each.down_bytes + each.up_bytes for each in simulated])
    assert sent == pytest.approx(assessed.costs.traffic_bytes[0, 0], rel=0.005)
    compute_j = np.mean([each.energy_j["compute"][1] for each in simulated])
    assert compute_j == pytest.approx(assessed.costs.phase_j["compute"][0, 0], rel=0.005)


def test_clients_share_the_link_of_the_server():
    # 3 MB/s for three clients down and up: 1 MB/s each, where a client alone has 4 down
    given = three()
    narrow = replace(given.central, access=access(up_bytes_per_s=exactly(3e6), down_bytes_per_s=exactly(3e6)))

    found = first(replace(given, central=narrow))

    assert found.phase_s["down"] == pytest.approx(SENT / 1e6)
    assert found.phase_s["up"] == pytest.approx(SENT / 1e6)


def test_a_deadline_ends_the_round_and_the_late_count_nowhere():
    # 40 s to do everything with 30 s of training; the deadline is 80 s
    found = first(three(round_deadline_s=80.0))

    assert found.returned == (0, 1)
    assert found.lost == {"late": 1}
    assert found.round_s == 80.0 + SERVER_S
    # the late one goes on: its energy and its bytes are spent
    assert found.energy_j["compute"] == pytest.approx((585,) * 3)
    assert found.up_bytes == 3 * SENT


def test_with_a_deadline_of_nothing_all_are_late():
    found = first(three(round_deadline_s=0.0))

    assert (found.returned, found.lost) == ((), {"late": 3})


def test_the_first_of_more_that_were_asked_count():
    found = first(three(clients_per_round=2, over_selection=1.5))

    assert found.cohort == (0, 1, 2)
    assert found.returned == (0, 1)
    assert found.round_s == pytest.approx(WHOLE_S + 30 + SERVER_S, rel=1e-12)


def test_late_updates_count_in_the_round_in_which_they_come():
    # rounds end at 80 + 1 s; the slowest is there at 100 s, in the second round, one round late
    given = three(round_deadline_s=80.0, merges_late=True)

    (one, _), (two, came) = list(steps_of(Population(given, fleet_of(given, 0)), 2))

    assert (one.returned, one.lost) == ((0, 1), {"late": 1})
    assert two.returned == (0, 1, 2)
    assert [(each.client, each.staleness) for each in came] == [(0, 0), (1, 0), (2, 1)]


def test_of_those_that_arrive_together_so_many_count_as_are_needed():
    training = Training(rounds=exactly(1), clients_per_round=2, over_selection=2.0)

    found = first(scenario(clients(4), training=training))

    assert found.returned == (0, 1)
    assert found.lost == {"late": 2}


def test_who_is_late_is_busy_in_the_next_round():
    one, two = rounds(three(round_deadline_s=80.0), 2)

    # rounds begin at 0 and 81 s; the slowest works until 100 s
    assert one.cohort == (0, 1, 2)
    assert two.cohort == (0, 1)


def test_where_nothing_arrives_nobody_returns_and_every_try_is_paid():
    given = scenario(clients(4, access=access(arrival_ratio=0.0)))

    found = first(given)

    assert found.returned == ()
    assert found.lost == {"link": 2}
    assert found.down_bytes == 2 * ATTEMPTS * SENT
    assert found.up_bytes == 0
    # the server knows when heartbeats are missing
    assert found.round_s == pytest.approx(ATTEMPTS * DOWN_S + NOTICED_S + SERVER_S, rel=1e-12)


def test_transfers_are_tried_again_as_often_as_chance_says():
    # half arrive: 1 - 1/2^3 = 7/8 get the model; tries 1/2 * 1 + 1/4 * 2 + 1/4 * 3 = 1.75
    half = access(arrival_ratio=0.5)
    given = scenario(clients(4000, access=half), training=Training(rounds=exactly(1), clients_per_round=4000))

    found = first(given)

    assert found.down_bytes / SENT / 4000 == pytest.approx(1.75, rel=0.03)
    assert len(found.returned) / 4000 == pytest.approx((7 / 8) ** 2, rel=0.03)


def test_drop_outs_stop_in_the_middle_of_their_work():
    given = scenario(
        clients(4000, dropout_ratio=0.3), training=Training(rounds=exactly(1), clients_per_round=4000)
    )

    found = first(given)

    assert found.lost["dropout"] / 4000 == pytest.approx(0.3, rel=0.06)
    # on average half of their work is done: 3 W * 35 s * (0.7 + 0.3 / 2) each
    assert found.energy_j["compute"][1] / 4000 == pytest.approx(105 * 0.85, rel=0.02)


def test_everyone_is_asked_once_where_all_are_wanted():
    found = first(scenario(clients(7), training=Training(rounds=exactly(1), clients_per_round=7)))

    assert found.cohort == tuple(range(7))


def test_a_round_waits_for_the_hours_of_its_clients():
    found = first(scenario(clients(5, hours=(2, 3))))

    assert found.start_s == 2 * 3600


def test_a_client_whose_hours_end_is_lost():
    # 2,000 samples take 600 s; the clients are there for one hour of each day
    evening = clients(2, hours=(0,))
    training = Training(rounds=exactly(1), clients_per_round=2, local_epochs=130)

    found = first(scenario(evening, training=training))

    assert found.lost == {"window": 2}
    assert found.round_s == pytest.approx(3600 + NOTICED_S + SERVER_S)


def test_hours_that_no_client_has_are_refused():
    with pytest.raises(InvalidInput, match="never 2 clients"):
        first(
            scenario(clients(1), training=Training(rounds=exactly(1), clients_per_round=2, least_clients=2))
        )


def test_too_few_returns_are_no_round():
    found = first(three(round_deadline_s=50.0, least_clients=2))

    assert found.returned == ()
    assert found.lost == {"late": 2, "too-few": 1}


def test_a_battery_drains_stops_the_round_and_recharges_outside_hours():
    # a round takes 3 W * 35 s + 2 W * 5.0 s of radio and idle = 115 J; the battery holds 200 J
    battery = clients(1, device=device(battery_j=200.0), hours=tuple(range(23)))
    training = Training(rounds=exactly(1), clients_per_round=1)

    one, two, three_ = rounds(scenario(battery, training=training), 3)

    assert one.returned == (0,)
    # 85 J are left, more than a fifth, but no second round
    assert two.lost == {"battery": 1}
    # empty, it waits for the hour 23, in which a third is charged
    assert FULL_CHARGE_S == 3 * 3600
    assert three_.start_s == 24 * 3600


def test_codecs_change_bytes_to_what_is_packed():
    # int8: one byte a weight; the header of the array is in the codec's own count
    found = first(three(codec_up=Codec(kind="int8")))

    assert found.down_bytes == 3 * SENT
    assert 3_000_000 < found.up_bytes - 3 * MESSAGE_OVERHEAD_BYTES < 3_000_000 + 3 * 600


def test_buffered_steps_come_when_enough_updates_are_there():
    # 30, 60, 90 s of training: two updates are there when the second ends, and it begins again at once
    given = three(algorithm=Algorithm.FEDBUFF, buffer=2)
    population = Population(given, fleet_of(given, 0))

    steps = list(buffered_steps(population, 3))

    (one, came), (two, then), (_, last) = steps
    assert one.round_s == pytest.approx(WHOLE_S + 30)
    assert [(each.client, each.staleness) for each in came] == [(0, 0), (1, 0)]
    # 0 began again at 40 s and is there at 80 s; 2 at 100 s, one step old
    assert [(each.client, each.staleness) for each in then] == [(0, 1), (2, 1)]
    assert two.start_s + two.round_s == pytest.approx(WHOLE_S + 60)
    assert last[0].client == 0


def test_more_work_at_a_time_is_faster_and_staler():
    target = Target(name="cpu", flop_per_s=Range(low=2e9, mid=1e10, high=2e10), power_w=exactly(2.0))
    training = Training(rounds=exactly(1), clients_per_round=5, algorithm=Algorithm.FEDBUFF, buffer=5)
    few = scenario(clients(200, device=device(targets=(target,))), training=training)
    many = replace(few, training=replace(training, clients_per_round=50))

    slow, fast = rounds(few, 30), rounds(many, 30)

    assert fast[-1].start_s < 0.2 * slow[-1].start_s
    assert np.mean([each.metrics["staleness"] for each in fast]) > np.mean(
        [each.metrics["staleness"] for each in slow]
    )


def test_a_buffer_that_never_fills_is_told():
    # one try takes 4 MB / 100 B/s = 11 h
    never = access(arrival_ratio=0.0, down_bytes_per_s=exactly(100.0))
    training = Training(rounds=exactly(1), clients_per_round=2, algorithm=Algorithm.FEDBUFF, buffer=2)
    given = scenario(clients(4, access=never), training=training)

    with pytest.raises(InvalidInput, match="never had enough updates"):
        rounds(given, 1)


@st.composite
def populations(draw: st.DrawFn) -> Scenario:
    """Spread, batteries, hours, losses, deadlines, of one or two classes."""

    def one() -> ClientClass:
        target = Target(
            name="cpu", flop_per_s=Range(low=3e9, mid=1e10, high=2e10), power_w=Range(low=1, mid=2, high=5)
        )
        return clients(
            draw(st.integers(1, 12)),
            device=device(targets=(target,), battery_j=draw(st.sampled_from([None, 300.0, 3e4]))),
            access=access(arrival_ratio=draw(st.sampled_from([0.6, 1.0]))),
            dropout_ratio=draw(st.sampled_from([0.0, 0.4])),
            hours=draw(st.sampled_from([tuple(range(24)), (0, 1, 2), (5, 12)])),
            country=draw(st.sampled_from([None, "ES"])),
        )

    training = Training(
        rounds=exactly(1),
        clients_per_round=draw(st.integers(1, 6)),
        over_selection=draw(st.sampled_from([1.0, 1.5])),
        round_deadline_s=draw(st.sampled_from([None, 45.0])),
        algorithm=draw(st.sampled_from([Algorithm.FEDAVG, Algorithm.FEDBUFF])),
        buffer=2,
        selection=draw(st.sampled_from([Selection.UNIFORM, Selection.UTILITY, Selection.ENERGY])),
        seed=draw(st.integers(0, 99)),
    )
    return scenario(one(), one(), training=training, server_country="ES")


@given(populations())
@settings(max_examples=20)
def test_what_always_holds(given: Scenario):
    found = list(until_told(given))

    assert [each.round for each in found] == list(range(1, len(found) + 1))
    for one, two in itertools.pairwise(found):
        assert two.start_s >= one.start_s + one.round_s - 1e-6
    for each in found:
        assert min(min(triple) for triple in each.energy_j.values()) >= 0
        assert all(low <= mid <= high for low, mid, high in each.energy_j.values())
        if given.training.algorithm is not Algorithm.FEDBUFF:
            assert len(set(each.returned)) == len(each.returned)
            assert set(each.returned) <= set(each.cohort)
            assert len(each.cohort) == len(each.returned) + sum(each.lost.values())
    assert found == list(until_told(given))


def until_told(given: Scenario) -> Iterator[Round]:
    """Up to four rounds; a population that is never there together says so."""
    try:
        yield from rounds_of(Population(given, fleet_of(given, 0)), 4)
    except InvalidInput as error:
        if "two days" not in str(error):
            raise
