"""Between a few sites: gradients at every step, weights after local steps (DiLoCo), or federated rounds.

The same continuum as `plan` walks: what changes is how often state is exchanged. Raw data stay where they
are in all of them. Exchanges are those of the model of collectives; nothing hides them, as in `agreement_s`.
All ways but rounds need every site, so their clock runs only in hours in which all are there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.federated.cases import ONLY_MIDDLE
from escala.federated.costs import Federated
from escala.federated.fleet import sample_seconds
from escala.federated.scenario import Scenario
from escala.federated.visits import DAY_HOURS, target_of
from escala.model.collectives import all_reduce_s, gather_s, gather_wire_bytes
from escala.model.replicas import INT8_BYTES

MOST_SITES: Final = 64
FEDERATED_ROUNDS: Final = "federated rounds"
LOCAL_STEPS: Final = (10, 100, 500)
"""500 local steps lost nothing with 8 replicas: Douillard et al. 2023 (DiLoCo), section 3."""
HIDDEN: Final = 0.1
"""Assumption: an exchange of at most a tenth of the time is worth no other technique."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to learn between sites: exchanges, their share of the time, time, bytes that a site sends."""

    name: str
    exchanges: float
    exchange_s: float
    exchange_share: float
    time_s: float
    site_bytes: float


def sites(scenario: Scenario, ours: Federated) -> tuple[Way, ...]:
    """Every way, at the middle of everything; empty for one client, above 64, or if all are never there."""
    if not are_few(scenario) or not shared_hours(scenario) or not np.isfinite(ours.costs.time_s).all():
        return ()
    return tuple(_ways(scenario, ours, float(sum(each.clients for each in scenario.clients))))


def are_few(scenario: Scenario) -> bool:
    """Whether the clients are a handful of sites: 2 to 64."""
    return 2 <= sum(each.clients for each in scenario.clients) <= MOST_SITES


def shared_hours(scenario: Scenario) -> int:
    """Hours of a day in which every site is there."""
    return len(set[int].intersection(*(set(each.hours) for each in scenario.clients)))


def _ways(scenario: Scenario, ours: Federated, count: float) -> Iterator[Way]:
    """Passes of the centre over all data, each site at its own, the slowest sets the pace.

    As with rounds, total time = seconds * 24 / usable hours; here those in which every site is there.
    """
    stretch = DAY_HOURS / shared_hours(scenario)
    plain_bytes = scenario.learnt.trained_weights * scenario.learnt.weight_bytes
    rate, latency_s = _slowest_link(scenario)
    n = np.array(count)
    wide_s = float(all_reduce_s(np.array(plain_bytes), n, np.array(rate), np.array(latency_s)))
    wide_bytes = float(2 * gather_wire_bytes(np.array(plain_bytes), n))
    narrow = INT8_BYTES * scenario.learnt.trained_weights * count
    narrow_s = float(gather_s(np.array(narrow), n, np.array(rate), np.array(latency_s)))
    narrow_bytes = float(gather_wire_bytes(np.array(narrow), n))
    work_s, steps = _local(scenario)
    yield _way("data parallel, every step", steps, wide_s, work_s, wide_bytes, stretch)
    for local in LOCAL_STEPS:
        yield _way(f"every {local} local steps", steps / local, wide_s, work_s, wide_bytes, stretch)
    if narrow_bytes < wide_bytes:
        last = LOCAL_STEPS[-1]
        yield _way(f"every {last} local steps, int8", steps / last, narrow_s, work_s, narrow_bytes, stretch)
    rounds, round_s = float(ours.rounds[0, 0]), float(ours.round_s[0, 0]) + scenario.server.round_s
    moved_s = float(ours.transfer_s[0, 0])
    yield Way(
        name=FEDERATED_ROUNDS,
        exchanges=rounds,
        exchange_s=moved_s,
        exchange_share=moved_s / round_s,
        time_s=float(ours.costs.time_s[0, 0]),
        site_bytes=float(ours.costs.traffic_bytes[0, 0]) / count / 2,
    )


def _way(
    name: str, exchanges: float, exchange_s: float, work_s: float, sent_bytes: float, stretch: float
) -> Way:
    exchanges = max(exchanges, 1.0)
    total_s = work_s + exchanges * exchange_s
    return Way(
        name=name,
        exchanges=exchanges,
        exchange_s=exchange_s,
        exchange_share=exchanges * exchange_s / total_s,
        time_s=total_s * stretch,
        site_bytes=exchanges * sent_bytes,
    )


def _slowest_link(scenario: Scenario) -> tuple[float, float]:
    access = [each.access for each in scenario.clients]
    rate = min(min(each.up_bytes_per_s.mid, each.down_bytes_per_s.mid) for each in access)
    return rate, max(each.latency_s for each in access)


def _local(scenario: Scenario) -> tuple[float, float]:
    """Seconds of the slowest site for all passes over its own data, and the steps of the largest."""
    passes, batch = scenario.central.epochs.mid, scenario.training.batch
    seconds, steps = [], []
    for each in scenario.clients:
        target = target_of(each, scenario.learnt, scenario.training)
        sample_s = float(
            ONLY_MIDDLE.own(sample_seconds(target, scenario.learnt, scenario.training.part))[0, 0]
        )
        seconds.append(passes * each.data.samples * sample_s)
        steps.append(passes * each.data.samples / batch)
    return max(seconds), max(steps)


def simplest(ways: tuple[Way, ...]) -> Way | None:
    """The first way, from the most frequent exchange on, whose exchanges take at most a tenth of its time."""
    return next((each for each in ways if each.exchange_share <= HIDDEN), None)
