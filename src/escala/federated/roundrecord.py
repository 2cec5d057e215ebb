"""What happened in one round, the same for simulated and real ones: one JSON line a round."""

from typing import Final

import msgspec

SCHEMA: Final = "escala/round@1"


class Round(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One round: who was asked, who returned, what was sent, how long it took, what was learnt.

    Clients are named by their numbers; one that works for a buffer may return twice. `lost` counts clients
    that did not count by reason (late, link, battery, dropout, window, invalid, too-few). Seconds are of
    the run's clock, virtual in a simulation; those of phases are means over the clients that returned.
    Energies are low, mid, high by phase (compute, up, down, wait, server) of everyone asked, where they
    are known.
    """

    schema: str = SCHEMA
    round: int
    cohort: tuple[int, ...]
    returned: tuple[int, ...]
    lost: dict[str, int] = {}
    down_bytes: int
    up_bytes: int
    start_s: float
    round_s: float
    phase_s: dict[str, float] = {}
    energy_j: dict[str, tuple[float, float, float]] = {}
    carbon_kg: tuple[float, float, float] | None = None
    metrics: dict[str, float] = {}
    epsilon: float | None = None
    weights_digest: str | None = None
