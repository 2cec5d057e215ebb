"""Which samples of a task each client has, and how far its labels are from everybody's. Knows no training.

Either every client has exactly so many samples (`exact`: labels are dealt from shuffled decks, so no sample
is had twice before all of its label were had once), or the whole set is shared out once (`whole`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.errors import InvalidInput
from escala.federated.order import SERVER, generator
from escala.federated.scenario import ClientClass, LocalData, Skew
from escala.federated.task import Task
from escala.model.columns import F64, I64

CONCENTRATION: Final = 0.5
"""Of Dirichlet where a scenario names none; as in many published comparisons (Li et al. 2022, NIID-Bench)."""
DECKS, MIXES, SHARES = 1, 2, 3  # keep the random numbers of different purposes apart
Rows = tuple[I64, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mixes:
    """Labels by client: counts (clients, classes), and how far its shares are from everybody's.

    `distance` is total variation: half the sum of differences of shares, 0 for the same mix. One a client.
    """

    counts: I64
    distance: F64


def exact(task: Task, clients: Sequence[ClientClass], seed: int) -> Rows:
    """Rows of every client, in the order of classes; each has as many as its class says, but by user."""
    decks = _Decks(task.labels, task.classes, seed)
    held = np.zeros(task.classes, np.int64)
    rows: list[I64] = []
    for each in clients:
        if each.data.skew is Skew.BY_USER:
            rows += _by_user(task, each, seed)
            continue
        for _ in range(each.clients):
            counts = _counts(each.data, len(rows), held, decks.share, seed)
            rows.append(decks.dealt(counts))
    return tuple(rows)


def whole(task: Task, clients: Sequence[ClientClass], seed: int) -> Rows:
    """Rows of every client; all samples of the task are shared out, each to one client.

    Classes of clients get parts as large as their clients * samples; within a class labels are shared by its
    skew, for Dirichlet each label by a draw over clients.
    Source: Li et al. 2022 (NIID-Bench), section 4.1.
    """
    if any(each.data.skew is Skew.BY_USER for each in clients):
        if len(clients) > 1:
            raise InvalidInput("users are shared out to one class of clients; name one, or deal exact counts")
        return tuple(_by_user(task, clients[0], seed))
    generator_ = generator(seed, SERVER, DECKS)
    wanted = np.array([each.clients * each.data.samples for each in clients], np.float64)
    parts = _cut(generator_.permutation(len(task)), wanted / wanted.sum())
    pairs = zip(clients, parts, strict=True)
    made = tuple(rows for each, part in pairs for rows in _shared(task, each, part, generator_))
    empty = sum(len(rows) == 0 for rows in made)
    if empty:
        raise InvalidInput(
            f"{empty} of {len(made)} clients get no sample when {len(task):,} are shared out; name fewer "
            "clients, a larger concentration, or exact counts"
        )
    return made


def mixes(task: Task, rows: Rows) -> Mixes:
    """Labels of every client against those of all clients together."""
    counts = np.stack([np.bincount(task.labels[each], minlength=task.classes) for each in rows])
    shares = counts / counts.sum(axis=1, keepdims=True)
    everybody = counts.sum(axis=0) / counts.sum()
    return Mixes(counts=counts, distance=np.abs(shares - everybody).sum(axis=1) / 2)


class _Decks:
    """Rows of each label, shuffled; dealt from the top, shuffled anew when all were dealt."""

    def __init__(self, labels: I64, classes: int, seed: int) -> None:
        if labels.ndim != 1:
            raise InvalidInput("labels of one sample are several; share such samples by user")
        self._generator = generator(seed, SERVER, DECKS)
        self._rows = [np.flatnonzero(labels == label) for label in range(classes)]
        self._left = [self._generator.permutation(each) for each in self._rows]
        self.share = np.bincount(labels, minlength=classes) / len(labels)

    def dealt(self, counts: I64) -> I64:
        """So many rows of each label."""
        return np.concatenate([self._top(label, int(count)) for label, count in enumerate(counts)])

    def _top(self, label: int, count: int) -> I64:
        while len(self._left[label]) < count:
            again = self._generator.permutation(self._rows[label])
            self._left[label] = np.concatenate([self._left[label], again])
        given, self._left[label] = np.split(self._left[label], [count])
        return given


def _counts(data: LocalData, client: int, held: I64, share: F64, seed: int) -> I64:
    """How many samples of each label a client has."""
    draws = generator(seed, client, MIXES)
    if data.skew is Skew.BY_LABEL:
        return _spread(data.samples, _fewest_held(data, held, share, draws))
    mix = share
    if data.skew is Skew.DIRICHLET:
        mix = draws.dirichlet(np.full(len(share), data.concentration or CONCENTRATION)) * (share > 0)
    return draws.multinomial(data.samples, mix / mix.sum())


def _fewest_held(data: LocalData, held: I64, share: F64, draws: np.random.Generator) -> I64:
    """The labels of a client, those that the fewest clients have so far, ties by chance; counts them in."""
    there = np.flatnonzero(share > 0)
    labels = data.labels or 1
    if labels > len(there):
        raise InvalidInput(f"{labels} labels a client are more than the {len(there)} that there are")
    first = np.lexsort((draws.random(len(there)), held[there]))[:labels]
    held[there[first]] += 1
    chosen = np.zeros(len(share), np.int64)
    chosen[there[first]] = 1
    return chosen


def _spread(samples: int, chosen: I64) -> I64:
    """Samples in equal parts over the chosen labels; the first ones get one more where it does not divide."""
    each, more = divmod(samples, int(chosen.sum()))
    counts = chosen * each
    counts[np.flatnonzero(chosen)[:more]] += 1
    return counts


def _by_user(task: Task, each: ClientClass, seed: int) -> list[I64]:
    """All samples of one user a client; of more users than clients the seed chooses."""
    if task.users is None:
        raise InvalidInput(f"task {task.name} has no users; name their column, or choose another skew")
    users = np.unique(task.users)
    if each.clients > len(users):
        raise InvalidInput(
            f"class '{each.name}' has {each.clients:,} clients and the task {len(users):,} users; name fewer"
        )
    chosen = generator(seed, SERVER, DECKS).permutation(users)[: each.clients]
    return [np.flatnonzero(task.users == user) for user in chosen]


def _shared(task: Task, each: ClientClass, part: I64, draws: np.random.Generator) -> Iterator[I64]:
    """A part of the samples over the clients of one class."""
    labels = [part[task.labels[part] == label] for label in range(task.classes)]
    shares = np.stack(list(_label_shares(each, [len(rows) for rows in labels], draws)))
    cut = [_cut(rows, share) for rows, share in zip(labels, shares, strict=True)]
    for client in range(each.clients):
        yield np.concatenate([pieces[client] for pieces in cut])


def _label_shares(each: ClientClass, sizes: list[int], draws: np.random.Generator) -> Iterator[F64]:
    """For each label the share that every client of a class gets of it."""
    if each.data.skew is Skew.BY_LABEL:
        yield from _label_holders(each, np.array(sizes, np.float64), draws).T
        return
    for _ in sizes:
        if each.data.skew is Skew.DIRICHLET:
            yield draws.dirichlet(np.full(each.clients, each.data.concentration or CONCENTRATION))
        else:
            yield np.full(each.clients, 1 / each.clients)


def _label_holders(each: ClientClass, sizes: F64, draws: np.random.Generator) -> F64:
    """Equal shares of each label over the clients that hold it. Shape (clients, labels)."""
    held, share = np.zeros(len(sizes), np.int64), sizes / sizes.sum()
    chosen = np.stack([_fewest_held(each.data, held, share, draws) for _ in range(each.clients)])
    return chosen / np.maximum(held, 1)


def _cut(rows: I64, shares: F64) -> list[I64]:
    """Rows cut into pieces of such shares, none lost where shares add up to 1."""
    ends = np.floor(np.cumsum(shares) * len(rows) + 0.5).astype(np.int64)
    return np.split(rows, ends[:-1]) if shares.sum() > 0 else [rows[:0] for _ in shares]
