"""What each option takes: bytes, seconds, joules by phase, carbon, money. Knows formulas; decides nothing.

Federated, gathered at a centre, or each place alone. All arrays end in the two axes of `cases`, from best to
worst. What nobody gave a price or a country is None, never 0.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from escala.catalog.places import grid_carbon
from escala.federated.cases import Cases, stacked
from escala.federated.fleet import sample_flop, sample_seconds
from escala.federated.phases import RADIO_W, moving_j, serving_j, training_s, waiting_j, working_j
from escala.federated.ranges import exactly
from escala.federated.returns import Cohort, at_least, expected_counted, expected_end_s
from escala.federated.scenario import ClientClass, Scenario
from escala.federated.selection import asked_clients
from escala.federated.training import Algorithm
from escala.federated.visits import DAY_HOURS, Visits, fits, target_of, tries_of, visits_of
from escala.model.columns import F64
from escala.units import HOUR_S

# Assumption: nobody repeats rounds a hundred times.
LEAST_SUCCESS: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Costs:
    """What an option takes from start to target; energy by phase. Shapes (own, shared)."""

    traffic_bytes: F64
    time_s: F64
    phase_j: Mapping[str, F64]
    carbon_kg: F64 | None
    money_usd: F64 | None

    @property
    def energy_j(self) -> F64:
        """All phases together."""
        return np.asarray(sum(self.phase_j.values(), start=np.zeros((1, 1))))


def costs_of(
    cases: Cases,
    *,
    traffic_bytes: F64,
    time_s: F64,
    phase_j: Mapping[str, F64],
    carbon_kg: F64 | None,
    money_usd: F64 | None,
) -> Costs:
    """The costs with every array in all cases."""
    shape = (len(cases.levels), len(cases.levels))

    def whole(column: F64) -> F64:
        return np.broadcast_to(column, shape)

    return Costs(
        traffic_bytes=whole(traffic_bytes),
        time_s=whole(time_s),
        phase_j={name: whole(each) for name, each in phase_j.items()},
        carbon_kg=None if carbon_kg is None else whole(carbon_kg),
        money_usd=None if money_usd is None else whole(money_usd),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Federated:
    """Costs of all rounds, and what one round looks like.

    `usable_hours` of a day have clients enough for a cohort, `asked` and `counted` are clients of a round,
    `client_s` is one client's part by class with nothing sent twice, `transfer_s` and `work_s` are means of
    those asked, of which `lost_ratio` never return; `fitting` are classes whose memory holds training.
    """

    costs: Costs
    rounds: F64
    round_s: F64
    asked: float
    counted: F64
    usable_hours: int
    client_s: F64
    transfer_s: F64
    work_s: F64
    lost_ratio: F64
    shares: F64
    fitting: tuple[bool, ...]


def federated(scenario: Scenario, cases: Cases) -> Federated:
    """Rounds * (what a round takes); the clock runs only in hours with clients enough.

    Source: McMahan et al. 2017 for the round, Yousefpour et al. 2023 (Green FL) for its phases.
    """
    visits, fitting = visits_of(scenario, cases), tuple(fits(c, scenario.learnt) for c in scenario.clients)
    patterns = _patterns(scenario, fitting)
    usable = int(sum(hours for _, hours in patterns))
    rounds = cases.own(scenario.training.rounds)
    if usable == 0:
        return _never(scenario, visits, rounds, fitting, cases)
    shares = _weighted([hours / usable for _, hours in patterns], [c / c.sum() for c, _ in patterns])
    whole = [_round(scenario, visits, counts) for counts, _ in patterns]
    weights = [hours / usable for _, hours in patterns]
    round_s, counted, succeeds, asked = (
        _weighted(weights, [each[key] for each in whole]) for key in range(4)
    )
    if scenario.training.algorithm is Algorithm.FEDBUFF:
        round_s, counted, asked = _buffered(scenario, visits, shares)
    part = _Part(
        shares=shares,
        asked=float(asked.mean()),
        round_s=round_s,
        usable_hours=usable,
        succeeds=succeeds,
    )
    return Federated(
        costs=_rounds_costs(scenario, visits, part, rounds / np.maximum(succeeds, LEAST_SUCCESS), cases),
        rounds=rounds,
        round_s=round_s,
        asked=part.asked,
        counted=counted,
        usable_hours=usable,
        client_s=visits.shortest_s,
        transfer_s=_mix(shares, visits.down_s + visits.up_s),
        work_s=_mix(shares, visits.work_s),
        lost_ratio=1.0 - _mix(shares, visits.chances.sum(axis=1)),
        shares=shares,
        fitting=fitting,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """What a mean round has: share of each class, clients asked, seconds, hours of a day that can be used.

    A round `succeeds` when the least clients count; others are repeated, and below one in a hundred the
    target is taken as never reached.
    """

    shares: F64
    asked: float
    round_s: F64
    usable_hours: int
    succeeds: F64


def _patterns(scenario: Scenario, fitting: Sequence[bool]) -> list[tuple[F64, float]]:
    """Clients that are there by class, for each kind of hour in which a cohort can be filled, with hours."""
    counts = np.array([each.clients for each in scenario.clients], np.float64) * np.array(fitting)
    there = np.array([[hour in each.hours for hour in range(DAY_HOURS)] for each in scenario.clients])
    kinds = Counter(map(tuple, (there * counts[:, None]).T.tolist()))
    least = scenario.training.least_clients
    return [(np.array(kind), float(hours)) for kind, hours in kinds.items() if sum(kind) >= least]


def _round(scenario: Scenario, visits: Visits, counts: F64) -> tuple[F64, F64, F64, F64]:
    """Mean seconds of a round, clients that count, chance to succeed, clients asked, in one kind of hour."""
    training, here = scenario.training, int(counts.sum())
    asked = min(asked_clients(training), here)
    shape = visits.return_s.shape[2:]
    round_s, counted, succeeds = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for place in np.ndindex(*shape):
        cohort = Cohort(
            times_s=visits.return_s[(slice(None), slice(None), *place)],
            chances=visits.chances[(slice(None), slice(None), *place)],
            counts=counts,
            asked=asked,
            wanted=min(training.clients_per_round, asked),
            deadline_s=training.round_deadline_s,
        )
        round_s[place] = expected_end_s(cohort)
        back = cohort.back_ratio(training.round_deadline_s or np.inf)
        counted[place] = expected_counted(back, asked, cohort.wanted)
        succeeds[place] = at_least(np.array([back]), asked, training.least_clients)[0]
    return round_s, counted, succeeds, np.array(float(asked))


def _buffered(scenario: Scenario, visits: Visits, shares: F64) -> tuple[F64, F64, F64]:
    """FedBuff: buffer / (clients at work * chance to return / mean seconds of one); nobody waits.

    Source: Nguyen et al. 2022 (FedBuff), algorithm 1.
    """
    training = scenario.training
    returns = _mix(shares, visits.chances.sum(axis=1))
    asked = (training.buffer or 1) / np.maximum(returns, 1e-12)
    round_s = asked * _mix(shares, visits.busy_s) / training.clients_per_round
    return round_s, np.full_like(round_s, float(training.buffer or 1)), asked


def _rounds_costs(scenario: Scenario, visits: Visits, part: _Part, rounds: F64, cases: Cases) -> Costs:
    """All rounds: clients of each class * what one of them takes, and the server."""
    shares, asked, round_s, usable = part.shares, part.asked, part.round_s, part.usable_hours
    time_s = rounds * (round_s + scenario.server.round_s) * DAY_HOURS / usable
    wait_s = _wait_s(scenario, visits, round_s)
    server_j = serving_j(
        round_s + scenario.server.round_s, cases.own(scenario.server.power_w), scenario.server.pue
    )
    by_class = {
        "compute": visits.compute_j,
        "up": visits.up_j,
        "down": visits.down_j,
        "wait": waiting_j(wait_s, visits.idle_w),
        "network": visits.network_j,
    }
    phase_j = {name: rounds * asked * _mix(shares, each) for name, each in by_class.items()}
    sent = visits.down_bytes + visits.up_bytes
    whole_j = np.asarray(sum(by_class.values(), start=np.zeros((1, 1, 1))))
    times = rounds * asked * shares[:, None, None]
    server_grid = carbon_of(scenario.server_country or scenario.central.country)
    return costs_of(
        cases,
        traffic_bytes=rounds * asked * _mix(shares, sent),
        time_s=np.where(part.succeeds >= LEAST_SUCCESS, time_s, np.inf),
        phase_j=phase_j | {"server": rounds * server_j},
        carbon_kg=_carbon(scenario, times * whole_j, rounds * server_j, server_grid),
        money_usd=_client_money(scenario, times, visits.busy_s + wait_s, sent),
    )


def _wait_s(scenario: Scenario, visits: Visits, round_s: F64) -> F64:
    """What a client waits for the others; nothing with FedBuff."""
    if scenario.training.algorithm is Algorithm.FEDBUFF:
        return np.zeros_like(visits.busy_s)
    return np.maximum(round_s[None] - visits.busy_s, 0.0)


def centralised(scenario: Scenario, cases: Cases) -> Costs:
    """Gather all data once, then passes over them: bytes / rates, and epochs * samples * time of a sample.

    A share of transfers that fails is sent again. Energy of the site counts its PUE.
    """
    return central_for(scenario, cases, [float(each.data.samples) for each in scenario.clients])


def central_for(scenario: Scenario, cases: Cases, samples: Sequence[float]) -> Costs:
    """The same for so many samples of a client of each class."""
    central = scenario.central
    gathered = [_gathered(each, count, cases) for each, count in zip(scenario.clients, samples, strict=True)]
    sent = stacked([each["bytes"] for each in gathered])
    ingest = cases.shared(central.access.down_bytes_per_s, is_rate=True)
    slowest_s = stacked([each["time_s"] for each in gathered]).max(axis=0)
    gather_s = np.maximum(slowest_s, sent.sum(axis=0) / ingest)
    work_s = cases.own(central.epochs) * _all_samples(scenario, samples) * central_sample_s(scenario, cases)
    train_s = work_s / central.devices
    compute_j = serving_j(train_s, central.devices * cases.own(central.power_w), central.pue)
    network_j, up_j = (stacked([each[key] for each in gathered]) for key in ("network_j", "up_j"))
    return costs_of(
        cases,
        traffic_bytes=sent.sum(axis=0),
        time_s=gather_s + train_s,
        phase_j={"compute": compute_j, "up": up_j.sum(axis=0), "network": network_j.sum(axis=0)},
        carbon_kg=_carbon(scenario, network_j + up_j, compute_j, carbon_of(central.country)),
        money_usd=_central_money(scenario, train_s, sent),
    )


def central_sample_s(scenario: Scenario, cases: Cases) -> F64:
    """Time of a training sample on one device of the centre."""
    central = scenario.central
    if central.sample_s is not None:
        return cases.own(central.sample_s)
    return sample_flop(scenario.learnt, scenario.training.part) / cases.own(central.flop_per_s, is_rate=True)


def _gathered(given: ClientClass, samples: float, cases: Cases) -> dict[str, F64]:
    """The data of a class on their way: bytes of all, seconds of one client, joules of all."""
    access = given.access
    _, _, tries = tries_of(access.arrival_ratio)
    one_bytes = samples * given.data.sample_bytes * tries
    send_s = one_bytes / cases.shared(access.up_bytes_per_s, is_rate=True)
    radio_w = cases.own(RADIO_W if given.device.battery_j is not None else exactly(0.0))
    idle_w, nothing = cases.own(given.device.idle_w), np.zeros(1)
    return {
        "bytes": np.full((1, 1), given.clients * one_bytes),
        "time_s": send_s * DAY_HOURS / len(given.hours),
        "up_j": given.clients * moving_j(send_s, idle_w, radio_w, nothing, nothing),
        "network_j": given.clients * one_bytes * cases.shared(access.energy_j_per_byte),
    }


def _all_samples(scenario: Scenario, samples: Sequence[float]) -> float:
    return sum(each.clients * count for each, count in zip(scenario.clients, samples, strict=True))


def alone(scenario: Scenario, cases: Cases) -> Costs:
    """Each place on its own data: epochs * samples * time of a sample, nothing sent; the slowest ends it."""
    return alone_for(scenario, cases, [float(each.data.samples) for each in scenario.clients])


def alone_for(scenario: Scenario, cases: Cases, samples: Sequence[float]) -> Costs:
    """The same for so many samples of a client of each class."""
    time_s, work_j, busy_s = [], [], []
    for each, count in zip(scenario.clients, samples, strict=True):
        target = target_of(each, scenario.learnt, scenario.training)
        sample_s = cases.own(sample_seconds(target, scenario.learnt, scenario.training.part))
        passes = cases.own(scenario.central.epochs)
        work_s = cases.own(each.device.start_s) + passes * training_s(np.array(count), 1, sample_s)
        time_s.append(work_s * DAY_HOURS / len(each.hours))
        busy_s.append(work_s)
        power_w, idle_w = cases.own(target.power_w), cases.own(each.device.idle_w)
        work_j.append(each.clients * working_j(work_s, power_w, idle_w))
    compute_j = stacked(work_j)
    nothing = np.zeros((1, 1))
    clients = np.array([each.clients for each in scenario.clients], np.float64)[:, None, None]
    return costs_of(
        cases,
        traffic_bytes=nothing,
        time_s=stacked(time_s).max(axis=0),
        phase_j={"compute": compute_j.sum(axis=0)},
        carbon_kg=_carbon(scenario, compute_j, nothing, 0.0),
        money_usd=_client_money(scenario, clients, stacked(busy_s), None),
    )


@cache
def carbon_of(country: str | None) -> float | None:
    """Yearly average of a country's grid; None where no country is named."""
    return None if country is None else grid_carbon(country).value


