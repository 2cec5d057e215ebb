"""The samples that a job names: prepared tokens, images, the standard library, or made up. Reads; writes once."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from escala.errors import InvalidInput
from escala.model.network import Network
from escala.training.data.images import Images
from escala.training.data.index import INDEX
from escala.training.data.pictures import picture_folder
from escala.training.data.samples import Source
from escala.training.data.standard_library import standard_library
from escala.training.data.synthetic import SyntheticImages, SyntheticTokens
from escala.training.data.texts import Texts
from escala.training.data.tokens import TRAIN, VALIDATION, open_tokens
from escala.training.job import Job

STDLIB, SYNTHETIC = "stdlib", "synthetic"
PIXELS: Final = 224
HELD_OUT: Final = 0.05
"""Share of the documents that nothing is learned from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Samples to learn from, and those held out; None where there are none."""

    train: Source
    held_out: Source | None
