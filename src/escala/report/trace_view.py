"""A trace for the document of `escala explain`, beside the formula. Compares nothing itself."""

from dataclasses import dataclass
from typing import Final

from escala.measurement.tracing.beside import Beside, Compared, compare
from escala.measurement.tracing.jobs import BACKWARD, BEGIN, END, FORWARD, Collective, Moment
from escala.measurement.tracing.process import Told
from escala.planning.simplicity import describe
from escala.report.planfile import PlanFile

NOT_TRACED: Final = (
    "allocator, streams, kernel workspaces and the context of a GPU; sends between stages",
    "dropout and torch.compile: the module runs eager, without them, and with the plain loss",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRankView:
    """The peak of one pipeline rank and of those like it: bytes by kind, and when."""

    rank: int
    alike: int
    moment: str
    peak: Beside
    held_bytes: dict[str, float]
    flop: float
    collectives: tuple[Collective, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceView:
    """A traced step beside the formula of the same software; every pair has `error`, formula / trace - 1.

    `peak` and `kinds` are bytes of the fullest rank, `phases` its most in each phase, `sent` bytes that a
    device sends in a step by group of ranks, `flop` those of all devices. `predicted_bytes` is what the
    plan's own engine is predicted to have in use.
    """

    plan_title: str
    rank: int
    moment: str
    formula_phase: str
    peak: Beside
    kinds: tuple[Beside, ...]
    phases: tuple[Beside, ...]
    sent: tuple[Beside, ...]
    flop: Beside
    predicted_bytes: float
    ranks: tuple[TracedRankView, ...]
    not_traced: tuple[str, ...]
    libraries: dict[str, str]


def trace_view(file: PlanFile, row: int, told: Told) -> TraceView:
    """A plan of a file, traced."""
    return view_of(compare(file.problem, file.plans[row], told), describe(file.plans[row]))


def view_of(found: Compared, plan_title: str) -> TraceView:
    """A comparison with its moments in words."""
    return TraceView(
        plan_title=plan_title,
        rank=found.rank,
        moment=in_words(found.moment),
        formula_phase=found.formula_phase,
        peak=found.peak,
        kinds=found.kinds,
        phases=found.phases,
        sent=found.sent,
        flop=found.flop,
        predicted_bytes=found.predicted_bytes,
        ranks=tuple(
            TracedRankView(
                rank=each.rank,
                alike=each.alike,
                moment=in_words(each.peak),
                peak=peak,
                held_bytes=each.peak.held_bytes,
                flop=each.flop,
                collectives=each.collectives,
            )
            for each, peak in zip(found.ranks, found.rank_peaks, strict=True)
        ),
        not_traced=NOT_TRACED,
        libraries=found.libraries,
    )


def in_words(moment: Moment) -> str:
    """When it is: 'backward of layer 3', 'loss'."""
    if moment.kind not in (FORWARD, BACKWARD):
        return "optimizer step"
    if moment.place == BEGIN:
        return "embedding" if moment.kind == FORWARD else "loss, backward"
    if moment.place == END:
        return "head and loss, forward"
    return f"{moment.kind} of layer {int(moment.place) + 1}"