def class_carbon(given: ClientClass) -> float | None:
    """Carbon of a class: the mean of its own hours where 24 values are given, else the country's average."""
    if given.hourly_carbon_kg_per_j:
        return float(np.mean([given.hourly_carbon_kg_per_j[hour] for hour in given.hours]))
    return carbon_of(given.country)


def _carbon(scenario: Scenario, clients_j: F64, site_j: F64, site_kg_per_j: float | None) -> F64 | None:
    """Energy of each class * its grid + energy of the site * its own."""
    grids = [class_carbon(each) for each in scenario.clients]
    known = [each for each in grids if each is not None]
    if len(known) < len(grids) or site_kg_per_j is None:
        return None
    return _mix(np.array(known), clients_j) + site_j * site_kg_per_j


def _client_money(scenario: Scenario, clients: F64, busy_s: F64, sent: F64 | None) -> F64 | None:
    """Device-hours, and traffic where anything is sent, that have a price; None where nothing has."""
    hours = np.array([each.price_usd_per_device_hour or 0.0 for each in scenario.clients])[:, None, None]
    traffic = np.array([each.access.price_usd_per_byte or 0.0 for each in scenario.clients])[:, None, None]
    if not hours.any() and (sent is None or not traffic.any()):
        return None
    moved = 0.0 if sent is None else traffic * sent
    return np.asarray((clients * (hours * busy_s / HOUR_S + moved)).sum(axis=0))


