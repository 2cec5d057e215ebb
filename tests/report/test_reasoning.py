import json
from dataclasses import fields
from pathlib import Path

import pytest

from escala.errors import InvalidInput
from escala.report.reasoning import GrowthView
from escala.report.reasoning_ask import critical_of, loader_of, range_of
from escala.report.reasoning_text import end_words
from escala.training.conclude import Trained

BENCH = Path(__file__).parents[1] / "formats" / "data" / "bench.json"


def test_a_range_has_two_ends():
    assert range_of("256..4,096") == (256, 4096)


@pytest.mark.parametrize("text", ["256", "4096..256", "0..8", "a..b", "1..10000000000"])
def test_what_is_no_range_is_refused(text):
    with pytest.raises(InvalidInput, match=r"write for example 256\.\.4096"):
        range_of(text)


def test_a_given_critical_batch_has_no_doubt():
    found = critical_of("4,096")

    assert (found.batch, found.low, found.high, found.is_measured) == (4096.0, 4096.0, 4096.0, True)


@pytest.mark.parametrize("text", ["many", "0", "-3", "nan"])
def test_what_is_no_critical_batch_is_refused(text):
    with pytest.raises(InvalidInput, match="neither a number of samples nor a run"):
        critical_of(text)


def test_a_run_tells_its_noise_with_its_interval(tmp_path: Path):
    tmp_path.joinpath("trained.json").write_text(
        json.dumps({"schema": "escala/train@1", "noise_batch": 80.0, "noise_low": 40.0, "noise_high": None})
    )

    found = critical_of(str(tmp_path))

    assert (found.batch, found.low, found.high) == (80.0, 40.0, None)
    assert found.source.startswith("gradient noise of ")


def test_a_loader_is_a_rate_or_the_fastest_that_a_bench_timed(tmp_path: Path):
    # 2 ms an image with one worker, 0.5 ms with four: 2,000 images a second
    keys = json.loads(BENCH.read_text())
    for workers, seconds in ((1, 2e-3), (4, 5e-4)):
        name = f"DataLoader, {workers} workers, each image"
        keys["timed"].append({**keys["timed"][0], "part": "loader", "name": name, "typical_s": seconds})
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(keys))

    assert loader_of("6,000", is_image=False) == 6000.0
    assert loader_of(str(path), is_image=True) == pytest.approx(2000.0, rel=1e-12)
    with pytest.raises(InvalidInput, match="decodes images"):
        loader_of(str(path), is_image=False)


def test_a_bench_without_a_loader_is_refused():
    with pytest.raises(InvalidInput, match="timed no loader"):
        loader_of(str(BENCH), is_image=True)


def test_the_keys_of_a_run_are_those_that_training_writes():
    assert {"noise_batch", "noise_low", "noise_high"} <= {each.name for each in fields(Trained)}


def test_a_run_without_noise_is_refused(tmp_path: Path):
    path = tmp_path / "trained.json"
    path.write_text(json.dumps({"schema": "escala/train@1", "noise_batch": None}))

    with pytest.raises(InvalidInput, match="--noise"):
        critical_of(str(path))


def test_nothing_is_kept_on_no_size():
    none = GrowthView(
        is_same_layout=True,
        keep=0.8,
        sizes=(),
        trend=None,
        stop=None,
        least_energy_devices=None,
        least_cost_devices=None,
        ends="",
    )

    assert end_words(none) == ["no other size of this layout can be run"]
