"""Builds the answer to `federate privacy`: what noise costs and buys, for each way to draw clients."""

from collections.abc import Iterator
from typing import Final

import msgspec

from escala import __version__
from escala.errors import InvalidInput
from escala.federated.privacy import noise_for, sampler_of, spent, why_no_epsilon
from escala.federated.ranges import exactly
from escala.federated.reading import find_scenario
from escala.federated.refusals import refuse
from escala.federated.training import Privacy, Selection, Training

SCHEMA: Final = "escala/federate-privacy@1"
SHARES: Final = (0.01, 0.1, 0.25, 0.5, 1.0)
"""After which shares of the rounds the epsilon is shown."""
OTHERS: Final = (Selection.POISSON, Selection.UNIFORM)
CLIP: Final = 1.0
"""Epsilon depends on the noise over the clip only."""


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Epsilon after some rounds."""

    rounds: int
    epsilon: float


class OtherWay(msgspec.Struct, frozen=True, kw_only=True):
    """The same noise with clients drawn another way."""

    selection: str
    clients_per_round: int
    epsilon: float


class PrivacyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What noise costs and buys. `why_none` says why there is no epsilon; then all of it is empty."""

    schema: str = SCHEMA
    escala: str
    place: str
    clients: int
    clients_per_round: int
    rounds: int
    delta: float
    noise_ratio: float | None
    wanted_epsilon: float | None
    why_none: str | None
    sampler: str | None
    neighbours: str | None
    epsilon: float | None
    spent: tuple[Spent, ...] = ()
    others: tuple[OtherWay, ...] = ()
    notes: tuple[str, ...] = ()


def from_numbers(
    *,
    noise: float | None,
    epsilon: float | None,
    clients: int,
    cohort: int | None,
    rounds: int,
    delta: float,
    sampler: str,
    place: str,
) -> PrivacyAnswer:
    """The answer for numbers; without a noise ratio, the least one for the epsilon wanted."""
    if (noise is None) == (epsilon is None):
        raise InvalidInput("give --noise to see the epsilon, or --epsilon to see the noise")
    training = _training(noise or 1.0, cohort or clients, sampler, place, delta)
    refuse(training, clients)
    if epsilon is not None:
        ratio = noise_for(sampler_of(training, clients), epsilon, rounds, delta)
        training = _training(ratio, cohort or clients, sampler, place, delta)
    return _answer(training, clients, rounds, epsilon)


def from_scenario(path: str, rounds: int | None) -> PrivacyAnswer:
    """The answer for the training of a scenario, after its middle number of rounds if none is given."""
    scenario = find_scenario(path)
    if scenario.training.privacy is None:
        raise InvalidInput(
            f"{path} has no [training.privacy]; give it one, or give --noise, --clients, --rounds"
        )
    clients = sum(each.clients for each in scenario.clients)
    return _answer(scenario.training, clients, rounds or round(scenario.training.rounds.mid), None)


def _answer(training: Training, clients: int, rounds: int, wanted: float | None) -> PrivacyAnswer:
    privacy = training.privacy
    assert privacy is not None
    why = why_no_epsilon(training, clients)
    used = None if why else sampler_of(training, clients)
    after = sorted({max(1, round(share * rounds)) for share in SHARES})
    told = (
        ()
        if used is None
        else tuple(
            Spent(rounds=each, epsilon=spent(used, privacy.noise_ratio, each, privacy.delta))
            for each in after
        )
    )
    return PrivacyAnswer(
        escala=__version__,
        place=privacy.place,
        clients=clients,
        clients_per_round=training.clients_per_round,
        rounds=rounds,
        delta=privacy.delta,
        noise_ratio=privacy.noise_ratio,
        wanted_epsilon=wanted,
        why_none=why,
        sampler=None if used is None else used.name,
        neighbours=None if used is None else used.neighbours,
        epsilon=told[-1].epsilon if told else None,
        spent=told,
        others=() if why else tuple(_others(training, clients, rounds)),
        notes=tuple(_notes(privacy, clients)),
    )


def _others(training: Training, clients: int, rounds: int) -> Iterator[OtherWay]:
    """The same noise with clients drawn by chance, by a fixed number, and all of them; central noise only."""
    privacy = training.privacy
    assert privacy is not None
    if privacy.place == "local":
        return
    cohort = training.clients_per_round
    ways = [(each, cohort) for each in OTHERS if cohort < clients] + [(Selection.UNIFORM, clients)]
    for selection, number in ways:
        other = _training(privacy.noise_ratio, number, selection, privacy.place, privacy.delta)
        used = sampler_of(other, clients)
        yield OtherWay(
            selection="all" if number == clients else selection.value,
            clients_per_round=number,
            epsilon=spent(used, privacy.noise_ratio, rounds, privacy.delta),
        )


def _notes(privacy: Privacy, clients: int) -> Iterator[str]:
    if privacy.delta >= 1 / clients:
        yield (
            f"delta {privacy.delta:g} is not below 1 / clients ({1 / clients:g}): to publish one client's"
            " data whole would be within it"
        )
    yield "metrics, cohorts and times are released without noise and are not in epsilon"


def _training(noise: float, cohort: int, sampler: str, place: str, delta: float) -> Training:
    return Training(
        rounds=exactly(1.0),
        clients_per_round=cohort,
        selection=Selection(sampler),
        privacy=Privacy(place=place, noise_ratio=noise, clip=CLIP, delta=delta),
    )
