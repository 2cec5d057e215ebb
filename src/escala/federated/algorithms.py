"""How updates of clients become the next weights: FedAvg, FedProx, FedAdam, FedYogi, SCAFFOLD, FedBuff.

NumPy only; weights are dicts of arrays. What a client adds to its gradients stands here too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from escala.federated.training import Algorithm, Training
from escala.federated.weights import F32, Weights, less, moved, weighted_sum, zeros
from escala.model.columns import F64, I64

MOMENTUM: Final = 0.9
SECOND_MOMENTUM: Final = 0.99
ADAPTIVITY: Final = 1e-3
"""The three are beta 1, beta 2 and tau of Reddi et al. 2020, with the values that Flower 1.42 begins with."""
SERVER_RATES: Final = {Algorithm.FEDADAM: 0.1, Algorithm.FEDYOGI: 0.01}
"""Where none is asked for: those of Flower 1.42; all others step by the whole mean, 1.0."""
ADAPTIVE: Final = (Algorithm.FEDADAM, Algorithm.FEDYOGI)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Server:
    """What the server keeps between rounds: its weights, steps done, moments, SCAFFOLD's variate.

    Dicts that an algorithm does not use are empty.
    """

    weights: Weights
    steps: int
    momentum: Weights
    second: Weights
    control: Weights


def server_of(training: Training, weights: Weights) -> Server:
    """The server before the first round."""
    is_adaptive = training.algorithm in ADAPTIVE
    has_control = training.algorithm is Algorithm.SCAFFOLD
    return Server(
        weights=weights,
        steps=0,
        momentum=zeros(weights) if is_adaptive else {},
        second=zeros(weights) if is_adaptive else {},
        control=zeros(weights) if has_control else {},
    )


def server_rate(training: Training) -> float:
    """How far the server goes along the mean of changes."""
    asked = training.server_learning_rate
    return SERVER_RATES.get(training.algorithm, 1.0) if asked is None else asked


def proximal_of(training: Training) -> float:
    """How strongly clients are held near the server's weights; 0 but for FedProx.

    Source: Li et al. 2020 (FedProx), equation 2: the gradient of proximal / 2 * |weights - given|^2.
    """
    return training.proximal if training.algorithm is Algorithm.FEDPROX else 0.0


def counts_of(training: Training, samples: I64, staleness: I64) -> F64:
    """What each update counts in the mean: its samples, SCAFFOLD and FedBuff: 1; * 1 / sqrt(1 + staleness).

    Staleness is the number of server steps since the client was given its weights.
    Source: McMahan 2017, algorithm 1; Karimireddy 2020, algorithm 1; Nguyen 2022 (FedBuff), section 5.
    """
    counts_alike = training.algorithm in (Algorithm.SCAFFOLD, Algorithm.FEDBUFF)
    return np.asarray(
        (np.ones(len(samples)) if counts_alike else samples) / np.sqrt(1 + staleness), np.float64
    )


def shares_of(training: Training, counts: F64) -> F64:
    """Count / sum of counts; FedBuff divides by the number of updates, so that stale ones weigh less."""
    return counts / divisor_of(training, counts)


def divisor_of(training: Training, counts: F64) -> float:
    """What a sum of count * change is divided by."""
    return float(len(counts) if training.algorithm is Algorithm.FEDBUFF else counts.sum())


def stepped(server: Server, training: Training, change: Mapping[str, F32]) -> Server:
    """The server after a step along a change: sum of share * (weights of a client - those it was given)."""
    rate, steps = server_rate(training), server.steps + 1
    if training.algorithm not in ADAPTIVE:
        return replace(server, weights=moved(server.weights, change, rate), steps=steps)
    momentum = {
        name: np.float32(MOMENTUM) * each + np.float32(1 - MOMENTUM) * change[name]
        for name, each in server.momentum.items()
    }
    second = {name: _second(training, each, change[name] ** 2) for name, each in server.second.items()}
    if training.algorithm is Algorithm.FEDADAM:
        rate *= _correction(steps)
    step = {name: _over_deviation(each, second[name]) for name, each in momentum.items()}
    weights = moved(server.weights, step, rate)
    return replace(server, weights=weights, steps=steps, momentum=momentum, second=second)


def _second(training: Training, second: F32, square: F32) -> F32:
    """The second moment: Adam's mean of squares; Yogi moves by no more than the square itself.

    Source: Reddi et al. 2020 (Adaptive Federated Optimization), algorithm 2.
    """
    if training.algorithm is Algorithm.FEDADAM:
        return np.float32(SECOND_MOMENTUM) * second + np.float32(1 - SECOND_MOMENTUM) * square
    return second - np.float32(1 - SECOND_MOMENTUM) * square * np.sign(second - square)


def _over_deviation(momentum: F32, second: F32) -> F32:
    return np.asarray(momentum / (np.sqrt(second) + ADAPTIVITY), np.float32)


def _correction(steps: int) -> float:
    """Adam's correction of moments that begin at 0, as Flower 1.42 has it: it counts the first step as 2."""
    return float(np.sqrt(1 - SECOND_MOMENTUM ** (steps + 1)) / (1 - MOMENTUM ** (steps + 1)))


def pull_of(server: Server, own: Mapping[str, F32]) -> Weights:
    """What SCAFFOLD adds to every gradient of a client: the server's variate - the client's own."""
    return less(server.control, own)


def own_control(
    training: Training, pull: Mapping[str, F32], change: Mapping[str, F32], steps: int
) -> Weights:
    """A client's next variate: its mean gradient on the way, (start - end) / (steps * rate), less the pull.

    Source: Karimireddy et al. 2020 (SCAFFOLD), algorithm 1, option II: c_i - c + (x - y) / (K eta).
    """
    scale = np.float32(-1 / (steps * training.learning_rate))
    return {name: scale * change[name] - each for name, each in pull.items()}


def with_controls(server: Server, turned: Mapping[str, F32], clients: int) -> Server:
    """The server's variate moves by the sum of what clients' variates moved over the number of all clients.

    Shapes: `turned` is stacked, (clients of the round, ...).
    """
    returned = len(next(iter(turned.values())))
    total = weighted_sum(turned, np.full(returned, 1 / clients))
    return replace(server, control=moved(server.control, total, 1.0))
