"""The weights of a run's checkpoint as files, by what a person asks for. Reads no tensor itself."""

from pathlib import Path
from typing import TYPE_CHECKING

from escala.errors import InvalidInput
from escala.measurement.job.request import require_torch

if TYPE_CHECKING:
    from escala.training.checkpoint import Exported


def exported(run: str, out: str, *, is_adapter: bool, is_merged: bool) -> "Exported":
    """Write the newest checkpoint of a run, or the one that is named, into a new folder."""
    if is_adapter and is_merged:
        raise InvalidInput("--adapter and --merged were given; give one of them")
    require_torch()
    from escala.training.checkpoint import Form, checkpoint_of, export

    form = Form.ADAPTER if is_adapter else Form.MERGED if is_merged else None
    return export(checkpoint_of(Path(run)), Path(out), form)
