"""What a person asks of the bench, and refusals before the first second is spent. Loads no torch."""

import importlib.util
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from escala.errors import InvalidInput, MissingExtra, unknown

KINDS: Final = ("cuda", "cpu")
INSTALL: Final = "pip install 'escala[torch]'"
LAUNCHED: Final = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A checked request: kind of device (None: what there is), seconds in all, where storage is timed.

    `started_s` is the reading of the monotonic clock from which the budget counts.
    """

    kind: str | None
    budget_s: float
    folder: Path
    started_s: float


def has_torch() -> bool:
    """Whether PyTorch is installed; without it NumPy times what it can."""
    return importlib.util.find_spec("torch") is not None


def refuse_without_torch(kind: str | None, ranks: int) -> None:
    """Refuse GPUs and links between ranks where torch is not installed, with the command that installs it."""
    if has_torch():
        return
    for asked, option in ((kind == "cuda", "--device cuda"), (ranks > 1, f"--ranks {ranks}")):
        if asked:
            raise MissingExtra(f"{option} needs PyTorch, which is not installed: {INSTALL}")


def checked_kind(name: str | None) -> str | None:
    """The kind of device that a name means; None is left to the machine."""
    if name is not None and name.lower() not in KINDS:
        raise unknown("device", name, KINDS, f"choose {' or '.join(KINDS)}")
    return None if name is None else name.lower()


def checked_folder(name: str | None) -> Path:
    """The folder in which storage is timed, which takes files; the usual temporary one if none is named."""
    folder = Path(tempfile.gettempdir() if name is None else name)
    refuse_unwritable(folder, "--folder")
    return folder


def refuse_unwritable(folder: Path, option: str) -> None:
    """Refuse a folder in which no file can be made, before two minutes are spent on what goes there."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidInput(f"{option}: {folder} takes no files ({reason}); name another place") from None


def make_writable(folder: Path, option: str) -> None:
    """Make a folder, or refuse one that cannot be made or takes no files."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidInput(f"{option}: {folder} cannot be made ({reason}); name another place") from None
    refuse_unwritable(folder, option)


def refuse_unwritable_file(file: Path, option: str = "--out") -> None:
    """Refuse a file that cannot be written where it is to lie."""
    if file.is_dir():
        raise InvalidInput(f"{option}: {file} is a folder; name a file in it, such as bench.json")
    if not file.exists() or file.is_file():  # a pipe or a device is written as it stands
        refuse_unwritable(file.absolute().parent, option)


def is_first(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is the one that tells and writes."""
    return not is_launched(environment) or environment["RANK"] == "0"


def is_launched(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a launcher such as torchrun started this process as one of several."""
    return all(name in environment for name in LAUNCHED)


def refuse_both(ranks: int, environment: Mapping[str, str] = os.environ) -> None:
    """Refuse --ranks inside a launch, which has its own number of ranks."""
    if ranks > 1 and is_launched(environment):
        said = environment["WORLD_SIZE"]
        raise InvalidInput(f"--ranks {ranks} was given to one of {said} launched ranks; leave it out")
