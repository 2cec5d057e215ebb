"""Verdicts, flip points, criteria, levers and ways between sites, on scenarios that are seen through."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from escala.errors import InvalidInput
from escala.federated.assess import Assessment, assess
from escala.federated.cases import ALL, ONLY_MIDDLE
from escala.federated.criteria import criteria
from escala.federated.flips import flips, inputs
from escala.federated.levers import levers
from escala.federated.ranges import Range, exactly
from escala.federated.reading import example_names, find_scenario
from escala.federated.scenario import LocalData, Measure, Movement, Rules, Scenario
from escala.federated.sites import simplest, sites
from escala.federated.training import Codec, Privacy
from escala.federated.verdict import Option, Verdict, compare
from escala.model.collectives import all_reduce_s
from federated.boards import access, clients, device, scenario
from federated.test_costs import FAST, served, trained

approx = pytest.approx


@cache
def examples(name: str) -> Assessment:
    return assess(find_scenario(name))


def ruled(given: Scenario, **changes) -> Scenario:
    return replace(given, rules=replace(given.rules, **changes))


def by_bytes(sample_bytes: float = 1000.0) -> Scenario:
    """Ten boards with 100 samples each; only bytes decide. Federated: 10 * 2 * 2 * 4 MB = 160 MB."""
    data = LocalData(samples=100, sample_bytes=sample_bytes)
    return ruled(served(clients(10, data=data)), decide_by=(Measure.BYTES,))


def verdict(given: Scenario) -> Verdict:
    return compare(given, ALL).verdict


def test_few_data_are_gathered_and_many_stay():
    # 10 * 100 kB = 1 MB against 160 MB, and 10 * 100 MB = 1 GB
    assert verdict(by_bytes()) is Verdict.CENTRALISE
    assert verdict(by_bytes(1e6)) is Verdict.FEDERATE


def test_data_that_may_not_move_are_not_gathered():
    found = compare(ruled(by_bytes(), movement=Movement.NEVER), ALL)

    assert found.verdict is Verdict.FEDERATE
    assert [each.told for each in found.obstacles] == ["data may not leave the clients"]


@pytest.mark.parametrize(("country", "expected"), [("DE", Verdict.CENTRALISE), ("US", Verdict.FEDERATE)])
def test_a_region_binds_a_centre_outside_of_it(country: str, expected: Verdict):
    bound = ruled(by_bytes(), movement=Movement.WITHIN_REGION, region=("DE", "FR"))

    assert verdict(replace(bound, central=replace(bound.central, country=country))) is expected


def test_where_only_places_alone_are_in_time_they_do_it():
    # federated 400 s, a place alone 35 s
    late = ruled(by_bytes(), movement=Movement.NEVER, deadline_s=100.0)

    assert verdict(late) is Verdict.ALONE
    assert verdict(ruled(late, deadline_s=10.0)) is Verdict.NONE


def test_places_with_enough_samples_of_their_own_need_nobody():
    assert verdict(ruled(by_bytes(), enough_samples=100)) is Verdict.ALONE
    assert verdict(ruled(by_bytes(), enough_samples=101)) is Verdict.CENTRALISE


def test_ranges_that_straddle_are_undecided_and_say_which_way_they_lean():
    # 160 MB against 300 MB with 10 rounds, 320 MB with 20
    wide = trained(by_bytes(3e5), rounds=Range(low=5, mid=10, high=20))

    found = assess(wide)

    assert (found.verdict, found.leaning) == (Verdict.UNDECIDED, Verdict.FEDERATE)


@pytest.mark.parametrize(
    ("rules", "training", "told"),
    [
        ({"needs_exact_repeat": True}, {"over_selection": 1.5}, "no run can be repeated exactly"),
        ({"needs_exact_repeat": True}, {"round_deadline_s": 90.0}, "no run can be repeated exactly"),
        ({"needs_audit": True}, {"has_secure_aggregation": True}, "none can be audited"),
        (
            {"needs_audit": True},
            {"privacy": Privacy(place="local", noise_ratio=1.0, clip=1.0, delta=1e-5)},
            "none can be audited",
        ),
    ],
)
def test_guarantees_that_cannot_be_given_exclude_federation(rules: dict, training: dict, told: str):
    found = compare(ruled(trained(by_bytes(1e6), **training), **rules), ALL)
    audit = criteria(trained(ruled(by_bytes(1e6), **rules), **training))[-1]

    assert found.verdict is Verdict.CENTRALISE
    assert [told in each.told for each in found.obstacles if each.option is Option.FEDERATED] == [True]
    assert (audit.name, audit.holds) == ("full audit or exact repeat needed", True)


def test_the_same_guarantees_hold_without_races_and_secrets():
    assert verdict(ruled(by_bytes(1e6), needs_exact_repeat=True, needs_audit=True)) is Verdict.FEDERATE


def test_flip_points_are_where_costs_cross():
    found = {each.name: each for each in flips(by_bytes())}

    # 160.16 MB = 10 clients * data: 16.016 MB a client; bytes do not depend on bandwidth or energy
    data = found["data of a client"]
    assert data.now == 100_000
    assert data.above == approx(16.016e6, rel=1e-3)
    assert data.above_becomes is Verdict.FEDERATE
    assert (data.below, data.below_becomes) == (None, None)
    # 10 rounds * 1 MB / 160.16 MB
    assert found["rounds"].below == approx(10 / 160.16, rel=1e-3)
    assert found["energy of the network"].below is found["energy of the network"].above is None


def test_at_a_flip_point_the_verdict_is_the_other_and_just_before_it_is_not():
    given, told = find_scenario("vehicles"), examples("vehicles")
    turned = {each.name: each for each in inputs(given)}
    found = 0
    for flip in told.flips:
        for value, becomes in ((flip.below, flip.below_becomes), (flip.above, flip.above_becomes)):
            if value is not None:
                turn, factor = turned[flip.name], value / turned[flip.name].value
                before = factor ** (1 - 2e-3)
                assert compare(turn.scaled(given, factor), ONLY_MIDDLE).middle is becomes
                assert becomes is not told.leaning
                assert compare(turn.scaled(given, before), ONLY_MIDDLE).middle is told.leaning
                found += 1
    assert found >= 4


def test_criteria_by_hand():
    found = {each.name: each for each in criteria(by_bytes())}

    # 1 MB / 160.16 MB; transfers 1 + 4 s (and overhead) / work 35 s; 401 s of a year; all boards alike
    many = found["many raw data, costly to move"]
    assert many.gauges[0].value == approx(1 / 160.16, rel=1e-3)
    assert not many.holds
    assert found["light or partly updated model"].gauges[0].value == approx(5.005 / 35, rel=1e-3)
    assert found["no time pressure"].gauges[0].value == approx(400.05 / (365 * 86400), rel=1e-3)
    assert found["very unequal devices"].gauges[0].value == 1.0
    # 1 M weights * (4 + 12) B of 1 GB
    assert found["large model"].gauges[0].value == approx(0.016, rel=1e-12)
    assert [each.side for each in found.values()] == ["for"] * 4 + ["against"] * 4


def test_levers_are_the_same_costs_again():
    found = {each.name: each for each in levers(by_bytes())}

    # headers of 4,096 B beside 4 MB, 1 MB or 0.4 MB
    assert found["int8 both ways"].bytes_ratio == approx(0.25, rel=0.01)
    assert found["last layers, a tenth of the weights"].bytes_ratio == approx(0.1, rel=0.02)
    # half of two clients: rounds * 2^0.327
    assert found["half the clients a round"].bytes_ratio == approx(0.5 * 2**0.327, rel=1e-3)
    # top-k 10 % with 1.2 times the rounds: down whole, up a tenth and positions
    assert found["top-k 10 % up"].rounds_factor == 1.2
    assert 1.2 * 0.5 < found["top-k 10 % up"].bytes_ratio < 1.2 * 0.65


def test_levers_that_are_pulled_or_forbidden_are_not_offered():
    packed = {each.name for each in levers(trained(by_bytes(), codec_up=Codec(kind="int8")))}
    masked = trained(served(clients(10)), has_secure_aggregation=True, clients_per_round=4, least_clients=3)
    secret = {each.name for each in levers(masked)}

    assert "int8 both ways" not in packed
    assert not any(each.startswith(("top-k", "int8", "fp16")) for each in secret)
    assert "twice the local epochs" in secret


def test_between_two_sites_exchanges_are_those_of_the_model():
    two = trained(served(clients(2, access=FAST)), batch=10)
    ours = compare(two, ONLY_MIDDLE).federated

    plain, *local, rounds = sites(two, ours)

    # 100 samples in batches of 10, one pass; ring of two: 2 * 1/2 * 4 MB / 1 GB/s
    assert (plain.exchanges, local[0].exchanges) == (10, 1)
    expected_s = all_reduce_s(np.array(4e6), np.array(2.0), np.array(1e9), np.array(0.0))
    assert plain.exchange_s == approx(float(expected_s), rel=1e-12) == approx(0.004, rel=1e-12)
    assert plain.time_s == approx(30 + 10 * 0.004, rel=1e-12)
    assert rounds.name == "federated rounds"
    assert simplest((plain, *local, rounds)) is plain


def test_a_slow_link_wants_fewer_exchanges():
    slow = trained(served(clients(2, access=access())), batch=1)
    found = sites(slow, compare(slow, ONLY_MIDDLE).federated)

    # 100 steps of 0.3 s; 4 s an exchange: every step 93 %, every 100 steps 4 s of 34 s
    best = simplest(found)
    assert found[0].exchange_share == approx(400 / 430, rel=1e-12)
    assert best is None or best.exchange_share <= 0.1


def test_all_ways_between_sites_run_on_one_clock():
    # twelve hours a day: everything takes twice as long; hours without a common one leave nothing to compare
    whole = trained(served(clients(2, access=FAST)), batch=10, least_clients=2)
    half = replace(whole, clients=tuple(replace(each, hours=tuple(range(12))) for each in whole.clients))
    apart = served(clients(1, hours=tuple(range(12))), clients(1, name="late", hours=tuple(range(12, 24))))
    apart = trained(apart, clients_per_round=1, least_clients=1)

    always, halved = (sites(each, compare(each, ONLY_MIDDLE).federated) for each in (whole, half))

    for one, other in zip(always[:-1], halved[:-1], strict=True):
        assert other.time_s == approx(2 * one.time_s, rel=1e-12)
        assert other.exchange_share == approx(one.exchange_share, rel=1e-12)
    # of rounds a few are repeated, because a site's hours end: 35 s of 12 h
    assert halved[-1].time_s == approx(2 * always[-1].time_s, rel=1e-2)
    assert sites(apart, compare(apart, ONLY_MIDDLE).federated) == ()
    assert any("no hour in which all are there" in each for each in assess(apart).unsaid)


def test_a_cohort_of_millions_is_refused_at_once():
    millions = trained(served(clients(50_000_000)), clients_per_round=50_000_000)

    with pytest.raises(InvalidInput, match=r"asks 50,000,000 clients .* at most 1,000,000"):
        assess(millions)


def test_training_that_fits_nothing_is_none_as_asked():
    # 3 EB on boards of 1 GB, and data that may not move
    huge = ruled(served(clients(10)), movement=Movement.NEVER)
    huge = replace(huge, learnt=replace(huge.learnt, training_memory_bytes=3e18))

    found = assess(huge)

    assert found.verdict is Verdict.NONE
    assert found.levers == ()
    assert found.score is None
    assert any("memory" in each for each in found.reasons)


def test_a_score_that_is_endless_only_at_worst_is_told():
    # a round is 35 s at 2 + 1 W and 5 s of transfers: about 115 J; with 50 W idle far over 200 J
    worn = device(battery_j=200.0, idle_w=Range(low=1.0, mid=1.0, high=50.0))

    found = assess(served(clients(10, device=worn)))

    assert found.score is None
    assert any("without end" in each for each in found.reasons)


def test_a_population_is_no_handful_of_sites():
    many = served(clients(65))

    assert sites(many, compare(many, ONLY_MIDDLE).federated) == ()


def test_a_week_of_new_data_costs_rounds_or_what_is_sent():
    data = LocalData(samples=100, sample_bytes=1000.0, growth_samples_per_day=10.0)
    weekly = ruled(served(clients(10, data=data)), rounds_per_week=3.0)

    ours, theirs, each = assess(weekly).week

    # 3 rounds * 2 clients * 2 messages of 4.004 MB; 7 days * 10 clients * 10 samples of 1 kB
    assert ours.traffic_bytes is not None
    assert ours.traffic_bytes.mid == approx(12 * 4_004_096, rel=1e-12)
    assert theirs.traffic_bytes == exactly(700_000)
    assert each.traffic_bytes == exactly(0.0)
    assert assess(served()).week == ()


@pytest.mark.parametrize("name", example_names())
def test_what_always_holds_of_an_assessment(name: str):
    found = examples(name)

    assert len(found.criteria) == 8
    assert all(each.energy_j is None or each.energy_j.low > 0 for each in found.options)
    assert found.verdict in (found.leaning, Verdict.UNDECIDED)
    for each in found.options:
        total_j = sum(phase.mid for phase in each.phase_j.values())
        assert each.energy_j is not None
        assert total_j == approx(each.energy_j.mid, rel=1e-12)


def test_at_least_two_examples_say_do_not_federate():
    verdicts = {name: examples(name).verdict for name in example_names()}

    assert sum(each is Verdict.CENTRALISE for each in verdicts.values()) >= 2
    assert sum(each is Verdict.FEDERATE for each in verdicts.values()) >= 2


def test_rules_have_defaults_that_forbid_nothing():
    free = scenario(clients(10, device=device()), rules=Rules(movement=Movement.FREE))

    assert compare(free, ALL).obstacles == ()
