"""What sinks are told, with trackers that stand in for the real ones."""

import sys
import types

import pytest

from escala.errors import InvalidInput, MissingExtra
from escala.training.sinks import LINES, checked_sinks, damage, metrics, read_lines, sinks
from escala.training.steprecord import STEP_SCHEMA, StepRecord


def record(step=1, **given):
    return StepRecord(
        **{
            "schema": STEP_SCHEMA,
            "step": step,
            "samples": 8 * step,
            "loss": 5.5,
            "learning_rate": 1e-3,
            "gradient_norm": 1.0,
            "step_s": 0.5,
            "wait_s": 0.0,
            "tokens_per_s": 4096.0,
            "mfu": None,
            "peak_bytes": None,
            "elapsed_s": 1.0,
            "left_s": 9.0,
            "is_observed": False,
            "is_skipped": False,
            **given,
        }
    )


def test_lines_are_read_as_they_were_told(tmp_path):
    with sinks(tmp_path, (), {}) as told:
        told(record(1))
        told(record(2, loss=5.25))

    assert read_lines(tmp_path) == [record(1), record(2, loss=5.25)]


def test_a_run_that_goes_on_adds_to_its_lines(tmp_path):
    for step in (1, 2):
        with sinks(tmp_path, (), {}) as told:
            told(record(step))

    assert [each.step for each in read_lines(tmp_path)] == [1, 2]


def test_a_last_line_cut_off_by_a_crash_is_left_out(tmp_path):
    with sinks(tmp_path, (), {}) as told:
        told(record(1))
    with (tmp_path / LINES).open("ab") as file:
        file.write(b'{"schema":"escala/st')

    assert [each.step for each in read_lines(tmp_path)] == [1]


def test_a_run_goes_on_after_a_line_that_a_crash_cut_off(tmp_path):
    (tmp_path / LINES).write_bytes(b'{"schema":"escala/st')

    with sinks(tmp_path, (), {}) as told:
        told(record(2))

    assert [each.step for each in read_lines(tmp_path)] == [2]
    assert damage(tmp_path) == ()


def test_damaged_lines_are_named_and_lose_no_other(tmp_path):
    with sinks(tmp_path, (), {}) as told:
        told(record(1))
    with (tmp_path / LINES).open("ab") as file:
        file.write(b"garbage\n\xff\xfe\n")

    with sinks(tmp_path, (), {}) as told:
        told(record(2))

    assert [each.step for each in read_lines(tmp_path)] == [1, 2]
    (said,) = damage(tmp_path)
    assert "line 2 and 1 more are no step of a run" in said


def test_unknown_numbers_are_not_told_to_trackers():
    assert "throughput/mfu" not in metrics(record())
    assert metrics(record(mfu=0.4))["throughput/mfu"] == 0.4


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_tracker_gets_every_step_and_is_finished(tmp_path, monkeypatch, name):
    calls = []
    fake = types.SimpleNamespace(
        init=lambda **given: calls.append(("init", given["config"])),
        log=lambda values, step: calls.append((step, values["train/loss"])),
        finish=lambda: calls.append("finish"),
    )
    monkeypatch.setitem(sys.modules, name, fake)

    with sinks(tmp_path, (name,), {"seed": 1}) as told:
        told(record(3))

    assert calls == [("init", {"seed": 1}), (3, 5.5), "finish"]


def test_a_tracker_that_is_not_installed_is_named_with_its_installation(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)

    with pytest.raises(MissingExtra, match="pip install mlflow"), sinks(tmp_path, ("mlflow",), {}):
        pass


def test_an_unknown_sink_lists_those_there_are():
    with pytest.raises(InvalidInput, match="tensorboard"):
        checked_sinks("tensorbord")
