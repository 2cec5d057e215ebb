"""When a round ends: the first m of those that were asked, or a deadline. Knows times and chances only.

The number of clients that are back by a time is a sum of binomials, and the expected end of a round is an
integral of its tail: exact, without a simulation.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from escala.model.columns import F64

MOST_EXACT: Final = 512
MOST_ASKED: Final = 1_000_000
"""Every number of clients that may be back has a term: up to a million an assessment takes seconds."""
ENOUGH: Final = 1e-13
TINY: Final = 1e-300


def at_least(chance: F64, draws: int, wanted: int) -> F64:
    """Chance that so many of the draws succeed: the sum of (draws over k) p^k (1 - p)^(draws - k)."""
    p = np.clip(np.asarray(chance, np.float64), 0.0, 1.0)
    if wanted <= 0:
        return np.ones_like(p)
    if wanted > draws:
        return np.zeros_like(p)
    inside = np.clip(p, TINY, 1.0 - 1e-16)
    k = np.arange(wanted, draws + 1)
    logs = _ways(draws)[wanted:] + np.outer(np.log(inside), k) + np.outer(np.log1p(-inside), draws - k)
    return np.where(p >= 1.0, 1.0, np.where(p <= 0.0, 0.0, np.minimum(np.exp(logs).sum(axis=1), 1.0)))


@lru_cache(maxsize=64)
def _ways(draws: int) -> F64:
    """Logarithms of the ways to choose 0, 1, ..., all of so many."""
    steps = np.log(np.arange(draws, 0, -1) / np.arange(1, draws + 1))
    return np.concatenate([[0.0], np.cumsum(steps)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cohort:
    """Who is asked: for each class (rows) the times of a client's return and their chances; the rest is lost.

    `counts` are the clients of each class that are there. Shapes: (classes, times), (classes,).
    """

    times_s: F64
    chances: F64
    counts: F64
    asked: int
    wanted: int
    deadline_s: float | None = None

    @property
    def shares(self) -> F64:
        """Chance that a client that is asked is of each class."""
        return self.counts / self.counts.sum()

    @property
    def returned_ratio(self) -> float:
        """Chance that a client that is asked returns, late or not."""
        return float(self.shares @ self.chances.sum(axis=1))

    def back_ratio(self, end_s: float) -> float:
        """Chance that a client that is asked is back by then."""
        return float(self.shares @ np.where(self.times_s <= end_s, self.chances, 0.0).sum(axis=1))


def expected_end_s(cohort: Cohort) -> float:
    """Mean end of a round: the sum over times in order of (time to the next) * chance that it goes on.

    A round ends when the wanted are back, when nobody is out any more, or at the deadline. Where all clients
    that are there are asked, and they are at most 512, each class is present with all of its own; otherwise
    every client is drawn by itself.
    """
    at_s = np.unique(cohort.times_s[cohort.chances > 0])
    edges_s = np.concatenate([[0.0], at_s])
    ends_s = np.append(at_s, np.inf)
    if cohort.deadline_s is not None:
        edges_s, ends_s = np.minimum(edges_s, cohort.deadline_s), np.minimum(ends_s, cohort.deadline_s)
    goes_on = 1.0 - _ended(cohort, np.concatenate([[0.0], at_s]))
    spans_s = np.where(goes_on > ENOUGH, ends_s - edges_s, 0.0)
    return float(np.sum(spans_s * np.maximum(goes_on, 0.0)))


def expected_counted(back: float, asked: int, wanted: int) -> float:
    """Mean of the smaller of wanted and returned: n p P(of n-1 at most m-2) + m P(of n at least m)."""
    p = np.array([back])
    few = 1.0 - at_least(p, asked - 1, wanted - 1)[0]
    return float(asked * back * few + wanted * at_least(p, asked, wanted)[0])


def _ended(cohort: Cohort, at_s: F64) -> F64:
    """Chance at each time that a round is over."""
    arrived = cohort.times_s[None] <= at_s[:, None, None]
    back = np.where(arrived, cohort.chances[None], 0.0).sum(axis=2)
    lost = np.broadcast_to(1.0 - cohort.chances.sum(axis=1), back.shape)
    if cohort.asked == cohort.counts.sum() <= MOST_EXACT:
        return _all_ended(cohort, back, lost)
    return _drawn_ended(cohort, back @ cohort.shares, lost @ cohort.shares)


def _drawn_ended(cohort: Cohort, back: F64, lost: F64) -> F64:
    """Chance of enough + chance that none is out and fewer came, when each client is drawn by itself.

    With none out, a client is back with chance back / (back + lost).
    """
    settled = np.clip(back + lost, 0.0, 1.0)
    share = np.divide(back, settled, out=np.zeros_like(back), where=settled > 0)
    enough, all_back = np.split(at_least(np.append(back, share), cohort.asked, cohort.wanted), 2)
    return np.minimum(enough + settled**cohort.asked * (1.0 - all_back), 1.0)


def _all_ended(cohort: Cohort, back: F64, lost: F64) -> F64:
    """The same where everyone is asked: numbers that are back are sums of one binomial a class."""
    settled = np.clip(back + lost, 0.0, 1.0)
    share = np.divide(back, settled, out=np.zeros_like(back), where=settled > 0)
    enough = _sums(cohort.counts, back)[:, cohort.wanted :].sum(axis=1)
    fewer = _sums(cohort.counts, share)[:, : cohort.wanted].sum(axis=1)
    return np.minimum(enough + np.prod(settled**cohort.counts, axis=1) * fewer, 1.0)


def _sums(counts: F64, chances: F64) -> F64:
    """Chances of 0, 1, 2, ... successes over all classes, one row for each row of chances."""
    found = np.ones((len(chances), 1))
    for count, chance in zip(counts.astype(int).tolist(), chances.T, strict=True):
        one = _binomial(count, chance)
        wide = np.zeros((len(chances), found.shape[1] + count))
        for more in range(count + 1):
            wide[:, more : more + found.shape[1]] += one[:, more : more + 1] * found
        found = wide
    return found


def _binomial(count: int, chance: F64) -> F64:
    """Chances of 0, 1, ... successes of so many. Shape (n, count + 1)."""
    k = np.arange(count + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = _ways(count) + k * np.log(chance)[:, None] + (count - k) * np.log1p(-chance)[:, None]
    found = np.exp(np.nan_to_num(logs, nan=-np.inf))
    return np.where(chance[:, None] <= 0.0, k == 0, np.where(chance[:, None] >= 1.0, k == count, found))
