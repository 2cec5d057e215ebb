"""What holds for all tests: an interrupt reaches the processes that a test starts; some want all cores.

No test asserts speed: examples of hypothesis have no deadline, since a busy machine would miss it.
A shell that starts the tests in the background leaves SIGINT ignored, and children inherit that.
"""

import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

HERE = Path(__file__).parent
# They measure time, or fill the cores with ranks of their own: nothing else may run beside them.
ALONE = (
    "cli/test_layouts.py",
    "cli/test_profile_step.py",
    "cli/test_scale.py",
    "federated/test_engines_agree.py",
    "federated/test_faults.py",
    "federated/test_flower_run.py",
    "federated/test_networks.py",
    "federated/test_supervisor.py",
    "measurement/bench/test_run.py",
    "measurement/job",
    "measurement/profile",
    "measurement/watch",
    "netlab",
    "parallel/test_composed.py",
    "parallel/test_context.py",
    "parallel/test_evaluate.py",
    "parallel/test_local_steps.py",
    "parallel/test_sharding.py",
    "parallel/test_stages.py",
    "parallel/test_tensor_ranks.py",
    "training",
)

settings.register_profile("timeless", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("timeless")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what has to run alone by the file or folder that it stands in."""
    for item in items:
        place = item.path.relative_to(HERE).as_posix()
        if any(place == each or place.startswith(f"{each}/") for each in ALONE):
            item.add_marker(pytest.mark.alone)
