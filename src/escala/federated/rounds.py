"""Rounds of a Flower strategy over a Grid by our rules: cohort, deadline, which replies count, who is lost.

The same over the Grid in this process and over a SuperLink. A round with too few replies is repeated with
others, where there are enough; after `ATTEMPTS` the run ends and says what became of each client.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from escala.federated.accepted import ARRAYS, LATE, METRICS, WEIGHT
from escala.federated.clocks import Clock, WallClock
from escala.federated.digest import digest
from escala.federated.events import MOST_LATE
from escala.federated.fleet import Fleet, History
from escala.federated.flower import (
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
from escala.federated.ledger import Ledger
from escala.federated.nodes import Nodes, TooFew
from escala.federated.packing import Packing, Plain
from escala.federated.posting import Came, Cohort, Post
from escala.federated.privacy import epsilon, why_no_epsilon
from escala.federated.roundrecord import Round
from escala.federated.selection import choose
from escala.federated.strategy import STALENESS, give
from escala.federated.training import Algorithm, Selection, Training
from escala.model.columns import I64, Bool

ATTEMPTS: Final = 3
MOST_S: Final = 3600.0
"""A round without a deadline waits so long, as Flower's own strategies do."""
ONLINE_S: Final = 300.0
"""So long a round waits for enough nodes."""
CONFIG, TURN = "config", "turn"
Evaluate = Callable[[Arrays], Mapping[str, float]]


@dataclass(slots=True, kw_only=True, eq=False)
class Standing:
    """Where a run stands: weights, rounds done, pieces of work given out, what clients are known by, time."""

    weights: Arrays
    history: History
    round_: int = 0
    turn: int = 0
    elapsed_s: float = 0.0


@dataclass(slots=True, kw_only=True, eq=False)
class Gathered:
    """What a round has so far: whom it asked, which replies count, why others do not."""

    cohort: list[int] = field(default_factory=list)
    counted: list[Came] = field(default_factory=list)
    faults: dict[int, str] = field(default_factory=dict)


