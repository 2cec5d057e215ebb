"""Central privacy around any Flower strategy: clipped updates, a fixed divisor, noise. Knows messages."""

from collections.abc import Iterable

import numpy as np

from escala.federated.accepted import ARRAYS, METRICS, WEIGHT
from escala.federated.flower import (
    SUPERLINK,
    TRAIN,
    ArrayRecord,
    Arrays,
    ConfigRecord,
    Grid,
    Message,
    MetricRecord,
    RecordDict,
    Strategy,
    arrays_of,
    record_of,
)
from escala.federated.privacy import private_mean
from escala.federated.training import Training
from escala.federated.weights import less, moved, stacked, zeros


def mean_reply(given: Arrays, change: Arrays) -> Message:
    """A reply that stands for a whole cohort: the weights that were given + the mean change."""
    weights = record_of(moved(given, change, 1.0))
    content = RecordDict({ARRAYS: weights, METRICS: MetricRecord({WEIGHT: 1})})
    return Message(content, reply_to=Message(RecordDict(), SUPERLINK, TRAIN))


class Private(Strategy):
    """The strategy steps from one noisy mean; metrics of replies, which have no noise, end here.

    Noise is drawn from the operating system's entropy: whoever knows a seed could take it off.
    """

    def __init__(self, strategy: Strategy, training: Training) -> None:
        assert training.privacy is not None
        self.strategy = strategy
        self._privacy, self._expected = training.privacy, training.clients_per_round
        self._given: Arrays = {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As the strategy does."""
        self._given = arrays_of(arrays)
        return self.strategy.configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """What the strategy makes of the noisy mean; noise alone where nobody came."""
        came = [less(arrays_of(each.content[ARRAYS]), self._given) for each in replies]
        changes = stacked(came or [zeros(self._given)])
        mean = private_mean(changes, self._privacy, self._expected, np.random.default_rng())
        arrays, _ = self.strategy.aggregate_train(server_round, [mean_reply(self._given, mean)])
        return arrays, None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As the strategy does."""
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """As the strategy does."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """As the strategy does."""
        self.strategy.summary()
