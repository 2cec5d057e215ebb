"""What a step waits for, and what to change first. Every share is arithmetic on the trace.

A kind is the verdict when it takes at least DOMINANT_SHARE of the step; else the step is mixed. A change is
named when it could save at least WORTH_SHARE; it can save at most the seconds of what it removes.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Final

from escala.measurement.profile.record import Arrival, Change, RankProfile, Speed, Verdict, Waits
from escala.units import percent, show_si

DOMINANT_SHARE: Final = 0.5
WORTH_SHARE: Final = 0.03

TITLES: Final = {
    "compute": "matrix products",
    "memory": "operations that move memory",
    "launch": "launching small operations",
    "communication": "exposed communication",
    "input": "loading data",
    "idle": "what the trace does not show",
}
_BOUND: Final = {
    "compute": "Compute-bound",
    "memory": "Memory-bound",
    "launch": "Launch-bound",
    "communication": "Communication-bound",
    "input": "Input-bound",
    "idle": "Idle",
}


def shares(rank: RankProfile) -> dict[str, float]:
    """The parts of the step by what it waits for: seconds / seconds of the step."""
    return {
        each.name.removesuffix("_s"): getattr(rank.waits, each.name) / rank.step_s for each in fields(Waits)
    }


def verdict(rank: RankProfile, arrivals: Sequence[Arrival], speed: Speed | None) -> Verdict:
    """The kind that dominates, and the changes by what they could buy."""
    parts = shares(rank)
    first, second = sorted(parts, key=lambda kind: -parts[kind])[:2]
    if parts[first] >= DOMINANT_SHARE:
        told = f"{_BOUND[first]}: {percent(parts[first])} of the step is {TITLES[first]}"
        kind = first
    else:
        told = (
            f"Mixed: {percent(parts[first])} of the step is {TITLES[first]}, "
            f"{percent(parts[second])} {TITLES[second]}"
        )
        kind = "mixed"
    found = _changes(rank, arrivals, speed, parts)
    worth = [each for each in found if each.at_most_share >= WORTH_SHARE]
    return Verdict(kind=kind, told=told, changes=tuple(sorted(worth, key=lambda each: -each.at_most_share)))


def _changes(
    rank: RankProfile, arrivals: Sequence[Arrival], speed: Speed | None, parts: dict[str, float]
) -> list[Change]:
    optimizer_share = rank.phases.optimizer_s / rank.step_s
    several = [
        Change(
            what="load data beside the step: more workers, prefetch, pinned memory, decoded or packed files",
            why="the time in which the step waits for its batch",
            at_most_share=parts["input"],
        ),
        Change(
            what=_about_messages(rank),
            why="the messages that nothing hides",
            at_most_share=parts["communication"],
        ),
        Change(
            what="launch fewer, larger operations: compile, CUDA graphs, larger micro-batch, fused optimizer",
            why=f"{rank.launches.count:,.0f} pieces of work a step, and calling between them",
            at_most_share=parts["launch"],
        ),
        Change(
            what="move fewer bytes: compile, flash attention, fused norms and optimizer, 16 bit",
            why=f"operations without products; the optimizer is {percent(optimizer_share)} of the step",
            at_most_share=parts["memory"],
        ),
        Change(
            what="find what runs there: mark it with record_function, or profile with stacks",
            why="no operation, message or loading is recorded in this time",
            at_most_share=parts["idle"],
        ),
    ]
    return several + _about_products(parts["compute"], speed) + _about_stragglers(arrivals, rank.step_s)


def _about_messages(rank: RankProfile) -> str:
    """The collective with most exposed time, and what there is against it."""
    if not rank.traffic:
        return "hide messages behind work"
    first = rank.traffic[0]
    remedy = {
        "all_reduce": "larger or earlier buckets, accumulation without reduction, 16-bit gradients",
        "all_gather": "earlier prefetch, shards inside the node, weights kept after forward",
        "reduce_scatter": "accumulation without reduction, shards inside the node, 16-bit gradients",
        "all_to_all": "experts inside the node, fewer bytes a token, overlap with shared experts",
    }.get(first.operation, "more micro-batches, so that sends run behind work")
    where = f" of {first.group}" if first.group else ""
    return f"hide or shrink {first.operation}{where}: {remedy}"


def _about_products(share: float, speed: Speed | None) -> list[Change]:
    """At most what products would save at the device's peak, where it and their work are known."""
    if speed is None or speed.hfu is None or speed.peak_flop_per_s is None:
        return []
    peak = show_si(speed.peak_flop_per_s, "FLOP/s")
    return [
        Change(
            what="run products faster: 16 bit or fp8, larger micro-batch, sizes that are multiples of 64",
            why=f"at the peak of {peak} they would take {percent(speed.hfu)} of the step",
            at_most_share=max(share - speed.hfu, 0.0),
        )
    ]


def _about_stragglers(arrivals: Sequence[Arrival], step_s: float) -> list[Change]:
    return [
        Change(
            what=f"look at rank {each.rank}: compare its phases with the others'",
            why="it comes late to collectives; what the others wait is in their exposed communication",
            at_most_share=each.late_s / step_s,
        )
        for each in arrivals
        if each.is_straggler
    ]
