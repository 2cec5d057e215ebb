"""One parallelization (Plan), or many as columns (Plans). Knows names and codes; judges nothing.

Choices are stored as small integer codes that index the enumerations here, so that a column of a million
plans is a plain array. A single plan is a batch of one row.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from itertools import permutations
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Bool = NDArray[np.bool_]


class Schedule(IntEnum):
    """Order in which a pipeline stage runs its micro-batches."""

    NONE = 0
    GPIPE = 1
    ONE_F_ONE_B = 2
    INTERLEAVED = 3
    ZERO_BUBBLE_V = 4


class Recompute(IntEnum):
    """Which activations are thrown away after forward and computed again in backward."""

    NONE = 0
    SELECTIVE = 1
    FIRST_LAYERS = 2
    FULL = 3


class ContextKind(IntEnum):
    """How context parallel ranks exchange keys and values."""

    RING = 0
    ALL_GATHER = 1
    ULYSSES = 2


class Dispatcher(IntEnum):
    """How tokens travel to the ranks of their experts.

    ALL_TO_ALL sends a copy for each chosen expert, FUSED (DeepEP, HybridEP) one for each rank and node.
    """

    ALL_TO_ALL = 0
    ALL_GATHER = 1
    FUSED = 2


class Split(IntEnum):
    """How layers are dealt to pipeline stages.

    EVEN deals layers alone. BALANCED counts embedding and head as one layer each, so that the first and
    last stage get one layer less. CUSTOM takes the list in `stage_layers`.
    """

    EVEN = 0
    BALANCED = 1
    CUSTOM = 2


class Offload(IntEnum):
    """Where a kind of state lives between uses."""

    NONE = 0
    CPU = 1
    NVME = 2


class Compile(IntEnum):
    """torch.compile mode."""

    OFF = 0
    DEFAULT = 1
    REDUCE_OVERHEAD = 2
    MAX_AUTOTUNE = 3


class OptimizerStep(IntEnum):
    """When weights are updated: at once, tile by tile, or each layer as soon as it has its gradients."""

    WHOLE = 0
    TILED = 1
    IN_BACKWARD = 2


class LocalWire(IntEnum):
    """Number format in which replicas that train alone tell each other their differences."""

    FP32 = 0
    BF16 = 1
    INT8 = 2
    FP4 = 3


class Precision(IntEnum):
    """Number format of the linear maps, with the recipe that scales it; see `precision.RECIPES`."""

    FP32 = 0
    TF32 = 1
    FP16 = 2
    BF16 = 3
    FP8_TENSORWISE = 4
    FP8_ROWWISE = 5
    FP8_BLOCKWISE = 6
    MXFP8 = 7
    NVFP4 = 8


AXES: Final = ("tp", "cp", "dp", "pp")
PLACEMENTS: Final = tuple("-".join(order) for order in permutations(AXES))
"""Mesh orders, innermost axis first; the first is the usual one (TP inside the node, PP outermost)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One parallelization; degrees multiply to the number of devices: dp x tp x pp x cp.

    `zero` is the ZeRO stage of the data parallel states (3 with `reshard` is FSDP full sharding, 3 without
    keeps gathered weights from forward to backward). `shard` is the number of ranks that states are
    sharded over: dp x cp for plain sharding, less for HSDP, 1 for none. `ep` and `etp` divide experts
    inside dp x cp and tp. `micro_batches` is how many micro-batches each data parallel rank runs a step
    (gradient accumulation, or what fills the pipeline). With `local_steps` above 1 replicas train so many
    steps alone before they agree (DiLoCo); their differences travel as `local_wire`, in `local_fragments`
    parts that meet in turn, each while the replicas train on for `local_overlap_steps` (Streaming DiLoCo).
    With `dynamic_cp` short sequences are shared by fewer context ranks than `cp`. `wide_layers` layers at one
    end stay in 16 bit under a scaled recipe.
    `offload_...` says where states and kept activations live between uses; an optimizer with offloaded states
    updates on the host.
    """

    dp: int = 1
    zero: int = 0
    reshard: bool = False
    shard: int = 1
    tp: int = 1
    sp: bool = False
    pp: int = 1
    schedule: Schedule = Schedule.NONE
    virtual_stages: int = 1
    split: Split = Split.EVEN
    stage_layers: tuple[int, ...] = ()
    cp: int = 1
    cp_kind: ContextKind = ContextKind.RING
    ep: int = 1
    etp: int = 1
    dispatcher: Dispatcher = Dispatcher.ALL_TO_ALL
    placement: str = PLACEMENTS[0]
    micro_batch: int = 1
    micro_batches: int = 1
    recompute: Recompute = Recompute.NONE
    recompute_layers: int = 0
    offload_optimizer: Offload = Offload.NONE
    offload_params: Offload = Offload.NONE
    offload_activations: Offload = Offload.NONE
    precision: Precision = Precision.BF16
    compile: Compile = Compile.OFF
    fused_loss: bool = False
    local_steps: int = 1
    local_wire: LocalWire = LocalWire.FP32
    local_fragments: int = 1
    local_overlap_steps: int = 0
    dynamic_cp: bool = False
    wide_layers: int = 0
    optimizer_step: OptimizerStep = OptimizerStep.WHOLE

    @property
    def devices(self) -> int:
        """Devices that the plan occupies."""
        return self.dp * self.tp * self.pp * self.cp


COLUMNS: Final = tuple(f.name for f in fields(Plan) if f.name != "stage_layers")
CHOICES: Final[dict[str, type[IntEnum]]] = {
    "schedule": Schedule,
    "split": Split,
    "cp_kind": ContextKind,
    "dispatcher": Dispatcher,
    "recompute": Recompute,
    "offload_optimizer": Offload,
    "offload_params": Offload,
    "offload_activations": Offload,
    "precision": Precision,
    "compile": Compile,
    "local_wire": LocalWire,
    "optimizer_step": OptimizerStep,
}
FLAGS: Final = ("reshard", "sp", "fused_loss", "dynamic_cp")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plans:
    """Many plans as columns of int64, one row a plan; the fields are those of Plan.

    `splits` lists the custom stage splits; `stage_split[i]` is the index of row i in it, or -1.
    """

    dp: I64
    zero: I64
    reshard: I64
    shard: I64
    tp: I64
    sp: I64
    pp: I64
    schedule: I64
    virtual_stages: I64
    split: I64
    cp: I64
    cp_kind: I64
    ep: I64
    etp: I64
    dispatcher: I64
    placement: I64
    micro_batch: I64
    micro_batches: I64
    recompute: I64
    recompute_layers: I64
    offload_optimizer: I64
    offload_params: I64
    offload_activations: I64
    precision: I64
    compile: I64
    fused_loss: I64
    local_steps: I64
    local_wire: I64
    local_fragments: I64
    local_overlap_steps: I64
    dynamic_cp: I64
    wide_layers: I64
    optimizer_step: I64
    stage_split: I64
    splits: tuple[tuple[int, ...], ...] = field(default=())

    def __post_init__(self) -> None:
        """Columns are read-only."""
        for name in (*COLUMNS, "stage_split"):
            getattr(self, name).setflags(write=False)

    def __len__(self) -> int:
        """Number of plans."""
        return len(self.dp)

    def __getitem__(self, row: int) -> Plan:
        """The plan in one row."""
        values: dict[str, Any] = {name: int(getattr(self, name)[row]) for name in COLUMNS}
        for name, codes in CHOICES.items():
            values[name] = codes(values[name])
        for name in FLAGS:
            values[name] = bool(values[name])
        values["placement"] = PLACEMENTS[values["placement"]]
        custom = int(self.stage_split[row])
        return Plan(stage_layers=self.splits[custom] if custom >= 0 else (), **values)

    @classmethod
    def of(cls, plans: Plan | Iterable[Plan]) -> Self:
        """Columns from one plan or several."""
        rows = [plans] if isinstance(plans, Plan) else list(plans)
        splits = tuple(dict.fromkeys(plan.stage_layers for plan in rows if plan.stage_layers))
        columns = {name: np.array([_code(plan, name) for plan in rows], np.int64) for name in COLUMNS}
        where = [splits.index(plan.stage_layers) if plan.stage_layers else -1 for plan in rows]
        return cls(**columns, stage_split=np.array(where, np.int64), splits=splits)

    def take(self, rows: Any) -> Self:
        """The plans in the given rows (indices, a mask or a slice), in that order."""
        columns = {name: getattr(self, name)[rows] for name in (*COLUMNS, "stage_split")}
        return type(self)(**columns, splits=self.splits)

    @property
    def devices(self) -> I64:
        """Devices that each plan occupies."""
        return self.dp * self.tp * self.pp * self.cp


def _code(plan: Plan, name: str) -> int:
    return PLACEMENTS.index(plan.placement) if name == "placement" else int(getattr(plan, name))


def concatenate(parts: Sequence[Plans]) -> Plans:
    """All rows of several plan tables in order; they must share their custom splits."""
    columns = {name: np.concatenate([getattr(p, name) for p in parts]) for name in (*COLUMNS, "stage_split")}
    return Plans(**columns, splits=parts[0].splits)
