"""Reasons behind a plan as data: what its settings are worth, what more devices buy, bounds, batch, loader.

Knows shapes, computes nothing. All numbers are in base units.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A value with the ends of its range; `high` is None where no upper end is known."""

    value: float
    low: float
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingView:
    """One setting beside another value at the same devices; gains of several do not add up.

    `is_used`: the plan has `value` and saves so much over `other`, the plainest one; otherwise the plan has
    `other`, and `value` would save so much. `share` is of the slower step, `memory_ratio` need with `value`
    over need with `other`.
    """

    name: str
    value: str
    other: str
    is_used: bool
    saved_s: float
    share: float
    memory_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeView:
    """One number of devices, the batch kept: speed-up and efficiency in terms of the first one.

    `serial_share` is Karp and Flatt's, `amdahl` the most that it lets the same work speed up (None: no end),
    `gustafson` the speed-up of work that grows with the devices; the first size has none. What a saved hour
    costs is against the size before; None where the step is no shorter.
    """

    devices: int
    step_s: float
    interval_ratio: float
    speedup: float
    efficiency: float
    is_risky: bool
    serial_share: float | None
    amdahl: float | None
    gustafson: float | None
    energy_j_per_step: float | None
    cost: float | None
    energy_j_per_saved_hour: float | None
    cost_per_saved_hour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopView:
    """Where less than the bound is kept: the term that bends the curve, how much more of which link."""

    devices: int
    efficiency: float
    term: str
    term_title: str
    term_share: float
    link: str
    link_ratio: float
    link_efficiency: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthView:
    """What more devices buy. `is_same_layout`: one degree of the plan is doubled each time; else best plans.

    `trend` is that of the serial share: flat (serial work), rising (overhead), falling. `ends` says why there
    are no more sizes.
    """

    is_same_layout: bool
    keep: float
    sizes: tuple[SizeView, ...]
    trend: str | None
    stop: StopView | None
    least_energy_devices: int | None
    least_cost_devices: int | None
    ends: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorView:
    """Seconds that no schedule of the plan undercuts; `gap` is the step over the highest of them, less 1."""

    work_s: float
    chain_s: float
    link_s: float
    floor_s: float
    highest: str
    gap: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GranularityView:
    """Computing over communicating seconds; None where nothing is sent."""

    bucket: float | None
    layer: float | None
    stage: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPointView:
    """One batch on the way to the target; the learning rate is in terms of the reference batch."""

    global_batch: int
    plan_title: str
    step_s: float
    samples: Range
    steps: float
    duration_s: Range
    energy_j: float | None
    cost_usd: float | None
    learning_rate_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchView:
    """A global batch beside the critical one, both in samples.

    `more_samples` is the share that a target needs more than with the smallest batch, over the range;
    `to_target` what this plan needs to where the run's tokens lead in small batches.
    `buys_speed`: "no", "perhaps" (at the low end of the range) or "yes", from `overhead` more samples on.
    """

    global_batch: int
    critical: Range | None
    source: str
    is_measured: bool
    unknown: str
    more_samples: Range | None
    to_target: TargetPointView | None
    overhead: float
    buys_speed: str
    learning_rate_rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetView:
    """Every batch that was tried; the target is what `total_tokens` reach at the reference batch."""

    reference_batch: int
    total_tokens: float
    chosen_batch: int
    points: tuple[TargetPointView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderView:
    """What the loaders of all nodes feed beside what the plan takes; `step_s` is the slower of the two."""

    fed_samples_per_s: float
    taken_samples_per_s: float
    step_s: float
    is_bound: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptView:
    """The smallest batch that keeps an efficiency on these devices against `base_devices`; None: none tried.

    `largest` was the largest batch tried, `today_efficiency` what the question's own batch keeps.
    """

    keep: float
    devices: int
    base_devices: int
    batch: int | None
    efficiency: float
    plan_title: str
    largest_batch: int
    today_batch: int
    today_efficiency: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """All of it for one plan; parts that nobody asked for are None."""

    settings: tuple[SettingView, ...]
    growth: GrowthView
    floor: FloorView
    granularity: GranularityView
    batch: BatchView
    loader: LoaderView | None = None
    target: TargetView | None = None
    kept: KeptView | None = None
