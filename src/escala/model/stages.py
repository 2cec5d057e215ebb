"""How layers are dealt to pipeline ranks, and how many micro-batches a rank holds at once.

Ranks with the same layers are one *slot*, judged by its rank that holds the most micro-batches: the lowest,
except under the V schedule. A row of plans and one of its slots make a *pair*.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Final

import numpy as np

from escala.model.columns import F64, I64, distinct
from escala.model.network import Block, Network, Stack
from escala.model.plan import Plans, Schedule, Split

LAYOUT_COLUMNS: Final = ("pp", "virtual_stages", "split", "stage_split", "schedule")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slots:
    """Pairs of plan row and slot: layers of each kind, ends held, lowest and highest rank, ranks alike.

    `row` is the plan of each pair and `first` the first pair of each plan; `counts` has one column per kind
    of layer. Shapes: (pairs,), (n,) for `first`, (pairs, kinds) for `counts`.
    """

    row: I64
    first: I64
    counts: F64
    has_embedding: F64
    has_head: F64
    rank: F64
    last_rank: F64
    alike: F64

    @property
    def layers(self) -> F64:
        """Layers of all kinds on the rank."""
        return np.asarray(self.counts.sum(axis=1), np.float64)


@dataclass(frozen=True, slots=True)
class _Slot:
    counts: tuple[int, ...]
    has_embedding: bool
    has_head: bool
    rank: int
    last_rank: int
    alike: int


def kinds(network: Network) -> list[tuple[Stack, Block]]:
    """Every kind of layer with its stack, in the order of the columns of `Slots.counts`."""
    return [(stack, block) for stack in network.stacks for block in stack.blocks]


def layer_kinds(network: Network) -> list[int]:
    """The kind of every layer from input to output, as an index into `kinds`."""
    result: list[int] = []
    base = 0
    for stack in network.stacks:
        result += [base + kind for kind in stack.pattern]
        base += len(stack.blocks)
    return result


def deal(layers: int, plan_stages: int, split: Split, custom: tuple[int, ...] = ()) -> list[int]:
    """Layers of each of the pp x virtual stages in order.

    EVEN deals layers one by one, early stages first. BALANCED deals embedding and head like layers, so the
    ends get one less. CUSTOM is the given list.
    """
    if split is Split.CUSTOM:
        return list(custom)
    ends = 1 if split is Split.BALANCED and plan_stages > 1 else 0
    base, extra = divmod(layers + 2 * ends, plan_stages)
    stages = [base] * plan_stages
    middle = range(ends, plan_stages - ends) if extra <= plan_stages - 2 * ends else range(plan_stages)
    for stage in list(middle)[:extra]:
        stages[stage] += 1
    stages[0] -= ends
    stages[-1] -= ends
    return stages


def rank_stages(rank: int, pp: int, virtual: int, schedule: Schedule) -> list[int]:
    """Stages that a rank holds: round robin, or down and up again for the V schedule."""
    if schedule is Schedule.ZERO_BUBBLE_V:
        return [rank, 2 * pp - 1 - rank]
    return [rank + pp * chunk for chunk in range(virtual)]


def slots(network: Network, plans: Plans) -> Slots:
    """Pairs of every plan with its distinct ranks."""
    ranks = _dealt(network, plans)
    repeats = ranks.sizes[ranks.layout]
    row = np.repeat(np.arange(len(plans)), repeats)
    begin = np.cumsum(repeats) - repeats
    return ranks.pairs(row, begin, ranks.begin[ranks.layout][row] + np.arange(len(row)) - begin[row])


def first_slots(network: Network, plans: Plans) -> tuple[Slots, F64]:
    """One pair a plan, the first rank and those like it; and the layers of the fullest rank."""
    ranks, rows = _dealt(network, plans), np.arange(len(plans))
    fullest = np.maximum.reduceat(ranks.counts.sum(axis=1), ranks.begin) if len(plans) else np.empty(0)
    return ranks.pairs(rows, rows, ranks.begin[ranks.layout]), fullest[ranks.layout]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Dealt:
    """The slots of every distinct layout one after the other, and the layout of each plan."""

    layout: I64
    begin: I64
    sizes: I64
    counts: F64
    marks: F64

    def pairs(self, row: I64, first: I64, index: I64) -> Slots:
        """Pairs of plans with slots."""
        embedding, head, rank, last, alike = self.marks[:, index]
        return Slots(
            row=row,
            first=first,
            counts=self.counts[index],
            has_embedding=embedding,
            has_head=head,
            rank=rank,
            last_rank=last,
            alike=alike,
        )


def _dealt(network: Network, plans: Plans) -> _Dealt:
    first, layout = distinct([getattr(plans, name) for name in LAYOUT_COLUMNS])
    kind_of, count = tuple(layer_kinds(network)), len(kinds(network))
    tables = [_layout_slots(kind_of, count, *_layout(network, plans, int(row))) for row in first]
    sizes = np.array([len(table) for table in tables], np.int64)
    flat = [slot for table in tables for slot in table]
    marks = [(s.has_embedding, s.has_head, s.rank, s.last_rank, s.alike) for s in flat]
    return _Dealt(
        layout=layout,
        begin=np.cumsum(sizes) - sizes,
        sizes=sizes,
        counts=np.array([slot.counts for slot in flat], np.float64).reshape(len(flat), count),
        marks=np.array(marks, np.float64).reshape(len(flat), 5).T,
    )


def mean_slots(network: Network, plans: Plans) -> Slots:
    """One pair a plan: the average rank, with 1/pp of all layers and ends. No rank's maximum is below it."""
    count = len(kinds(network))
    totals = np.bincount(np.array(layer_kinds(network), np.int64), minlength=count).astype(np.float64)
    share = 1.0 / plans.pp
    rows = np.arange(len(plans))
    return Slots(
        row=rows,
        first=rows,
        counts=share[:, None] * totals[None, :],
        has_embedding=share,
        has_head=share,
        rank=np.zeros(len(plans)),
        last_rank=np.zeros(len(plans)),
        alike=plans.pp.astype(np.float64),
    )


