import pytest

from escala.formats.bench_record import Power
from escala.measurement.bench import power as counted
from escala.measurement.bench.device import NUMPY, Device
from escala.measurement.bench.ranks import Ranks

PROCESSOR = Device(kind="cpu", index=0, memory_bytes=1e9, threads=1, library=NUMPY)


def test_every_state_of_a_counter_gets_its_watts(monkeypatch: pytest.MonkeyPatch):
    joules = iter(range(1000))
    monkeypatch.setattr(counted, "WINDOW_S", 0.01)
    monkeypatch.setattr(counted, "rapl_j", lambda folder: float(next(joules)))
    found = counted.power(PROCESSOR, Ranks())

    assert found.counter == "RAPL"
    assert found.collective_w is None  # one rank has nobody to talk to
    for watts in (found.idle_w, found.spinning_w, found.busy_w):
        assert watts is not None
        assert 0 < watts <= 1 / 0.01  # one joule in a window, or in a little more


def test_without_a_counter_nothing_is_invented(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(counted, "rapl_j", lambda folder: None)

    assert counted.power(PROCESSOR, Ranks()) == Power(counter="no counter")