class Rounds:
    """The rounds of one run; each is a `Round`, and `standing` is what the next one begins with."""

    def __init__(
        self,
        grid: Grid,
        strategy: Strategy,
        training: Training,
        fleet: Fleet,
        standing: Standing,
        *,
        packing: Packing | None = None,
        ledger: Ledger | None = None,
        evaluate: Evaluate | None = None,
        kept_out: Iterable[int] = (),
    ) -> None:
        self.standing = standing
        self._grid, self._strategy, self._training, self._fleet = grid, strategy, training, fleet
        self._ledger = ledger or Ledger()
        self._evaluate, self._kept_out = evaluate, list(kept_out)
        self._clock: Clock = grid if hasattr(grid, "now_s") else WallClock()
        self._nodes = Nodes(grid, len(fleet), self._clock)
        self._post = Post(grid, self._nodes, packing or Plain(), self._ledger, self._clock)
        self._began_s = self._clock.now_s - standing.elapsed_s
        self._waiting: list[Came] = []  # came, but were not needed any more

    def until(self, last: int) -> Iterator[Round]:
        """Rounds up to this one, each recorded when its weights stand."""
        while self.standing.round_ < last:
            yield self._round(self.standing.round_ + 1)

    def _round(self, round_: int) -> Round:
        start_s = self._clock.now_s
        gathered = self._enough(round_)
        is_released = bool(gathered.counted) or self._is_private
        metrics = self._step(round_, gathered.counted) if is_released else {}
        self._remember(round_, gathered)
        if self._evaluate is not None:
            metrics |= self._evaluate(self.standing.weights)
        record = self._recorded(round_, gathered, start_s, metrics)
        self._ledger.close()
        return record

    def _enough(self, round_: int) -> Gathered:
        """Replies of a cohort, asked again until there are enough: others, where there are enough others."""
        least, failed = self._training.least_clients, dict[int, str]()
        for _ in range(ATTEMPTS):
            gathered = self._buffered(round_) if self._is_buffered else self._cohort(round_, failed)
            is_empty_by_chance = self._is_by_chance and not gathered.cohort
            if len(gathered.counted) >= max(least, 1) or is_empty_by_chance:
                return gathered
            failed |= gathered.faults
            self._forget(round_ + 1)
        told = ", ".join(f"{count} {reason}" for reason, count in sorted(Counter(failed.values()).items()))
        raise TooFew(
            f"round {round_} had {len(gathered.counted)} valid replies of at least {least} in each of "
            f"{ATTEMPTS} attempts ({told or 'nobody was chosen'}); look at the logs of these clients,"
            " lengthen round_deadline_s, or ask for fewer with least_clients"
        )

    def _forget(self, round_: int) -> None:
        """Work of rounds before this one is of no interest any more, also where it has come back."""
        self._post.forget(round_)
        self._waiting = [each for each in self._waiting if each.asked.round_ >= round_]

    @property
    def _is_buffered(self) -> bool:
        return self._training.algorithm is Algorithm.FEDBUFF

    @property
    def _is_private(self) -> bool:
        """Whether a round releases noise even if nobody came: that nobody came is to stay hidden."""
        return self._training.privacy is not None and self._training.privacy.place == "central"

    def _epsilon(self, round_: int) -> float | None:
        """Privacy spent after a round, where it can be told."""
        is_told = why_no_epsilon(self._training, len(self._fleet)) is None
        return epsilon(self._training, len(self._fleet), round_) if is_told else None

    @property
    def _is_by_chance(self) -> bool:
        return self._training.selection is Selection.POISSON

    def _cohort(self, round_: int, failed: Mapping[int, str]) -> Gathered:
        """One cohort until enough of it returned, all answered, or the deadline came."""
        gathered = Gathered()
        here = self._nodes.wait_for(max(self._training.least_clients, 1), ONLINE_S)
        here[self._kept_out] = False
        others = here.copy()
        others[list(failed)] = False
        here = others if others.sum() >= self._training.least_clients else here
        chosen = self._chosen(self._training, here, round_)
        self._ask(gathered, chosen, round_, turn=round_)
        wanted = self._wanted(len(chosen))
        until_s = self._clock.now_s + (self._training.round_deadline_s or MOST_S)
        while not self._collected(gathered, round_, wanted):
            if self._clock.now_s >= until_s:
                break
            self._clock.wait(until_s - self._clock.now_s)
        for client in sorted(set(gathered.cohort) - {each.asked.client for each in gathered.counted}):
            gathered.faults.setdefault(client, LATE)
        self._forget(round_ + 1 - (MOST_LATE if self._training.merges_late else 0))
        return gathered

    def _buffered(self, round_: int) -> Gathered:
        """The first `buffer` replies; whoever answers makes room for another client."""
        gathered = Gathered()
        until_s = self._clock.now_s + (self._training.round_deadline_s or MOST_S)
        wanted = self._training.buffer or 1
        self._top_up(gathered, round_)
        while not self._collected(gathered, round_, wanted) and self._clock.now_s < until_s:
            self._top_up(gathered, round_)
            self._clock.wait(until_s - self._clock.now_s)
        return gathered

    def _top_up(self, gathered: Gathered, round_: int) -> None:
        """Ask so many clients that as many work as shall at a time, none twice."""
        busy = [each.client for each in self._post.out] + [each.asked.client for each in self._waiting]
        free = self._training.clients_per_round - len(busy)
        here = self._nodes.wait_for(1, ONLINE_S)
        here[busy + self._kept_out] = False
        here[list(gathered.faults)] = False
        if free > 0 and here.any():
            self.standing.turn += 1
            chosen = self._chosen(replace(self._training, clients_per_round=free), here, self.standing.turn)
            self._ask(gathered, chosen, round_, turn=self.standing.turn)

    def _chosen(self, training: Training, here: Bool, round_: int) -> I64:
        return choose(
            training, self._fleet, self.standing.history, here, round_=round_, hour=self._clock.hour
        )

    def _ask(self, gathered: Gathered, chosen: I64, round_: int, turn: int) -> None:
        if not len(chosen):
            return
        nodes = [self._nodes.node(int(client)) for client in chosen]
        arrays, config = record_of(self.standing.weights), ConfigRecord({})
        shown = Cohort(self._grid, nodes)
        messages = sorted(
            self._strategy.configure_train(round_, arrays, config, shown),
            key=lambda each: nodes.index(each.metadata.dst_node_id),
        )
        for each in messages:
            told = ConfigRecord({**each.content.config_records.get(CONFIG, {}), TURN: turn})
            each.content = RecordDict({**each.content, CONFIG: told})
        self._post.send(messages, self.standing.weights, round_)
        gathered.cohort += [int(client) for client in chosen]
        self.standing.history.chosen[chosen] += 1

    def _wanted(self, asked: int) -> int:
        """How many replies end a round before its deadline: those that have to return; by chance, all."""
        return asked if self._is_by_chance else min(self._training.clients_per_round, asked)

    def _collected(self, gathered: Gathered, round_: int, wanted: int) -> bool:
        """Take what came, no more than is wanted; true when the round need not wait any longer."""
        self._waiting += self._post.collect()
        while self._waiting and self._fresh(gathered, round_) < wanted:
            each = self._waiting.pop(0)
            if each.fault is None:
                gathered.counted.append(each)
            elif each.asked.round_ == round_ or self._is_buffered:
                gathered.faults[each.asked.client] = each.fault
        is_open = self._is_buffered or any(each.round_ == round_ for each in self._post.out)
        return self._fresh(gathered, round_) >= wanted or not is_open

    def _fresh(self, gathered: Gathered, round_: int) -> int:
        """Replies that count towards what is wanted: those of this round; with a buffer, all."""
        return sum(each.asked.round_ == round_ or self._is_buffered for each in gathered.counted)

    def _step(self, round_: int, counted: list[Came]) -> dict[str, float]:
        """The strategy's step from replies in the order of clients, so that sums do not depend on arrival."""
        ordered = sorted(counted, key=lambda each: (each.asked.client, each.asked.round_))
        replies = [self._plain(each, round_ - each.asked.round_) for each in ordered]
        if not replies:
            give(self._strategy, self.standing.weights)
        arrays, metrics = self._strategy.aggregate_train(round_, replies)
        assert arrays is not None
        kinds = {name: each.dtype for name, each in self.standing.weights.items()}
        self.standing.weights = {name: each.astype(kinds[name]) for name, each in arrays_of(arrays).items()}
        return {f"train_{name}": float(value) for name, value in (metrics or {}).items() if _is_number(value)}

    def _plain(self, came: Came, staleness: int) -> Message:
        """A reply with plain weights; a late one is moved to the present weights, and counts less.

        Weight 1 / sqrt(1 + staleness): Nguyen et al. 2022 (FedBuff), section 5.
        """
        assert came.reply is not None
        content, weights = dict(came.reply.content), came.weights
        metrics = dict(content[METRICS])
        if staleness:
            now, had = self.standing.weights, came.asked.had
            weights = {name: now[name] + (weights[name] - had[name]) for name in now}
        if self._is_buffered:
            metrics[STALENESS] = staleness
        elif staleness:
            metrics[WEIGHT] = metrics[WEIGHT] / math.sqrt(1 + staleness)
        came.reply.content = RecordDict(
            {**content, ARRAYS: record_of(weights), METRICS: MetricRecord(metrics)}
        )
        return came.reply

    def _remember(self, round_: int, gathered: Gathered) -> None:
        history = self.standing.history
        for each in gathered.counted:
            assert each.reply is not None
            told = each.reply.content[METRICS]
            history.loss[each.asked.client] = told.get("rms-loss", told.get("loss", 0.0))
            history.round_s[each.asked.client] = each.took_s
            history.last_round[each.asked.client] = round_
        self.standing.round_ = round_
        self.standing.turn = max(self.standing.turn, round_)
        self.standing.elapsed_s = self._clock.now_s - self._began_s

    def _recorded(
        self, round_: int, gathered: Gathered, start_s: float, metrics: Mapping[str, float]
    ) -> Round:
        returned = sorted({each.asked.client for each in gathered.counted})
        lost = Counter(fault for client, fault in gathered.faults.items() if client not in returned)
        totals = {f"{way}_total_bytes": float(self._ledger.total_bytes(way)) for way in ("down", "up")}
        return Round(
            round=round_,
            cohort=tuple(sorted(gathered.cohort)),
            returned=tuple(returned),
            lost=dict(sorted(lost.items())),
            down_bytes=self._ledger.payload_bytes("down"),
            up_bytes=self._ledger.payload_bytes("up"),
            start_s=start_s - self._began_s,
            round_s=self._clock.now_s - start_s,
            metrics={**metrics, **totals},
            epsilon=self._epsilon(round_),
            weights_digest=digest(self.standing.weights),
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and bool(np.isfinite(value))
