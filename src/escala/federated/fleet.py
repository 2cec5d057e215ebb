"""The devices of a scenario as columns, one row a client; a client's number is its row, in every engine."""

from dataclasses import dataclass

from escala.model.columns import F64, I64, Bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fleet:
    """What each client has, drawn once from its class by a seed. Shapes (n,), but `hours` (n, 24).

    `battery_j` is 0 where `has_battery` is false, `carbon_kg_per_j` is 0 where `has_carbon` is false.
    `sample_s` is training time of one sample on the chosen target.
    """

    kind: I64
    samples: I64
    sample_s: F64
    start_s: F64
    compute_w: F64
    idle_w: F64
    up_bytes_per_s: F64
    down_bytes_per_s: F64
    latency_s: F64
    arrival_ratio: F64
    dropout_ratio: F64
    hours: Bool
    battery_j: F64
    has_battery: Bool
    carbon_kg_per_j: F64
    has_carbon: Bool

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(slots=True, kw_only=True, eq=False)
class History:
    """What rounds told about each client so far; grows with them. Shapes (n,).

    `loss` is the root mean square of the last training losses of its samples (statistical utility), `round_s`
    its last round, `chosen` how often it was asked, `last_round` when it last returned (-1 never).
    """

    loss: F64
    round_s: F64
    chosen: I64
    last_round: I64
