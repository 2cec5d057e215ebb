"""What a checkpoint holds of a run, as the loop hands it over. Knows no files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from torch import nn
from torch.optim import Optimizer

from escala.parallel.scaler import Scaler

LAYOUT: Final = (
    "dp",
    "zero",
    "shard",
    "tp",
    "pp",
    "cp",
    "ep",
    "etp",
    "placement",
    "virtual_stages",
    "local_steps",
)
"""Keys of a plan that decide which rank does what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainState:
    """One rank's parts of the model and its optimizer, and the counters of the run.

    `chunks` are the stages that this rank holds, with the names of the whole model; `samples` is the cursor
    of the data; `seed` is what this rank's random numbers begin with. `plan` is the document of a plan.json,
    `config` what `export` writes as config.json and `adapter` what it writes as adapter_config.json; all are
    stored as they are. `losses` are those of the last steps, for whoever looks into a checkpoint. With local
    steps `replica` is the number of the one whose optimizer this is; None without.
    """

    chunks: tuple[nn.Module, ...]
    optimizer: Optimizer
    step: int = 0
    samples: int = 0
    seed: int = 0
    losses: tuple[float, ...] = ()
    scaler: Scaler | None = None
    plan: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    adapter: Mapping[str, Any] = field(default_factory=dict)
    replica: int | None = None

    @property
    def layout(self) -> dict[str, Any]:
        """Which rank does what: the degrees of the plan."""
        keys = self.plan.get("plan", {})
        return {name: keys[name] for name in LAYOUT if name in keys}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """A run as its checkpoint left it, and what could not be taken over exactly."""

    state: TrainState
    notes: tuple[str, ...]
