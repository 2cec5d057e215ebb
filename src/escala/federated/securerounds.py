"""Rounds in which the server learns sums only: cohort, masked mean, the strategy's step, one `Round` each.

A round whose sum cannot be revealed is repeated with the clients that are there then. Bytes are those of
whole messages: masked numbers travel as settings, not as arrays.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from escala.errors import EscalaError
from escala.federated.clocks import Clock, WallClock
from escala.federated.digest import digest
from escala.federated.fleet import Fleet
from escala.federated.flower import ClientApp, Grid, Strategy, arrays_of
from escala.federated.learner import Learner
from escala.federated.nodes import Nodes, TooFew
from escala.federated.private import mean_reply
from escala.federated.roundrecord import Round
from escala.federated.rounds import ATTEMPTS, ONLINE_S, Evaluate, Standing
from escala.federated.secure import Range, Summed, Weights, secure_app, secure_mean
from escala.federated.selection import choose
from escala.federated.strategy import give
from escala.federated.training import Training

LARGEST_CHANGE: Final = 2.0
"""No number of a model is taken to change by more in a round; an assumption, larger changes are refused."""


def secure_client(learner: Learner, clients: int) -> ClientApp:
    """The client half: trains as the learner says, and masks the change."""

    def train(weights: Weights, client: int, round_: int) -> tuple[Weights, int]:
        done = learner.train(weights, client=client, round_=round_)
        return done.weights, done.samples

    return secure_app(train, learner.training, bounds_of(learner, clients))


def bounds_of(learner: Learner, clients: int) -> Range:
    """What updates of a learner's clients fit in."""
    return Range(most=LARGEST_CHANGE, samples=max(learner.samples(client) for client in range(clients)))


class SecureRounds:
    """The rounds of one run; each is a `Round`, and `standing` is what the next one begins with."""

    def __init__(
        self,
        grid: Grid,
        strategy: Strategy,
        training: Training,
        fleet: Fleet,
        standing: Standing,
        *,
        bounds: Range,
        evaluate: Evaluate,
    ) -> None:
        self.standing = standing
        self._grid, self._strategy, self._training, self._fleet = grid, strategy, training, fleet
        self._bounds, self._evaluate = bounds, evaluate
        self._clock: Clock = grid if hasattr(grid, "now_s") else WallClock()
        self._nodes = Nodes(grid, len(fleet), self._clock)
        self._began_s = self._clock.now_s - standing.elapsed_s

    def until(self, last: int) -> Iterator[Round]:
        """Rounds up to this one, each recorded when its weights stand."""
        while self.standing.round_ < last:
            yield self._round(self.standing.round_ + 1)

    def _round(self, round_: int) -> Round:
        start_s = self._clock.now_s
        cohort, summed = self._summed(round_)
        give(self._strategy, self.standing.weights)
        arrays, _ = self._strategy.aggregate_train(round_, [mean_reply(self.standing.weights, summed.change)])
        assert arrays is not None
        self.standing.weights = arrays_of(arrays)
        self.standing.round_ = self.standing.turn = round_
        self.standing.elapsed_s = self._clock.now_s - self._began_s
        lost = len(cohort) - len(summed.returned)
        return Round(
            round=round_,
            cohort=cohort,
            returned=summed.returned,
            lost={"silent": lost} if lost else {},
            down_bytes=summed.down_bytes,
            up_bytes=summed.up_bytes,
            start_s=start_s - self._began_s,
            round_s=self._clock.now_s - start_s,
            metrics=dict(self._evaluate(self.standing.weights)),
            weights_digest=digest(self.standing.weights),
        )

    def _summed(self, round_: int) -> tuple[tuple[int, ...], Summed]:
        """A cohort and its mean change, of enough clients."""
        least, told = self._training.least_clients, "nobody was chosen"
        for _ in range(ATTEMPTS):
            cohort = self._chosen(round_)
            nodes = {client: self._nodes.node(client) for client in cohort}
            try:
                summed = secure_mean(
                    self._grid, nodes, self.standing.weights, round_, self._training, self._bounds
                )
            except EscalaError as error:
                told = str(error)
                continue
            if len(summed.returned) >= least:
                return cohort, summed
            told = f"{len(summed.returned)} of at least {least} clients answered"
        raise TooFew(
            f"round {round_} failed in each of {ATTEMPTS} attempts ({told}); look at the clients' logs"
        )

    def _chosen(self, round_: int) -> tuple[int, ...]:
        here = self._nodes.wait_for(self._training.least_clients, ONLINE_S)
        chosen = choose(
            self._training,
            self._fleet,
            self.standing.history,
            here,
            round_=round_,
            hour=self._clock.hour,
        )
        self.standing.history.chosen[chosen] += 1
        return tuple(int(client) for client in np.asarray(chosen))
