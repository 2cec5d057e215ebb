"""The answer to `check` as data: what --json prints and the text view draws. Knows shapes, computes nothing.

All numbers are in base units; an interval is the 80 % range of the model's error on published runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from escala.report.shared import AssumptionView, Interval

CHECK_SCHEMA: Final = "escala/check@1"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileView:
    """One file, or one block of a text: who reads it, for which version, and how that is known."""

    file: str
    name: str
    tool: str | None
    title: str | None
    version: str | None
    version_is: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactView:
    """One thing that the files say of the job, in the field's words."""

    name: str
    value: Any
    file: str
    line: int
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingView:
    """One thing that is wrong; `line` is 0 where it belongs to no line. `is_fixable`: --fix changes it."""

    rule: str
    severity: str
    file: str | None
    line: int
    text: str
    what: str
    why: str
    fix: str
    source: str
    is_fixable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingView:
    """What nobody said, and what to add."""

    what: str
    add: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemoryView:
    """Device memory: `needed` decides the verdict; bytes in use by phase, and by kind at the peak.

    `routing` is what a bad draw of the router adds; see `MemoryView`.
    """

    verdict: str
    needed: float
    low: float
    high: float
    routing: float
    capacity: float
    by_phase: dict[str, float]
    by_kind: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemoryView:
    """Memory of a node: running, with buffers at most, and where every rank loads a whole checkpoint."""

    verdict: str | None
    running: float
    most: float
    load: float | None
    capacity: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficView:
    """What a device sends in a step, the outermost link it crosses, seconds not hidden."""

    kind: str
    title: str
    link: str
    sent_bytes: float
    exposed_s: float
    is_between_nodes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OneNodeView:
    """The same job on one node; `speedup` is what all nodes reach of `ideal`."""

    devices: int
    step_s: float
    tokens_per_s: float
    speedup: float
    ideal: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherPlanView:
    """Another plan for the job; `by_hand` are settings without an edit of the files.

    `texts` are whole files by name for the job's own tool, `target`, where that can express the plan.
    """

    title: str
    plan: dict[str, Any]
    plan_title: str
    verdict: str
    needed_bytes: float
    host_bytes: float
    step_s: float
    tokens_per_s_per_device: float
    gain: float
    keeps_training: bool
    by_hand: tuple[str, ...] = ()
    target: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """The whole run."""

    tokens: float
    duration_s: Interval
    device_hours: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateView:
    """What is predicted for the job as its files say it."""

    verdict: str
    engine: str
    engine_title: str
    network: str
    parameters: int
    cluster: str
    devices: int
    nodes: int
    plan: dict[str, Any]
    plan_title: str
    global_batch: int
    sequence_tokens: int
    method: str
    optimizer: str
    memory_bytes: DeviceMemoryView
    host_memory_bytes: HostMemoryView
    step_s: Interval
    tokens_per_s_per_device: Interval
    mfu: float
    terms_s: dict[str, float]
    traffic: tuple[TrafficView, ...]
    one_node: OneNodeView | None
    run: RunView | None
    change: OtherPlanView | None
    better: OtherPlanView | None
    is_near_best: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FixView:
    """What --fix wrote: paths, the difference, what was done and what was left to do by hand."""

    written: tuple[str, ...]
    diff: str
    done: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckAnswer:
    """The document of `escala check`."""

    schema: str
    escala: str
    files: tuple[FileView, ...]
    findings: tuple[FindingView, ...]
    errors: int
    warnings: int
    facts: tuple[FactView, ...]
    assumptions: tuple[AssumptionView, ...]
    missing: tuple[MissingView, ...]
    gaps: tuple[str, ...]
    estimate: EstimateView | None
    fix: FixView | None

    @property
    def is_fine(self) -> bool:
        """Whether nothing keeps the job from running."""
        fits = self.estimate is None or self.estimate.verdict != "does not fit"
        return self.errors == 0 and fits
