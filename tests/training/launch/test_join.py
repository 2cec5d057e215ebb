"""Ranks meet without torchrun, too, and one alone needs nobody."""

import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.optional
pytest.importorskip("torch")

from escala.training.launch import Place  # noqa: E402
from escala.training.launch.join import join, store_of  # noqa: E402

HERE = Path(__file__).parent


def test_ranks_of_srun_meet_at_the_first_one(tmp_path: Path):
    sys.path.insert(0, str(HERE.parent))
    from forked import run_job

    seen = run_job(HERE / "join_job.py", str(tmp_path))

    assert seen["ranks"] == [{"total": 3.0, "all are here": True}] * 2  # 1 + 2


def test_a_process_alone_meets_nobody():
    import torch.distributed as dist

    join(Place(), "gloo")
    try:
        assert dist.get_world_size() == 1
        store_of(Place(), "hang").set("key", "value")
    finally:
        dist.destroy_process_group()
