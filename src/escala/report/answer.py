"""The answer to `plan` as data: what --json prints and the text view draws. Knows shapes, computes nothing.

All numbers are in base units; an interval is the 80 % range of the model's error on published runs.
"""

from dataclasses import dataclass
from typing import Any, Final

from escala.model.cluster import Torus
from escala.report.reasoning import GrowthView, Reasons
from escala.report.shared import AssumptionView, Interval

PLAN_SCHEMA: Final = "escala/plan@1"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadView:
    """What is learnt. `sample` says what the global batch counts: sequences, images or samples."""

    network: str
    network_source: str
    parameters: int
    active_parameters: int
    layers: int
    method: str
    lora_rank: int | None
    frozen: str
    image_tokens: int
    precision: str
    optimizer: str
    sample: str
    sequence_tokens: int
    global_batch: int
    tokens_per_step: int
    total_tokens: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkView:
    """One link level, from the inside out."""

    name: str
    domain_devices: int
    bytes_per_s: float
    latency_s: float
    oversubscription: float
    torus: Torus | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """Where it is learnt."""

    name: str
    source: str
    accelerator: str
    devices: int
    devices_per_node: int
    nodes: int
    memory_bytes: float
    peak_flop_per_s: float
    links: tuple[LinkView, ...]
    host_memory_bytes: float | None
    country: str | None
    pue: float
    node_power_ratio: float
    carbon_kg_per_j: float | None
    price_usd_per_device_hour: float | None
    price_date: str | None
    price_source: str | None
    measured: tuple[str, ...] = ()
    unmeasured: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryView:
    """Device memory of the rank that needs most: `value` decides the verdict against `capacity`.

    `routing` is what a bad draw of the router of a mixture of experts adds; it widens the high end.
    """

    value: float
    low: float
    high: float
    routing: float
    capacity: float
    reserved: float
    by_kind: dict[str, float]
    by_phase: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """The whole run over `tokens` (or images): time, device-hours, energy, money, carbon."""

    tokens: float
    steps: float
    duration_s: Interval
    device_hours: Interval
    energy_j: Interval | None
    cost_usd: Interval | None
    co2e_kg: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepIntervals:
    """The numbers of one step that the plan has under the same names, with their intervals."""

    mfu: Interval
    hfu: Interval
    energy_j_per_step: Interval | None
    cost: Interval | None
    co2e_kg: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """One plan with everything predicted for it; `cost` is USD and `co2e_kg` carbon of one step.

    `interval_ratio` is the factor of the interval of step time, `regime` the kind of run it was found on.
    `is_tied` says that another plan is first, but within `tie_share` of this one. `verdict` is the worse of
    `device_verdict` and `host_verdict`; the probability is that of the device.
    """

    rank: int
    title: str
    plan: dict[str, Any]
    step_s: Interval
    tokens_per_s_per_device: Interval
    mfu: float
    hfu: float
    memory_bytes: MemoryView
    host_memory_bytes: float
    host_memory_most_bytes: float
    terms_s: dict[str, float]
    energy_j_per_step: float | None
    cost: float | None
    co2e_kg: float | None
    intervals: StepIntervals
    interval_ratio: float
    regime: str
    run: RunView | None
    simplicity_points: int
    simplicity_rank: int
    verdict: str
    device_verdict: str
    host_verdict: str
    out_of_memory_probability: float
    is_tied: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyView:
    """The best plan of a technique (or the one nearest to fitting), and why it is not the choice.

    `step_ratio` is its step over the recommended one, `short_bytes` what is missing on the device.
    """

    name: str
    title: str
    plan: dict[str, Any] | None
    plan_title: str | None
    step_s: float | None
    step_ratio: float | None
    short_bytes: float | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyView:
    """A change after which some plan fits."""

    title: str
    plan: dict[str, Any]
    plan_title: str
    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePointView:
    """The best plan on some devices; `efficiency` is against the first point.

    `is_risky` says that nothing fits there with a margin, `interval_ratio` is the factor of the interval of
    `step_s`, `tokens_per_s`, `mfu`, `device_hours` and `cost`.
    """

    devices: int
    plan_title: str
    step_s: float
    interval_ratio: float
    tokens_per_s: float
    mfu: float
    efficiency: float
    is_risky: bool
    device_hours: float | None
    energy_j_per_step: float | None
    cost: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingView:
    """How few devices fit, and up to how many each doubling keeps `worth_share` of its ideal speed-up.

    `theory` reads the same points as the classics do.
    """

    fewest: int | None
    worth: int | None
    worth_share: float
    points: tuple[ScalePointView, ...]
    theory: GrowthView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationView:
    """Whether published runs of this engine and on this device took part in the fit; `notes` where not.

    `own` says which numbers a user's own runs moved, where the question names a calibration.
    """

    engine_is_calibrated: bool
    accelerator_is_calibrated: bool
    notes: tuple[str, ...]
    own: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthsView:
    """Lengths of samples, cut at the sequence, and what the recommended plan makes of them.

    `row_tokens` is the mean row with padding, `useful_share` the part that is none; `attention_share` the
    length that queries look back over, of the sequence; `waiting_share` of the step is waiting for replicas
    with longer samples.
    """

    batching: str
    mean_tokens: float
    p50_tokens: float
    p90_tokens: float
    p99_tokens: float
    longest_tokens: float
    row_tokens: float
    useful_share: float
    attention_share: float
    waiting_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SitesView:
    """Gradients in every step against `local_steps` alone, over the link between sites.

    `bytes_per_s` is what a site sends, `crossover_bytes_per_s` that below which local steps gain more than
    the tolerance: None with `pays_always`, 0 where they never do. From `least_local_steps` on agreeing costs
    at most 5 % of a step.
    """

    link: str
    bytes_per_s: float
    latency_s: float
    plain_step_s: float
    local_plan: dict[str, Any]
    local_plan_title: str
    local_steps: int
    local_step_s: float
    crossover_bytes_per_s: float | None
    pays_always: bool
    least_local_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The document of `escala plan --json`; `recommended` is an index of `plans`, from 0.

    `considered` plans are in the space, `estimated` were predicted in full, `feasible` of them fit.
    Plans within `tie_share` of each other are ties. `energy_unknown` says why there is no energy,
    `broken_fix` why no plan keeps to --fix. `reasons` are those of the recommended plan.
    """

    schema: str
    escala: str
    workload: WorkloadView
    cluster: ClusterView
    engine: str
    engine_title: str
    objective: str
    tolerance: float
    tie_share: float
    fixed: dict[str, tuple[str, ...]]
    considered: int
    estimated: int
    feasible: int
    search_s: float
    rejected: dict[str, int]
    plans: tuple[PlanView, ...]
    recommended: int | None
    is_risky: bool
    families: tuple[FamilyView, ...]
    assumptions: tuple[AssumptionView, ...]
    energy_unknown: str | None
    broken_fix: tuple[str, ...]
    mfu_convention: str
    calibration: CalibrationView
    doubt: str
    advice: tuple[RemedyView, ...]
    scaling: ScalingView | None
    sites: SitesView | None = None
    reasons: Reasons | None = None
    lengths: LengthsView | None = None
