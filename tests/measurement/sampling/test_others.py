"""What other processes take of a node, beside a process and its descendants."""

import os
import subprocess
import sys
import time

import pytest

pytest.importorskip("psutil")

from escala.measurement.sampling.others import Others

SPIN = "import time; end = time.monotonic() + 1.2\nwhile time.monotonic() < end: pass"


def test_work_of_our_own_processes_is_no_other_work():
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        of_all, of_one = Others(os.getpid()), Others(stranger.pid)
        subprocess.run([sys.executable, "-c", SPIN], check=True)
        ours, strangers = of_all.work(), of_one.work()
    finally:
        stranger.kill()
        stranger.wait()

    assert ours is not None
    assert strangers is not None
    # seen from the sleeping process, the spinning one is somebody else's
    assert strangers.busy_cores > ours.busy_cores


def test_a_moment_is_too_short_to_tell():
    others = Others(os.getpid())
    time.sleep(0.01)

    assert others.work() is None
