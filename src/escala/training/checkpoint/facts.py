"""checkpoint.json: the plain facts of a checkpoint, readable without torch. Knows no tensors."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from escala.errors import InvalidInput, spoken

SCHEMA: Final = "escala/checkpoint@1"
NAME: Final = "checkpoint.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Counters, plan, versions and kinds; what a person or a program asks a checkpoint first."""

    step: int
    samples: int
    ranks: int
    layout: Mapping[str, Any]
    optimizer: str
    losses: tuple[float | None, ...]
    scaler: Mapping[str, Any]
    plan: Mapping[str, Any]
    config: Mapping[str, Any]
    versions: Mapping[str, str]
    adapter: Mapping[str, Any] = field(default_factory=dict)
    schema: str = SCHEMA


def write_facts(facts: Facts, folder: Path) -> None:
    """Write the facts and wait until they are on the disk."""
    with (folder / NAME).open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(facts), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read_facts(folder: Path) -> Facts:
    """The facts of a whole checkpoint."""
    path = folder / NAME
    try:
        keys = msgspec.json.decode(path.read_bytes())
    except OSError:
        raise InvalidInput(
            f"{folder} is no checkpoint (it has no {NAME}); name a folder such as run/step-00000100"
        ) from None
    except msgspec.DecodeError:
        raise InvalidInput(f"{path} is damaged; resume from another checkpoint") from None
    schema = keys.get("schema") if isinstance(keys, dict) else None
    if schema != SCHEMA:
        raise InvalidInput(f"{path}: schema is {spoken(schema)}; this escala reads '{SCHEMA}'")
    try:
        return msgspec.convert(keys, Facts)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{path} is damaged ({error}); resume from another checkpoint") from None
