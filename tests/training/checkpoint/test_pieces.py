"""Matrices that are split piece by piece are saved and read by their places in the whole."""

import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.optional, pytest.mark.slow]
pytest.importorskip("torch")

HERE = Path(__file__).parent


def test_what_ranks_hold_in_pieces_is_read_whole_and_under_another_layout(tmp_path):
    sys.path.insert(0, str(HERE.parent))
    from forked import run_job

    first, second, _, last = run_job(HERE / "pieces_job.py", str(tmp_path))

    # 5 x 12 in pieces of 4 columns: rank 0 has rows 0 to 2 of the first two columns of each piece
    assert first["blocks"] == [[[0, start], [3, 2]] for start in (0, 4, 8)]
    assert second["blocks"] == [[[0, start], [3, 2]] for start in (2, 6, 10)]
    assert last["blocks"] == [[[3, start], [2, 2]] for start in (2, 6, 10)]
    assert all(rank["plain"] and rank["split"] for rank in (first, second, last))
