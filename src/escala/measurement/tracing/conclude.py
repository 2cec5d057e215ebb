"""From few layers and few micro-batches to the whole step of a rank. Exact where layers are equal.

What is held at a moment is a constant + layers * slope: states and kept activations of every layer, and what
the layer at work needs. From the second layer to the last but one it changes by the same amount with each
layer, so that the most is held at one of these two or at the ends; no other layer is looked at.
"""

from dataclasses import dataclass, replace
from typing import Final

from escala.measurement.tracing.jobs import Collective, Moment, Traced
from escala.measurement.tracing.ranks import TracedRank, stands_for
from escala.model.plan import Plan

FROM_BEGIN: Final = (0, 1)
FROM_END: Final = (2, 1)
Mark = tuple[str, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStep:
    """One step of a rank, like that of `alike` ranks: what is held at its moments, collectives, FLOP."""

    rank: int
    alike: int
    moments: tuple[Moment, ...]
    collectives: tuple[Collective, ...]
    flop: float

    @property
    def peak(self) -> Moment:
        """The moment at which most is held."""
        return max(self.moments, key=lambda moment: moment.total_bytes)


def conclude(plan: Plan, rank: TracedRank, traced: list[Traced]) -> RankStep:
    """The whole step of a rank from its trace, or from its two traces with fewer layers."""
    whole = traced[0] if len(traced) == 1 else _deep(rank, *traced)
    times = stands_for(plan, max(turn.micro_batch for turn in rank.jobs[0].turns) + 1)
    return RankStep(
        rank=rank.rank,
        alike=rank.alike,
        moments=whole.moments,
        collectives=tuple(_repeated(each, times) for each in whole.collectives),
        flop=sum(each * times[micro_batch] for micro_batch, each in whole.flop.items()),
    )


def _repeated(each: Collective, times: list[int]) -> Collective:
    often = 1 if each.micro_batch is None else times[each.micro_batch]
    return replace(each, count=each.count * often, payload_bytes=each.payload_bytes * often)


def _deep(rank: TracedRank, few: Traced, more: Traced) -> Traced:
    """The trace of all layers from those of a few and of more: value + left * difference / more layers."""
    counts = [job.chunks[0].layers for job in rank.jobs]
    steps = (rank.layers - counts[0]) / (counts[1] - counts[0])
    held = [_marked(each, count, rank.layers) for each, count in zip((few, more), counts, strict=True)]
    sent = [
        {(one.operation, one.axis, one.micro_batch): one for one in each.collectives} for each in (few, more)
    ]
    return Traced(
        moments=tuple(
            Moment(kind=mark[0], chunk=mark[1], place=mark[2], held_bytes=_lines(here, held[1][mark], steps))
            for mark, here in held[0].items()
        ),
        collectives=tuple(_line_of(one, sent[1][key], steps) for key, one in sent[0].items()),
        flop={each: _line(few.flop[each], more.flop[each], steps) for each in few.flop},
    )


def _marked(traced: Traced, count: int, layers: int) -> dict[Mark, dict[str, float]]:
    """Moments by the places that they have among all layers: two from the beginning, two from the end."""
    places = {str(place): str(place) for place in FROM_BEGIN}
    ends = {str(count - back): str(layers - back) for back in FROM_END}
    found: dict[Mark, dict[str, float]] = {}
    for each in traced.moments:
        named = [table[each.place] for table in (places, ends) if each.place in table] or [each.place]
        found.update({(each.kind, each.chunk, place): each.held_bytes for place in named})
    return found


def _line(few: float, more: float, steps: float) -> float:
    return few + steps * (more - few)


def _lines(few: dict[str, float], more: dict[str, float], steps: float) -> dict[str, float]:
    return {kind: _line(few[kind], more[kind], steps) for kind in few}


def _line_of(few: Collective, more: Collective, steps: float) -> Collective:
    return replace(
        few,
        count=_line(few.count, more.count, steps),
        payload_bytes=_line(few.payload_bytes, more.payload_bytes, steps),
    )
