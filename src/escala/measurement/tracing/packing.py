"""Sequences of transformers that are not packed, without looking at their positions, which have no data."""

import sys
from typing import Any


def never_packed() -> None:
    """Tell transformers, where it is loaded, that each row of a batch holds one sequence.

    Else it reads the positions to find out, and makes a mask, so that attention neither uses its fused kernel
    nor shares keys between heads.
    """
    masks: Any = sys.modules.get("transformers.masking_utils")
    if masks is not None:
        masks.find_packed_sequence_indices = _none_packed


def _none_packed(position_ids: Any) -> None:
    """Positions of one sequence a row."""
