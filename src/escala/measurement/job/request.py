"""What a person asks of a step that runs here, and refusals before anything is loaded. Loads no torch."""

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from escala.errors import InvalidInput, MissingExtra, unknown
from escala.measurement.bench.request import INSTALL, is_launched

PRECISIONS: Final = ("fp32", "tf32", "bf16")
PRACTICES: Final = ("amp", "compile", "checkpointing", "accumulation", "workers", "fused-optimizer")
ALL: Final = "all"
QUIET_PROFILER: Final = ("KINETO_LOG_LEVEL", "99")
"""Torch's profiler tells stderr of each start and stop; without a GPU it has nothing else to tell."""
SEQUENCE_TOKENS: Final = 512
MICRO_BATCH: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Of a model that escala builds: samples a rank, tokens of each, number format, recompute.

    Without `sequence_tokens` a sample has 512, or as many as the context holds. Of a function, `precision`
    and `sequence_tokens` are what a person says for its prediction.
    """

    micro_batch: int
    sequence_tokens: int | None
    precision: str
    recomputes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequest:
    """A checked request.

    `keys` are those of a config.json; without them the target is a function, whose model
    `moves` to the device if that was named. `folder` takes the traces.
    """

    target: str
    kind: str
    steps: int
    rounds: int
    folder: Path
    sizes: Sizes
    keys: Mapping[str, object] | None = None
    practices: tuple[str, ...] = ()
    moves: bool = False


def launched_ranks(environment: Mapping[str, str] = os.environ) -> int:
    """How many ranks a launcher started; this one alone without a launcher."""
    return int(environment["WORLD_SIZE"]) if is_launched(environment) else 1


def require_torch() -> None:
    """Refuse where torch is not installed, with the command that installs it."""
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra(f"this runs with PyTorch, which is not installed: {INSTALL}")


def checked_practices(text: str | None) -> tuple[str, ...]:
    """The practices of a list with commas, each once, in the order given; 'all' is every one."""
    if text is None:
        return ()
    names = [name for part in text.split(",") if (name := part.strip().lower())]
    if not names:
        raise InvalidInput(f"--what-if names no practice; choose from {', '.join(PRACTICES)}, or {ALL}")
    for name in names:
        if name not in (*PRACTICES, ALL):
            raise unknown("practice", name, PRACTICES, f"choose from {', '.join(PRACTICES)}, or {ALL}")
    return PRACTICES if ALL in names else tuple(dict.fromkeys(names))


def checked_precision(name: str | None, kind: str) -> str:
    """The number format in which a model computes; where none is given bf16 on cuda and fp32 on cpu."""
    if name is None:
        return "bf16" if kind == "cuda" else "fp32"
    if name not in PRECISIONS:
        raise unknown("precision", name, PRECISIONS, f"a step runs in {', '.join(PRECISIONS)}")
    if name == "tf32" and kind != "cuda":
        raise InvalidInput("--precision tf32 is a format of GPUs; choose fp32 or bf16")
    return name
