"""What a learning population knows after a round, and the file from which another run goes on. NumPy only."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from escala.federated.algorithms import Server
from escala.federated.weights import Weights, stacked
from escala.model.columns import F64, I64
from escala.wholefile import write_whole

RUN, DONE, STEPS, LENGTHS, CLIENTS, LOSSES = "run", "done", "steps", "lengths", "clients", "losses"
SEPARATOR: Final = "|"
SERVER: Final = ("weights", "momentum", "second", "control")
TABLES: Final = ("controls", "residuals", "past")
Heard = tuple[I64, F64]
"""Clients of a round, and the root mean square of their losses."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class State:
    """Rounds done; the server; by client its variate and what it has not sent; by step what was given."""

    done: int
    server: Server
    controls: Mapping[int, Weights]
    residuals: Mapping[int, Weights]
    past: Mapping[int, Weights]
    heard: tuple[Heard, ...]


def save(state: State, run: str, path: Path) -> None:
    """Write the state of a run, whole or not at all; `run` tells it from others."""
    arrays: dict[str, NDArray[Any]] = {
        RUN: np.array(run),
        DONE: np.array(state.done),
        STEPS: np.array(state.server.steps),
        LENGTHS: np.array([len(clients) for clients, _ in state.heard], np.int64),
        CLIENTS: np.concatenate([clients for clients, _ in state.heard] or [np.zeros(0, np.int64)]),
        LOSSES: np.concatenate([losses for _, losses in state.heard] or [np.zeros(0)]),
    }
    for part in SERVER:
        arrays |= _named(part, getattr(state.server, part))
    for table in TABLES:
        rows: Mapping[int, Weights] = getattr(state, table)
        if rows:
            arrays |= {table: np.array(list(rows))} | _named(table, stacked(list(rows.values())))
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    write_whole(path, content.getvalue())


def restored(path: Path, run: str) -> State | None:
    """The state of this run, or nothing where there is none, another run's, or a damaged one."""
    try:
        with np.load(path, allow_pickle=False) as file:
            if str(file[RUN]) != run:
                return None
            return _state({name: file[name] for name in file.files})
    except (OSError, ValueError, KeyError, BadZipFile):
        return None


def _state(arrays: Mapping[str, NDArray[Any]]) -> State:
    ends = np.cumsum(arrays[LENGTHS])[:-1].tolist()
    clients, losses = np.split(arrays[CLIENTS], ends), np.split(arrays[LOSSES], ends)
    tables = {table: _table(arrays, table) for table in TABLES}
    return State(
        done=int(arrays[DONE]),
        server=Server(steps=int(arrays[STEPS]), **{part: _part(arrays, part) for part in SERVER}),
        heard=tuple(zip(clients, losses, strict=True)) if len(arrays[LENGTHS]) else (),
        **tables,
    )


def _named(part: str, weights: Weights) -> dict[str, NDArray[Any]]:
    return {f"{part}{SEPARATOR}{name}": each for name, each in weights.items()}


def _part(arrays: Mapping[str, NDArray[Any]], part: str) -> Weights:
    start = f"{part}{SEPARATOR}"
    return {name.removeprefix(start): each for name, each in arrays.items() if name.startswith(start)}


def _table(arrays: Mapping[str, NDArray[Any]], table: str) -> dict[int, Weights]:
    many, keys = _part(arrays, table), arrays.get(table, np.zeros(0, np.int64))
    return {int(key): {name: each[row] for name, each in many.items()} for row, key in enumerate(keys)}
