"""What is known of a client's data without the data: counts, labels, faults; who may not take part."""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from escala.errors import InvalidInput
from escala.federated.scenario import Gate
from escala.model.columns import I64


class ClientData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A client's samples in numbers.

    `labels` counts samples by label; `constant_columns` of its `columns` never
    change; `missing_ratio` is the share of samples with NaN or infinity, `duplicate_ratio` of those that
    repeat an earlier one.
    """

    client: int
    samples: int
    labels: dict[str, int]
    columns: int
    constant_columns: int
    missing_ratio: float
    duplicate_ratio: float


def client_data(client: int, inputs: NDArray[Any], labels: I64) -> ClientData:
    """Count a client's samples; an image's columns are its pixels. Shapes: inputs (n, ...), labels (n,)."""
    if len(inputs) != len(labels):
        raise InvalidInput(
            f"client {client} has {len(inputs)} inputs and {len(labels)} labels; give one each"
        )
    samples = len(inputs)
    flat = np.ascontiguousarray(inputs.reshape(samples, -1)) if samples else np.empty((0, 0))
    names, counts = np.unique(labels, return_counts=True)
    is_whole = np.isfinite(flat).all(axis=1) if flat.dtype.kind == "f" else np.ones(samples, np.bool_)
    distinct = len({row.tobytes() for row in flat})
    return ClientData(
        client=client,
        samples=samples,
        labels={str(name): int(number) for name, number in zip(names, counts, strict=True)},
        columns=flat.shape[1],
        constant_columns=int((flat == flat[:1]).all(axis=0).sum()) if samples else 0,
        missing_ratio=float(1 - is_whole.mean()) if samples else 0.0,
        duplicate_ratio=1 - distinct / samples if samples else 0.0,
    )


def faults(data: ClientData, gate: Gate) -> list[str]:
    """Why a client may not take part; empty if it may."""
    constant_ratio = data.constant_columns / data.columns if data.columns else 0.0
    checks = (
        (data.samples < gate.least_samples, f"{data.samples} samples, {gate.least_samples} are needed"),
        (len(data.labels) < gate.least_labels, f"{len(data.labels)} labels, {gate.least_labels} are needed"),
        _above("samples with NaN or infinity", data.missing_ratio, gate.most_missing_ratio),
        _above("repeated samples", data.duplicate_ratio, gate.most_duplicate_ratio),
        _above("columns that never change", constant_ratio, gate.most_constant_ratio),
    )
    return [told for is_wrong, told in checks if is_wrong]


def refused(every: list[ClientData], gate: Gate) -> dict[int, str]:
    """Clients that may not take part, with the reasons."""
    found = {data.client: "; ".join(faults(data, gate)) for data in every}
    return {client: why for client, why in found.items() if why}


def _above(what: str, share: float, most: float) -> tuple[bool, str]:
    return share > most, f"{share:.1%} {what}, {most:.1%} are allowed"
