"""Writes checkpoints that are whole or not there, while training goes on. Knows files and collectives.

All ranks write their own parts (torch.distributed.checkpoint), rank 0 gives the folder its name at the end.
A process that is killed, and a disk that is full, leave a partial folder and every earlier checkpoint whole.
"""

import platform
import shutil
import warnings
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from escala import __version__
from escala.errors import InvalidInput
from escala.training.checkpoint.facts import Facts, write_facts
from escala.training.checkpoint.folders import (
    SaveFailed,
    finish,
    keep_last,
    latest,
    partial_of,
    prepare,
    remove,
    step_folder,
)
from escala.training.checkpoint.planners import SavePlanner
from escala.training.checkpoint.state import TrainState
from escala.training.checkpoint.tensors import (
    RANDOM,
    group_values,
    model_tensors,
    names_of,
    of_replica,
    optimizer_values,
    random_states,
)

SPARE: Final = 1.02
"""Bytes on the disk per byte of tensors: torch.save's headers and the index, 1 to 2 % of small tensors."""


class Checkpoints:
    """The checkpoints of a run in one folder; every rank makes one and calls it at the same steps.

    With `is_async` a save only copies to host memory before training goes on, and is written in a thread over
    a process group of its own. A save begins when the one before is whole; the end of the block waits for the
    last.
    """

    def __init__(self, folder: Path, *, keep: int = 2, is_async: bool = False) -> None:
        if keep < 1:
            raise InvalidInput(f"keep={keep} leaves no checkpoint; keep 1 or more")
        self.folder, self.keep, self.is_async = folder, keep, is_async
        # not the group of training: the two would take turns in an order that ranks do not share
        self.group = dist.new_group(backend="gloo") if dist.is_initialized() else None
        self._pending: Future[Any] | None = None
        self._step = 0
        self._first_rank(prepare, folder)

    def __enter__(self) -> Self:
        """Checkpoints that are closed at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the last save, unless the block failed: then other ranks may be gone."""
        if error is None:
            self.settle()

    def save(self, state: TrainState) -> None:
        """Write a checkpoint of the state's step, or begin to; an earlier one that failed raises here."""
        self.settle()
        whole = step_folder(self.folder, state.step)
        writer = WholeWriter(whole, _facts(state), self.keep)
        planner = SavePlanner(flatten_state_dict=False, dedup_save_to_lowest_rank=True)
        values = _values(state)
        self._step = state.step
        how: dict[str, Any] = {"process_group": self.group, "no_dist": self.group is None}
        expect_one_process()
        if self.is_async:
            self._pending = dcp.async_save(values, storage_writer=writer, planner=planner, **how)
        else:
            self._told(lambda: dcp.save(values, storage_writer=writer, planner=planner, **how))

    def settle(self) -> None:
        """Wait until the save that was begun is whole."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self._told(pending.result)

    def _told(self, save: Any) -> None:
        try:
            save()
        except CheckpointException as error:
            whole = step_folder(self.folder, self._step)
            if self.group is None or dist.get_rank() == 0:
                remove(partial_of(whole))
            rank, (cause, _) = min(error.failures.items())
            if not isinstance(cause, OSError):
                raise cause from error
            raise SaveFailed(_reason(whole, cause, rank)) from error

    def _first_rank(self, do: Any, *given: Any) -> None:
        """Let rank 0 do something that all wait for; its error is everybody's."""
        outcome: list[str | None] = [None]
        if self.group is None or dist.get_rank() == 0:
            try:
                do(*given)
            except InvalidInput as error:
                outcome = [str(error)]
        if self.group is not None:
            dist.broadcast_object_list(outcome, src=0, group=self.group)
        if outcome[0] is not None:
            raise InvalidInput(outcome[0])


class WholeWriter(dcp.FileSystemWriter):
    """Writes a partial folder, and names it as whole when every rank has written its part."""

    def __init__(self, whole: Path, facts: Facts, keep: int) -> None:
        super().__init__(partial_of(whole), sync_files=True, overwrite=True)
        self._whole, self._facts, self._keep = whole, facts, keep

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        """On rank 0: refuse what the disk has no room for, before anything is written."""
        needed_bytes = SPARE * sum(_bytes(item) for plan in plans for item in plan.items)
        free_bytes = shutil.disk_usage(self._whole.parent).free
        if free_bytes < needed_bytes:
            raise OSError(f"it needs {needed_bytes / 1e9:.3g} GB and {free_bytes / 1e9:.3g} GB are free")
        return super().prepare_global_plan(plans)

    def write_data(self, plan: Any, planner: Any) -> Any:
        """On every rank: write its part; a full disk is told as the system tells it."""
        try:
            return super().write_data(plan, planner)
        except RuntimeError as error:  # of the archive that could not be closed
            raise _system_error(error) or error from None

    def finish(self, metadata: Any, results: list[Any]) -> None:
        """On rank 0, after all have written: complete the folder, name it, remove the oldest ones."""
        super().finish(metadata, results)
        partial = partial_of(self._whole)
        write_facts(self._facts, partial)
        finish(partial, self._whole)
        keep_last(self._whole.parent, self._keep, self._whole)


def expect_one_process() -> None:
    """One process is meant where there is one: no warning of PyTorch's, also not from its thread."""
    warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)


def versions() -> dict[str, str]:
    """What wrote a checkpoint."""
    return {"escala": __version__, "torch": str(torch.__version__), "python": platform.python_version()}


def _values(state: TrainState) -> dict[str, Any]:
    names = names_of(state.chunks)
    rank = dist.get_rank() if dist.is_initialized() else 0
    return {
        **model_tensors(state.chunks),
        **optimizer_values(state.optimizer, names, of_replica(state.replica)),
        **group_values(state.optimizer, names),
        f"{RANDOM}{rank}": random_states(),
    }


def _facts(state: TrainState) -> Facts:
    return Facts(
        step=state.step,
        samples=state.samples,
        ranks=dist.get_world_size() if dist.is_initialized() else 1,
        layout=state.layout,
        optimizer=kind_of(state.optimizer),
        losses=state.losses,
        scaler={} if state.scaler is None else asdict(state.scaler),
        plan=state.plan,
        config=state.config,
        adapter=state.adapter,
        versions=versions(),
    )


def kind_of(optimizer: Any) -> str:
    """The name of an optimizer's class; of the inner one where it only shares states out."""
    return type(getattr(optimizer, "optim", optimizer)).__name__


def _bytes(item: Any) -> int:
    if item.tensor_data is None:
        return 0
    return item.tensor_data.chunk.sizes.numel() * item.tensor_data.properties.dtype.itemsize


def _reason(whole: Path, cause: OSError, rank: int) -> str:
    text = cause.strerror.lower() if cause.strerror else str(cause)
    last = latest(whole.parent)
    left = f"the last whole checkpoint is {last.name}" if last else "there is no earlier checkpoint"
    what = f"{whole.name} could not be saved in {whole.parent}"
    return f"{what} ({text}, rank {rank}); {left}; free space or name another folder"


def _system_error(error: BaseException | None) -> OSError | None:
    """What the system said, where PyTorch raised something else over it."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error
