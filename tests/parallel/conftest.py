"""A process group of one rank, for what can be seen without others."""

import pytest


@pytest.fixture
def alone():
    """The default group, of this process alone."""
    dist = pytest.importorskip("torch.distributed")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
