"""Predictions from a bench, made before the run, beside real training on networks with limited bandwidth."""

from pathlib import Path

import pytest

from netlab.cases import cases
from netlab.hosts import missing
from netlab.truth import Row, Setting, compared, median_error

pytestmark = [pytest.mark.optional, pytest.mark.slow]
BENCH_S = 45.0


def rows_of(setting: Setting, names: tuple[str, ...], folder: Path) -> list[Row]:
    """The cases of a setting whose names begin so."""
    pytest.importorskip("torch", reason="real training needs PyTorch")
    why = missing(latency=setting.delay_s > 0)
    if why:
        pytest.skip(why)
    chosen = [case for case in cases(setting.hosts) if case.name.startswith(names)]
    return compared(setting, chosen, folder, BENCH_S)


def said(rows: list[Row]) -> str:
    return "\n".join(f"{row.setting}, {row.case.name}: {row.error:+.1%}" for row in rows)


@pytest.fixture(scope="module")
def near_hosts(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """Two hosts at 100 Mbit/s."""
    setting = Setting(hosts=2, megabits_per_s=100)
    return rows_of(setting, ("ddp, 1", "fsdp, 1", "tp"), tmp_path_factory.mktemp("near"))


@pytest.fixture(scope="module")
def far_hosts(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """Two hosts at 100 Mbit/s, each packet 5 ms under way."""
    setting = Setting(hosts=2, megabits_per_s=100, delay_s=5e-3)
    return rows_of(setting, ("ddp, 1", "tp"), tmp_path_factory.mktemp("far"))


def test_replicas_take_as_long_as_predicted(near_hosts: list[Row]):
    rows = [row for row in near_hosts if row.case.way == "ddp"]

    assert median_error(rows) <= 0.08, said(rows)


def test_shards_and_tensors_take_as_long_as_predicted(near_hosts: list[Row]):
    rows = [row for row in near_hosts if row.case.way != "ddp"]

    assert median_error(rows) <= 0.15, said(rows)


def test_messages_take_most_of_every_step(near_hosts: list[Row]):
    assert all(row.measured_alone_s < row.measured_s / 2 for row in near_hosts), said(near_hosts)


def test_hosts_that_are_far_apart_take_as_long_as_predicted(far_hosts: list[Row]):
    assert median_error(far_hosts) <= 0.2, said(far_hosts)
