"""What most of the gap between a predicted and a measured step lies in, and what usually makes such a gap."""

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

SLOWER: Final = {
    COMPUTE: "kernels ran slower than the bench timed them: other work on the machine, lower clocks, "
    "or operations that the network's description does not have",
    COMMUNICATION: "messages took longer than the bench timed them, or fewer were hidden: other traffic, "
    "another network interface, or ranks that share a core",
    WAITING: "ranks were not equally fast: uneven shares of work, or other work on one of the nodes",
    OPTIMIZER: "the update moved more bytes than one pass over the states: an optimizer that is not fused",
    NOT_MODELLED: "the step waited for data, or ran nothing: faster storage, more loader workers, "
    "or a larger micro-batch",
}
FASTER: Final = {
    COMPUTE: "kernels ran faster than the bench timed them: an idle machine, or data in the caches",
    COMMUNICATION: "messages were quicker, or more were hidden, than predicted: measure the links again",
    WAITING: "ranks were more equal than assumed",
    OPTIMIZER: "the update moved fewer bytes than assumed",
    NOT_MODELLED: "nothing",
}
"""What is seen when a part takes longer, or less time, than predicted; likely, not proved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The part of a step with the largest gap: seconds too few (above 0) or too many predicted, and why."""

    part: str
    gap_s: float
    share: float
    likely: str


def cause_of(given: Prediction, step_s: float) -> Cause | None:
    """The largest gap in seconds of any measured part, and its share of the step; None without parts."""
    gaps = {each.part: _gap_s(each) for each in given.parts if each.measured_s is not None}
    if not gaps:
        return None
    part = max(gaps, key=lambda name: abs(gaps[name]))
    gap_s = gaps[part]
    return Cause(part=part, gap_s=gap_s, share=gap_s / step_s, likely=(SLOWER if gap_s > 0 else FASTER)[part])


def _gap_s(part: Beside) -> float:
    assert part.measured_s is not None
    return part.measured_s - part.predicted_s
