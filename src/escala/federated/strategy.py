"""The Flower strategy of a training: Flower's own where it has one, else ours, by formulas of `algorithms`.

A strategy decides what is sent and how replies become weights; who is asked and which reply counts is
decided in `rounds`, so every strategy here takes all nodes that its grid shows.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from escala.federated.accepted import ARRAYS, METRICS, WEIGHT
from escala.federated.algorithms import (
    Server,
    counts_of,
    server_of,
    server_rate,
    shares_of,
    stepped,
    with_controls,
)
from escala.federated.flower import (
    ArrayRecord,
    Arrays,
    ConfigRecord,
    FedAdam,
    FedAvg,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedYogi,
    Grid,
    Krum,
    Message,
    MetricRecord,
    RecordDict,
    Strategy,
    arrays_of,
    record_of,
)
from escala.federated.private import Private
from escala.federated.refusals import refuse
from escala.federated.robust import robust_mean, trim_ratio
from escala.federated.training import Algorithm, Robust, Training
from escala.federated.weights import less, stacked

CONTROL: Final = "control"
STALENESS: Final = "staleness"
EVERYBODY: Final = {
    "fraction_train": 1.0,
    "fraction_evaluate": 0.0,
    "min_train_nodes": 1,
    "min_evaluate_nodes": 1,
    "min_available_nodes": 1,
}
"""What a strategy of Flower is told: train on every node of the grid that it is given, evaluate on none."""
PLAIN: Final = (Algorithm.FEDAVG, Algorithm.FEDPROX)
"""The server's step of both is the mean; what FedProx adds to gradients is the clients' business."""
SENT_ANEW: Final = ("current_arrays", "_given")
"""What a strategy keeps although every round brings it again."""


def strategy_of(training: Training, clients: int) -> Strategy:
    """The strategy that a training of so many clients asks for; what cannot be run is refused."""
    refuse(training, clients)
    if training.privacy is not None and training.privacy.place == "central":
        return Private(_open(training, clients), training)
    return _open(training, clients)


def _open(training: Training, clients: int) -> Strategy:
    is_plain = training.algorithm in PLAIN and server_rate(training) == 1.0
    if training.robust in _RULES and is_plain:
        return _RULES[training.robust](training)
    if training.robust is Robust.MEAN:
        if training.algorithm is Algorithm.FEDADAM:
            return FedAdam(**EVERYBODY, eta=server_rate(training))
        if training.algorithm is Algorithm.FEDYOGI:
            return FedYogi(**EVERYBODY, eta=server_rate(training))
        if is_plain:
            return _plain(training)
    return Stepping(training, clients)


class Stepping(FedAvg):
    """What Flower has no strategy for, by own formulas: SCAFFOLD, FedBuff, a server rate, a norm bound."""

    def __init__(self, training: Training, clients: int) -> None:
        super().__init__(**EVERYBODY)
        self._training, self._clients = training, clients
        self._given: Arrays = {}
        self.momentum: Arrays = {}
        self.second: Arrays = {}
        self.control: Arrays = {}
        self.steps = 0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages to every node; with SCAFFOLD they carry the server's variate too."""
        self._given = arrays_of(arrays)
        if not self.steps:
            self._keep(server_of(self._training, self._given))
        messages = list(super().configure_train(server_round, arrays, config, grid))
        if self.control:
            control = record_of(self.control)
            for message in messages:
                message.content = RecordDict({**message.content, CONTROL: control})
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The server's step along what the rule makes of the changes; its variate moves with the clients'."""
        came = [each.content for each in replies]
        if not came:
            return None, None
        server = stepped(self._server(), self._training, self._change(came))
        if self.control:
            turned = stacked([arrays_of(each[CONTROL]) for each in came])
            server = with_controls(server, turned, self._clients)
        self._keep(server)
        return record_of(server.weights), self.train_metrics_aggr_fn(came, WEIGHT)

    def _server(self) -> Server:
        return Server(
            weights=self._given,
            steps=self.steps,
            momentum=self.momentum,
            second=self.second,
            control=self.control,
        )

    def _keep(self, server: Server) -> None:
        self.steps, self.momentum = server.steps, server.momentum
        self.second, self.control = server.second, server.control

    def _change(self, came: Sequence[RecordDict]) -> Arrays:
        metrics = [each[METRICS] for each in came]
        samples = np.array([each[WEIGHT] for each in metrics])
        staleness = np.array([each.get(STALENESS, 0) for each in metrics])
        changes = stacked([less(arrays_of(each[ARRAYS]), self._given) for each in came])
        shares = shares_of(self._training, counts_of(self._training, samples, staleness))
        return robust_mean(self._training, changes, shares)


def give(strategy: Strategy, weights: Arrays) -> None:
    """Tell a strategy the weights of a round in which it asked nobody."""
    for name, value in list(vars(strategy).items()):
        if isinstance(value, Strategy):
            give(value, weights)
        elif name in SENT_ANEW:
            setattr(strategy, name, weights)


def kept_by(strategy: Strategy) -> tuple[dict[str, Arrays], dict[str, float]]:
    """What a strategy has to find again after a restart: its dicts of arrays, and its numbers, by name."""
    groups: dict[str, Arrays] = {}
    numbers: dict[str, float] = {}
    for name, value in vars(strategy).items():
        if isinstance(value, Strategy):
            inner_groups, inner_numbers = kept_by(value)
            groups |= {f"{name}.{inner}": each for inner, each in inner_groups.items()}
            numbers |= {f"{name}.{inner}": each for inner, each in inner_numbers.items()}
        elif _is_group(value) and name not in SENT_ANEW:
            groups[name] = value
        elif isinstance(value, int | float) and not isinstance(value, bool):
            numbers[name] = value
    return groups, numbers


def restore(strategy: Strategy, groups: dict[str, Arrays], numbers: dict[str, float]) -> None:
    """Give a strategy back what it kept."""
    for name, value in (groups | numbers).items():
        *way, last = name.split(".")
        target: Any = strategy
        for step in way:
            target = vars(target)[step]
        setattr(target, last, value)


def _is_group(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(v, np.ndarray) for v in value.values())


def _plain(training: Training) -> Strategy:
    if training.algorithm is Algorithm.FEDPROX:
        return FedProx(**EVERYBODY, proximal_mu=training.proximal)
    return FedAvg(**EVERYBODY)


def _median(training: Training) -> Strategy:
    return FedMedian(**EVERYBODY)


def _trimmed(training: Training) -> Strategy:
    return FedTrimmedAvg(**EVERYBODY, beta=trim_ratio(training))


def _krum(training: Training) -> Strategy:
    return Krum(**EVERYBODY, num_malicious_nodes=training.attackers)


_RULES: Final[dict[Robust, Callable[[Training], Strategy]]] = {
    Robust.MEDIAN: _median,
    Robust.TRIMMED_MEAN: _trimmed,
    Robust.KRUM: _krum,
}
"""Flower's own rules against updates that lie or err."""
