"""Checkpoints: saved by any layout, read by any other; whole, or not there. Needs torch.

Every rank makes `Checkpoints(folder)` and calls `save(state)` at the same steps. `load(latest(folder),
state)` reads in place, whatever layout saved; `export` writes what transformers loads.
"""

from escala.training.checkpoint.facts import Facts, read_facts
from escala.training.checkpoint.folders import CHECKPOINTS, SaveFailed, checkpoint_of, checkpoints, latest
from escala.training.checkpoint.loading import load
from escala.training.checkpoint.saving import Checkpoints
from escala.training.checkpoint.state import Resumed, TrainState
from escala.training.checkpoint.weights import Exported, Form, export

__all__ = [
    "CHECKPOINTS",
    "Checkpoints",
    "Exported",
    "Facts",
    "Form",
    "Resumed",
    "SaveFailed",
    "TrainState",
    "checkpoint_of",
    "checkpoints",
    "export",
    "latest",
    "load",
    "read_facts",
]
