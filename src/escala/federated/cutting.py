"""A scenario cut to as many clients as there are nodes. Knows counts only."""

from collections.abc import Iterator
from dataclasses import replace

from escala.errors import InvalidInput
from escala.federated.scenario import Scenario


def clients_in(scenario: Scenario) -> int:
    """Clients of all classes."""
    return sum(each.clients for each in scenario.clients)


def cut_to(scenario: Scenario, nodes: int) -> Scenario:
    """The scenario with so many clients: each class keeps its share, largest remainders first.

    A cohort, and the least that have to return, are at most all of them.
    """
    whole = clients_in(scenario)
    if nodes > whole:
        raise InvalidInput(
            f"the scenario has {whole:,} clients, so {nodes:,} nodes are too many; start fewer"
        )
    shares = [each.clients * nodes / whole for each in scenario.clients]
    counts = [int(share) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda place: counts[place] - shares[place])
    for place in by_remainder[: nodes - sum(counts)]:
        counts[place] += 1
    kept = [
        replace(each, clients=count) for each, count in zip(scenario.clients, counts, strict=True) if count
    ]
    training = replace(
        scenario.training,
        clients_per_round=min(scenario.training.clients_per_round, nodes),
        least_clients=min(scenario.training.least_clients, nodes),
    )
    return replace(scenario, clients=tuple(kept), training=training)


def cuts(whole: Scenario, cut: Scenario) -> Iterator[str]:
    """What a cut scenario does not do as the whole one says, a line each."""
    clients, nodes = clients_in(whole), clients_in(cut)
    if nodes < clients:
        yield f"{nodes:,} of {clients:,} clients take part, one for each node"
    asked, least = whole.training.clients_per_round, whole.training.least_clients
    if cut.training.clients_per_round < asked:
        yield f"a cohort is {cut.training.clients_per_round:,} clients, where the scenario says {asked:,}"
    if cut.training.least_clients < least:
        yield f"{cut.training.least_clients:,} have to return at least, where the scenario says {least:,}"
