"""From a pilot to a target: curves that are known, targets that are never reached, files that are wrong."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from escala.errors import InvalidInput
from escala.federated.forecast import Pilot, forecast, pilot_of
from escala.federated.roundfile import read_rounds
from escala.federated.roundrecord import Round

ROUNDS = np.arange(1.0, 41.0)


def pilot(values: np.ndarray, metric: str = "accuracy") -> Pilot:
    return Pilot(metric=metric, rounds=np.arange(1.0, len(values) + 1), values=values)


def noise(points: int, deviation: float = 0.003) -> np.ndarray:
    return deviation * np.random.default_rng(4).standard_normal(points)


@pytest.mark.parametrize(
    ("curve", "target", "truth"),
    [
        # 0.9 - 0.8 exp(-t / 30) = 0.85 at t = 30 ln 16 = 83.2
        (0.9 - 0.8 * np.exp(-ROUNDS / 30), 0.85, 83.2 - 40),
        # 0.95 - 0.9 (1 + t / 10)^-1 = 0.85 at t = 80
        (0.95 - 0.9 / (1 + ROUNDS / 10), 0.85, 80 - 40),
    ],
)
def test_a_curve_of_a_family_is_found_again(curve: np.ndarray, target: float, truth: float):
    found = forecast(pilot(curve + noise(40)), target)

    assert found.more_low_rounds <= truth <= found.more_high_rounds
    assert found.more_mid_rounds == pytest.approx(truth, rel=0.35)


def test_what_falls_is_followed_down():
    # 0.2 + 2 exp(-t / 30) = 0.5 at t = 30 ln (2 / 0.3) = 56.9
    loss = 0.2 + 2 * np.exp(-ROUNDS / 30)

    found = forecast(pilot(loss + noise(40), "loss"), 0.5)

    assert found.more_low_rounds <= 16.9 <= found.more_high_rounds
    assert found.level[0] <= found.level[1] <= found.level[2] < loss[-1]


def test_a_pilot_that_reached_its_target_needs_no_more():
    found = forecast(pilot(np.linspace(0.1, 0.9, 41)), 0.5)

    # 0.1 + 0.02 a round
    assert found.reached_round == 21
    assert (found.more_low_rounds, found.more_mid_rounds, found.more_high_rounds) == (0, 0, 0)


def test_a_metric_that_has_levelled_off_is_not_promised():
    flat = 0.6 - 0.5 * np.exp(-ROUNDS / 3)

    found = forecast(pilot(flat + noise(40)), 0.9)

    assert found.more_mid_rounds is None
    assert found.never_share > 0.5


def test_a_higher_target_takes_no_fewer_rounds_and_the_answer_is_the_same_again():
    curve = pilot(0.9 - 0.8 * np.exp(-ROUNDS / 30) + noise(40))

    near, far, again = (forecast(curve, target) for target in (0.75, 0.85, 0.85))

    assert near.more_mid_rounds < far.more_mid_rounds
    assert far == again


def test_rounds_between_evaluations_are_counted():
    every_fifth = Pilot(
        metric="accuracy", rounds=ROUNDS[4::5], values=(0.9 - 0.8 * np.exp(-ROUNDS / 30))[4::5]
    )

    found = forecast(every_fifth, 0.85)

    assert found.more_mid_rounds % 5 == 0
    assert found.more_low_rounds <= 45 <= (found.more_high_rounds or np.inf)


def record(number: int, **metrics: float) -> Round:
    return Round(
        round=number,
        cohort=(),
        returned=(),
        down_bytes=0,
        up_bytes=0,
        start_s=0.0,
        round_s=1.0,
        metrics=metrics,
    )


def test_metrics_are_taken_where_they_were_evaluated():
    rounds = [record(at, accuracy=at / 100) if at % 2 else record(at) for at in range(1, 21)]

    assert pilot_of(rounds, "accuracy").rounds.tolist() == list(range(1, 21, 2))


@pytest.mark.parametrize(
    ("metric", "count", "said"),
    [("accuracy", 7, "needs 8 at least"), ("acuracy", 9, "did you mean accuracy"), ("loss", 9, "there are")],
)
def test_pilots_that_do_not_do_are_refused(metric: str, count: int, said: str):
    with pytest.raises(InvalidInput, match=said):
        pilot_of([record(at, accuracy=0.1) for at in range(1, count + 1)], metric)


def test_a_pilot_that_has_not_left_its_beginning_is_refused():
    # from 0.1 to 0.15 on the way to 0.9
    with pytest.raises(InvalidInput, match="not a tenth of the way"):
        forecast(pilot(np.linspace(0.1, 0.155, 30)), 0.9)


def test_accuracy_in_percent_is_refused():
    with pytest.raises(InvalidInput, match="between 0 and 1"):
        forecast(pilot(np.linspace(0.1, 0.9, 41)), 95.0)


def written(path: Path, *lines: bytes) -> Path:
    path.write_bytes(b"".join(lines))
    return path


def line(number: int) -> bytes:
    return msgspec.json.encode(record(number, accuracy=0.5)) + b"\n"


def test_a_file_of_rounds_is_read_up_to_a_line_that_was_cut_off(tmp_path: Path):
    file = written(tmp_path / "rounds.jsonl", line(1), line(2), line(3)[:30])

    assert [each.round for each in read_rounds(file)] == [1, 2]
    assert read_rounds(tmp_path) == read_rounds(file)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((b"",), "holds no round"),
        ((line(1), b"[]\n"), "line 2 is no round"),
        ((line(1), line(1)), "round 1, after round 1"),
        ((line(1).replace(b"round@1", b"round@9"),), "this escala reads"),
    ],
)
def test_files_that_are_no_rounds_are_refused_with_their_line(
    tmp_path: Path, lines: tuple[bytes, ...], said: str
):
    with pytest.raises(InvalidInput, match=said):
        read_rounds(written(tmp_path / "rounds.jsonl", *lines))
