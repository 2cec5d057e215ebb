"""What noise costs and buys: the epsilon of a training by the sampler it uses, or why there is none.

Accounting is dp-accounting's (Renyi); which event matches which sampler, and when none does, stands here.
What is protected is the released weights; metrics, cohorts and times are not, and the noise is not that of a
cryptographic generator.
"""

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from escala.errors import InvalidInput, MissingExtra
from escala.federated.refusals import reasons_against
from escala.federated.training import Privacy, Selection, Training
from escala.model.columns import F64

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent

F32 = NDArray[np.float32]
INSTALL: Final = "pip install 'escala[federated]'"
LEAST_NOISE, MOST_NOISE = 1e-2, 1e6
"""Between which the noise for an epsilon is looked for; an assumption, wider than any use."""
NOISE_STEP: Final = 1e-3
"""How near the least noise is found, relative; always from above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """How a client comes to take part, as an accountant sees it.

    `share` is the chance of a round that amplifies; 1 where none is claimed. `noise_share` is the noise over
    the distance between neighbours, in noise ratios: 1 where they differ by one client's update, 1/2 by two.
    """

    name: str
    share: float
    noise_share: float
    neighbours: str


def sampler_of(training: Training, clients: int) -> Sampler:
    """The sampler that a way of training really uses. Raises with the reason where none is known.

    Source: Mironov et al. 2019 (Poisson sampled Gaussian). Cohorts of fixed size: no amplification is
    claimed, each round is a Gaussian mechanism on one client's update or nothing in its place.
    """
    why = why_no_epsilon(training, clients)
    if why:
        raise InvalidInput(f"no epsilon: {why}")
    assert training.privacy is not None
    if training.privacy.place == "local":
        return Sampler(
            name="none: each client adds its own noise, and the server sees who takes part",
            share=1.0,
            noise_share=0.5,
            neighbours="one client's data replaced by any other; the client takes part in every round",
        )
    left_out = "one client's data left out"
    if training.clients_per_round == clients:
        return Sampler(name="every client, every round", share=1.0, noise_share=1.0, neighbours=left_out)
    if training.selection is Selection.POISSON:
        share = training.clients_per_round / clients
        name = f"Poisson, each client with a chance of {share:.3g} a round; valid while cohorts stay secret"
        return Sampler(name=name, share=share, noise_share=1.0, neighbours=left_out)
    name = f"{training.clients_per_round} of {clients} clients a round, no amplification claimed"
    return Sampler(name=name, share=1.0, noise_share=1.0, neighbours=left_out)


def why_no_epsilon(training: Training, clients: int) -> str | None:
    """Why no epsilon can be given for a way of training, and what would allow one; None if it can."""
    privacy = training.privacy
    if privacy is None:
        return "no noise is added; give privacy a place, a noise ratio, a clip and a delta"
    against = reasons_against(training, clients)
    if against:
        return against[0]
    if privacy.place == "local":
        return None
    if training.selection in (Selection.UTILITY, Selection.ENERGY):
        return (
            f"{training.selection.value} selection chooses clients by losses or by work done, so by their"
            " data; choose poisson, uniform or low-carbon"
        )
    if training.round_deadline_s is not None or training.over_selection > 1:
        return (
            "a deadline or over-selection drops clients by how long their samples take, so by their data;"
            " take both away"
        )
    if training.selection is Selection.POISSON and training.codec_up.has_feedback:
        return (
            "error feedback carries what earlier rounds left into this one, so a client's update depends on"
            " when it was drawn before, which Poisson amplification does not allow; take has_feedback away,"
            " or choose uniform"
        )
    return None


def epsilon(training: Training, clients: int, rounds: int) -> float:
    """Privacy spent after some rounds at the delta of the training. Raises where no epsilon is known."""
    sampler = sampler_of(training, clients)
    assert training.privacy is not None
    return spent(sampler, training.privacy.noise_ratio, rounds, training.privacy.delta)


def spent(sampler: Sampler, noise_ratio: float, rounds: int, delta: float) -> float:
    """Epsilon of so many rounds of one sampler, by Renyi accounting."""
    if rounds == 0:
        return 0.0
    orders, one_round = _renyi(sampler, noise_ratio)
    with _quiet():
        return float(_library().compute_epsilon(orders, rounds * one_round, delta)[0])


def noise_for(sampler: Sampler, epsilon: float, rounds: int, delta: float) -> float:
    """The least noise ratio whose epsilon after some rounds is not above the one wanted."""
    if not 0 < epsilon < math.inf:
        raise InvalidInput(f"epsilon is {epsilon}; give one above 0, such as 8")
    low, high = LEAST_NOISE, LEAST_NOISE
    while spent(sampler, high, rounds, delta) > epsilon:
        low, high = high, high * 2
        if high > MOST_NOISE:
            raise InvalidInput(
                f"no noise up to {MOST_NOISE:g} brings {rounds} rounds to epsilon {epsilon:g}; allow more"
                " epsilon or fewer rounds"
            )
    while high - low > NOISE_STEP * high:
        middle = (low + high) / 2
        low, high = (low, middle) if spent(sampler, middle, rounds, delta) <= epsilon else (middle, high)
    return high


def private_mean(
    changes: dict[str, F32], privacy: Privacy, expected_clients: float, generator: np.random.Generator
) -> dict[str, F32]:
    """Sum of clipped updates / clients expected + Gaussian noise of ratio * clip / clients expected.

    Shapes: every array (clients that returned, ...). The divisor is the number expected, not the one that
    came: otherwise one client more or less would move the weights of all others. Every client counts the
    same. Source: McMahan et al. 2018 (DP-FedAvg), fixed-denominator estimator.
    """
    shortened = clipped(changes, privacy.clip)
    deviation = privacy.noise_ratio * privacy.clip / expected_clients
    return {
        name: (
            each.sum(axis=0, dtype=np.float64) / expected_clients
            + generator.normal(0.0, deviation, each.shape[1:])
        ).astype(np.float32)
        for name, each in shortened.items()
    }


def locally_private(
    change: dict[str, F32], privacy: Privacy, generator: np.random.Generator
) -> dict[str, F32]:
    """One client's clipped update + Gaussian noise of ratio * clip on every number."""
    shortened = clipped({name: each[None] for name, each in change.items()}, privacy.clip)
    deviation = privacy.noise_ratio * privacy.clip
    return {
        name: (each[0] + generator.normal(0.0, deviation, each.shape[1:])).astype(np.float32)
        for name, each in shortened.items()
    }


