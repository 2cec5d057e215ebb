"""Folders of checkpoints: one a step, whole or named as partial. Knows names, no tensors.

step-00000120            whole: what stands here was finished by all ranks before it got this name
step-00000120.partial    being written, or left by a run that ended in the middle; never read
"""

import os
import re
import shutil
from pathlib import Path
from typing import Final

from escala.errors import EscalaError, InvalidInput

CHECKPOINTS: Final = "checkpoints"
"""Where the folder of a run has them."""
PARTIAL: Final = ".partial"
OLDER: Final = f".older{PARTIAL}"
WHOLE: Final = re.compile(r"step-(\d{8,})")


class SaveFailed(EscalaError):
    """A checkpoint could not be written; says why, and which one is the last that is whole."""


def step_folder(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step stands once it is whole."""
    return folder / f"step-{step:08d}"


def partial_of(whole: Path) -> Path:
    """Where a checkpoint is written before it is whole."""
    return whole.with_name(whole.name + PARTIAL)


def checkpoints(folder: Path) -> list[Path]:
    """Whole checkpoints, oldest step first."""
    if not folder.is_dir():
        return []
    found = [(WHOLE.fullmatch(path.name), path) for path in folder.iterdir() if path.is_dir()]
    return [path for _, path in sorted((int(match[1]), path) for match, path in found if match)]


def latest(folder: Path) -> Path | None:
    """The whole checkpoint of the last step; None where there is none yet."""
    return next(reversed(checkpoints(folder)), None)


def checkpoint_of(run: Path) -> Path:
    """The checkpoint that a folder means: itself, the newest of a run, or the newest of a folder of them."""
    if run in checkpoints(run.parent):
        return run
    found = checkpoints(run / CHECKPOINTS) or checkpoints(run)
    if not found:
        raise InvalidInput(
            f"{run} holds no whole checkpoint; name the folder of a run that has saved, or a step-... of it"
        )
    return found[-1]


def prepare(folder: Path) -> None:
    """Make the folder and remove what ended in the middle of a save."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidInput(f"{folder} cannot hold checkpoints ({reason}); name another folder") from None
    for older in folder.glob(f"step-*{OLDER}"):
        whole = older.with_name(older.name.removesuffix(OLDER))
        if not whole.exists():  # the run ended between the two renames of `finish`
            older.rename(whole)
    for left in folder.glob(f"step-*{PARTIAL}"):
        remove(left)


def finish(partial: Path, whole: Path) -> None:
    """Give a written checkpoint its name; what it is made of is on the disk before."""
    sync(partial)
    if whole.exists():  # a run that was resumed from before came here again
        older = whole.with_name(whole.name + OLDER)
        whole.rename(older)
        partial.rename(whole)
        remove(older)
    else:
        partial.rename(whole)
    sync(whole.parent)


def keep_last(folder: Path, keep: int, newest: Path) -> None:
    """Remove all but the last `keep` checkpoints up to the newest one; later ones belong to another run."""
    upto = [path for path in checkpoints(folder) if path.name <= newest.name]
    for path in upto[:-keep]:
        left = partial_of(path)
        path.rename(left)  # removed half, it shall not look whole
        remove(left)


def remove(path: Path) -> None:
    """Remove a folder, as far as the file system lets us."""
    shutil.rmtree(path, ignore_errors=True)


def sync(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