def stage_layers(network: Network, plans: Plans, row: int) -> list[int]:
    """Layers of each stage (pp x virtual, in order) of one plan."""
    custom = int(plans.stage_split[row])
    stages = int(plans.pp[row] * plans.virtual_stages[row])
    given = plans.splits[custom] if custom >= 0 else ()
    return deal(network.layers, stages, Split(int(plans.split[row])), given)


def _layout(network: Network, plans: Plans, row: int) -> tuple[tuple[int, ...], int, int, Schedule]:
    """Layers of each stage, ranks, stages of a rank and schedule: what decides the slots of a plan."""
    dealt = tuple(stage_layers(network, plans, row))
    return dealt, int(plans.pp[row]), int(plans.virtual_stages[row]), Schedule(int(plans.schedule[row]))


@lru_cache(maxsize=4096)
def _layout_slots(
    kind_of: tuple[int, ...], count: int, dealt: tuple[int, ...], pp: int, virtual: int, schedule: Schedule
) -> tuple[_Slot, ...]:
    """The slots of one layout; a search asks for the same few again and again."""
    bounds = (0, *accumulate(max(layers, 0) for layers in dealt))
    found: dict[tuple[tuple[int, ...], bool, bool], list[int]] = {}
    for rank in range(pp):
        held = [stage for stage in rank_stages(rank, pp, virtual, schedule) if stage < len(dealt)]
        layers = [kind for stage in held for kind in kind_of[bounds[stage] : bounds[stage + 1]]]
        counts = tuple(layers.count(kind) for kind in range(count))
        found.setdefault((counts, 0 in held, len(dealt) - 1 in held), []).append(rank)
    return tuple(_Slot(*key, ranks[0], ranks[-1], len(ranks)) for key, ranks in found.items())


def in_flight(plans: Plans, pairs: Slots) -> F64:
    """Micro-batches whose activations a rank holds at its peak, in units of all its layers.

    GPipe: all m. 1F1B: pp - rank. Interleaved: ((v - 1) pp + 2 (pp - rank) - 1) / v chunks of 1/v.
    Zero-bubble V: half of min(m, 2 pp - 1 - rank) + min(m, rank + 1), pp when m is large. Never above m.
    Under the V schedule the fullest rank of the slot counts: min(m, pp) - 1, if it belongs to it.
    Source: Narayanan 2021, section 2.2; Qi 2024 (Zero Bubble, arXiv 2401.10241), section 6.
    """
    take = pairs.row
    pp, m = plans.pp[take].astype(np.float64), plans.micro_batches[take].astype(np.float64)
    v = plans.virtual_stages[take].astype(np.float64)
    schedule = plans.schedule[take]
    interleaved = ((v - 1) * pp + 2 * (pp - pairs.rank) - 1) / v
    held = np.where(schedule == Schedule.INTERLEAVED, interleaved, pp - pairs.rank)
    fullest = np.clip(np.minimum(m, pp) - 1, pairs.rank, pairs.last_rank)
    down_and_up = (np.minimum(m, 2 * pp - 1 - fullest) + np.minimum(m, fullest + 1)) / 2
    held = np.where(schedule == Schedule.ZERO_BUBBLE_V, down_and_up, held)
    held = np.where(schedule == Schedule.GPIPE, m, held)
    return np.where(pp > 1, np.minimum(held, m), 1.0)