def clipped(changes: dict[str, F32], bound: float) -> dict[str, F32]:
    """Updates of several clients, each shortened to the bound in Euclidean norm over all its tensors."""
    factors = (bound / np.maximum(norms(changes), bound)).astype(np.float32)
    return {name: each * factors.reshape((-1,) + (1,) * (each.ndim - 1)) for name, each in changes.items()}


def norms(changes: dict[str, F32]) -> F64:
    """Euclidean length of each client's update over all tensors. Shape (clients,)."""
    squares = [
        np.square(each.reshape(len(each), -1), dtype=np.float64).sum(axis=1) for each in changes.values()
    ]
    return np.sqrt(np.sum(squares, axis=0))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without dp-accounting's word on each order that it leaves out; the others hold without it."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _event(sampler: Sampler, noise_ratio: float) -> "DpEvent":
    from dp_accounting import dp_event

    gaussian = dp_event.GaussianDpEvent(noise_ratio * sampler.noise_share)
    return gaussian if sampler.share == 1 else dp_event.PoissonSampledDpEvent(sampler.share, gaussian)


@lru_cache(maxsize=64)
def _renyi(sampler: Sampler, noise_ratio: float) -> tuple[F64, F64]:
    """Orders, and the Renyi divergence of one round at each; rounds add up.

    Replacing one client's update by nothing is a neighbour that both events support.
    """
    library = _library()
    from dp_accounting.privacy_accountant import NeighboringRelation

    accountant = library.RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_SPECIAL)
    with _quiet():
        accountant.compose(_event(sampler, noise_ratio))
    return accountant.orders, accountant.rdp


def _library() -> Any:
    try:
        from dp_accounting import rdp
    except ModuleNotFoundError:
        raise MissingExtra(f"epsilon needs dp-accounting, which is not installed: {INSTALL}") from None
    return rdp
