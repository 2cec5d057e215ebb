"""Groups of the space as tables of plans: cells that decide what a layer costs, and their expansion."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from escala.model.plan import COLUMNS, Plan, Plans
from escala.planning.space import Group


def fill(columns: Mapping[str, np.ndarray], rows: int, plain: Plan) -> Plans:
    """Plans from some columns; the others take the values of a plain plan."""
    default = Plans.of(plain)
    values: dict[str, Any] = {
        name: np.repeat(getattr(default, name), rows) for name in (*COLUMNS, "stage_split")
    }
    values.update({name: np.ascontiguousarray(column, np.int64) for name, column in columns.items()})
    return Plans(**values)


CELL: Final = (
    "dp",
    "tp",
    "pp",
    "cp",
    "ep",
    "etp",
    "placement",
    "micro_batch",
    "micro_batches",
    "sp",
    "cp_kind",
)
TAIL: Final = ("zero", "reshard", "shard", "schedule", "virtual_stages", "split")


def cells(group: Group) -> np.ndarray:
    """The choices of a group that decide what a layer costs, crossed; columns in the order of CELL."""
    lists = (group.experts, group.orders, group.micro, group.sequence, group.context)
    pick = np.indices([len(choices) for choices in lists]).reshape(len(lists), -1)
    columns = [
        np.array(choices, np.int64).reshape(len(choices), -1)[i]
        for choices, i in zip(lists, pick, strict=True)
    ]
    fixed = np.tile(np.array([group.dp, group.tp, group.pp, group.cp], np.int64), (pick.shape[1], 1))
    return np.hstack([fixed, *columns])


def expand(group: Group, chosen: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Cells of a group crossed with its sharding modes and the pipelines of their micro-batches.

    Columns of plans, and for each plan its row in `chosen`.
    """
    parts, owners = [np.empty((0, len(CELL) + len(TAIL)), np.int64)], [np.empty(0, np.int64)]
    column = chosen[:, CELL.index("micro_batches")]
    for m in sorted(set(column.tolist())):
        owner = np.flatnonzero(column == m)
        rows = chosen[owner]
        tails = np.array([(*mode, *pipe) for mode in group.modes for pipe in group.pipelines[m]], np.int64)
        if len(tails):
            parts.append(np.hstack([np.repeat(rows, len(tails), axis=0), np.tile(tails, (len(rows), 1))]))
            owners.append(np.repeat(owner, len(tails)))
    return dict(zip((*CELL, *TAIL), np.concatenate(parts).T, strict=True)), np.concatenate(owners)
