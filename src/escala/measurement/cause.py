"""What most of the gap between a predicted and a measured step lies in, and what usually makes such a gap.

What was sampled decides where it can: other processes are named where they took enough of the machine, and
where nobody sampled them it says that it cannot tell.
"""

from dataclasses import dataclass
from typing import Final

from escala.measurement.profile.predicted import (
    COMMUNICATION,
    COMPUTE,
    NOT_MODELLED,
    OPTIMIZER,
    WAITING,
)
from escala.measurement.profile.record import Beside, Prediction
from escala.measurement.sampling.others import OtherWork
from escala.units import digits

SLOWER: Final = {
    COMPUTE: "kernels ran slower than the bench timed them: lower clocks, or operations that the network's "
    "description does not have",
    COMMUNICATION: "messages took longer than the bench timed them, or fewer were hidden: other traffic, "
    "another network interface, or ranks that share a core",
    WAITING: "ranks were not equally fast: uneven shares of work, or other work on another node",
    OPTIMIZER: "the update moved more bytes than one pass over the states: an optimizer that is not fused",
    NOT_MODELLED: "the step ran nothing: a larger micro-batch, or fewer and larger operations",
}
FASTER: Final = {
    COMPUTE: "kernels ran faster than the bench timed them: an idle machine, or data in the caches",
    COMMUNICATION: "messages were quicker, or more were hidden, than predicted: measure the links again",
    WAITING: "ranks were more equal than assumed",
    OPTIMIZER: "the update moved fewer bytes than assumed",
    NOT_MODELLED: "nothing",
}
"""What is seen when a part takes longer, or less time, than predicted; likely, not proved."""
LATE: Final = "the step waited for data: faster storage, or more loader workers"
ENOUGH: Final = 0.5
"""Other processes are the likely cause from half the cores on that would make the whole gap."""
UNKNOWN: Final = (
    "; whether other work kept the machine busy was not sampled (psutil), so it may be that instead"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The part of a step with the largest gap: seconds too few (above 0) or too many predicted, and why."""

    part: str
    gap_s: float
    share: float
    likely: str


def cause_of(
    given: Prediction, step_s: float, *, data_s: float = 0.0, others: OtherWork | None = None
) -> Cause | None:
    """The largest gap in seconds of any measured part, and its share of the step; None without parts.

    `data_s` are the seconds of the step before its data were there, `others` what else ran on the node.
    """
    gaps = {each.part: _gap_s(each) for each in given.parts if each.measured_s is not None}
    if not gaps:
        return None
    part = max(gaps, key=lambda name: abs(gaps[name]))
    gap_s = gaps[part]
    share = gap_s / step_s
    likely = FASTER[part] if gap_s <= 0 else _slower(part, share, data_s > gap_s / 2, others)
    return Cause(part=part, gap_s=gap_s, share=share, likely=likely)


def _slower(part: str, share: float, is_late: bool, others: OtherWork | None) -> str:
    """Other processes where they took enough; else what the part usually lacks."""
    usual = LATE if part == NOT_MODELLED and is_late else SLOWER[part]
    if others is None:
        return usual + UNKNOWN
    if others.share < ENOUGH * share:
        return usual
    return (
        f"other processes, which kept {digits(others.busy_cores, 2)} of {others.cores} cores busy meanwhile; "
        "run again where nothing else runs"
    )


def _gap_s(part: Beside) -> float:
    assert part.measured_s is not None
    return part.measured_s - part.predicted_s
