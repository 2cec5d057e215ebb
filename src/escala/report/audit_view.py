"""Builds the answer to `federate audit`: what a run was, whether its records are whole."""

from pathlib import Path
from typing import Final

import msgspec

from escala import __version__
from escala.federated.clientdata import ClientData
from escala.federated.manifest import Audit, audit

SCHEMA: Final = "escala/federate-audit@1"


class Audited(msgspec.Struct, frozen=True, kw_only=True):
    """A checked run. `head` is the last fingerprint of the chain: keep it elsewhere."""

    schema: str = SCHEMA
    escala: str
    folder: str
    name: str
    is_sound: bool
    faults: tuple[str, ...]
    head: str
    rounds: int
    clients: int
    taking_part: int
    down_bytes: int
    up_bytes: int
    epsilon: float | None
    delta: float | None
    lost: dict[str, int]
    made_by: str
    code: dict[str, str]
    packages: dict[str, str]
    training: dict[str, object]
    data: tuple[ClientData, ...]
    refused: dict[str, str]


def audited(folder: str, head: str | None) -> tuple[Audited, Audit]:
    """The document, and the check that it is built from."""
    found = audit(Path(folder), head)
    manifest = found.manifest
    privacy = manifest.training.get("privacy")
    document = Audited(
        escala=__version__,
        folder=folder,
        name=manifest.name,
        is_sound=not found.faults,
        faults=found.faults,
        head=found.head,
        rounds=len(found.rounds),
        clients=manifest.clients,
        taking_part=len({client for each in found.rounds for client in each.returned}),
        down_bytes=sum(each.down_bytes for each in found.rounds),
        up_bytes=sum(each.up_bytes for each in found.rounds),
        epsilon=next((each.epsilon for each in reversed(found.rounds) if each.epsilon is not None), None),
        delta=privacy["delta"] if isinstance(privacy, dict) else None,
        lost=_lost(found),
        made_by=f"escala {manifest.escala}, Python {manifest.python}",
        code=manifest.code,
        packages=manifest.packages,
        training=manifest.training,
        data=manifest.data,
        refused=manifest.refused,
    )
    return document, found


def _lost(found: Audit) -> dict[str, int]:
    reasons = sorted({reason for each in found.rounds for reason in each.lost})
    return {reason: sum(each.lost.get(reason, 0) for each in found.rounds) for reason in reasons}
