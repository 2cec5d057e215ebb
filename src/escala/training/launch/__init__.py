"""Ranks: where this one is, how to start them here or on several nodes, and who keeps the others waiting.

Loads no torch until `start` is called; `escala.training.launch.join` and `.watchdog`, which ranks use, do.
"""

from escala.training.launch.nodes import Nodes, nodes_of, sbatch_script, submit, torchrun_line
from escala.training.launch.place import Launcher, Place, place_of, refuse_other_size
from escala.training.launch.start import RunFailed, start

__all__ = [
    "Launcher",
    "Nodes",
    "Place",
    "RunFailed",
    "nodes_of",
    "place_of",
    "refuse_other_size",
    "sbatch_script",
    "start",
    "submit",
    "torchrun_line",
]