def _central_money(scenario: Scenario, train_s: F64, sent: F64) -> F64 | None:
    price = scenario.central.price_usd_per_device_hour
    traffic = np.array([each.access.price_usd_per_byte or 0.0 for each in scenario.clients])[:, None, None]
    if price is None and not traffic.any():
        return None
    return scenario.central.devices * (price or 0.0) * train_s / HOUR_S + (traffic * sent).sum(axis=0)


def _mix(shares: F64, columns: F64) -> F64:
    """Mean over classes."""
    return np.asarray((shares[:, None, None] * columns).sum(axis=0))


def _weighted(weights: Sequence[float], columns: Sequence[F64]) -> F64:
    return np.asarray(sum(weight * each for weight, each in zip(weights, columns, strict=True)))


def _never(
    scenario: Scenario, visits: Visits, rounds: F64, fitting: tuple[bool, ...], cases: Cases
) -> Federated:
    """No hour has clients enough: it takes for ever and is not to be compared."""
    endless = np.full((len(cases.levels), len(cases.levels)), np.inf)
    clients = np.array([each.clients for each in scenario.clients], np.float64)
    return Federated(
        costs=Costs(
            traffic_bytes=endless,
            time_s=endless,
            phase_j={"compute": endless},
            carbon_kg=None,
            money_usd=None,
        ),
        rounds=rounds,
        round_s=endless,
        asked=0.0,
        counted=np.zeros_like(endless),
        usable_hours=0,
        client_s=visits.shortest_s,
        transfer_s=endless,
        work_s=endless,
        lost_ratio=np.ones_like(endless),
        shares=clients / clients.sum(),
        fitting=fitting,
    )
