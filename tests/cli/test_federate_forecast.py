"""`escala federate forecast` as a person runs it."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from cli.conftest import Run
from escala.federated.roundrecord import Round


@pytest.fixture
def pilot(tmp_path: Path) -> str:
    """30 rounds of 0.9 - 0.8 exp(-t / 20)."""
    values = 0.9 - 0.8 * np.exp(-np.arange(1, 31) / 20)
    rounds = [
        Round(
            round=at,
            cohort=(),
            returned=(),
            down_bytes=0,
            up_bytes=0,
            start_s=0.0,
            round_s=1.0,
            metrics={"accuracy": value},
        )
        for at, value in enumerate(values.tolist(), 1)
    ]
    (tmp_path / "rounds.jsonl").write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in rounds))
    return "rounds.jsonl"


def test_a_target_within_reach_has_an_interval(run: Run, pilot: str):
    shown, document = (
        run("federate", "forecast", pilot, "--target", "0.85", *more) for more in ((), ("--json",))
    )

    assert shown.code == document.code == 0, shown.err
    assert shown.longest <= 80
    found = json.loads(document.out)
    assert found["schema"] == "escala/federate-forecast@1"
    # 20 ln 16 = 55.5: 25.5 more
    assert found["more_low_rounds"] <= 25.5
    assert f"{found['more_mid_rounds']:.0f} more rounds to accuracy 0.85" in shown.out


def test_a_target_out_of_reach_ends_in_no(run: Run, pilot: str):
    shown = run("federate", "forecast", pilot, "--target", "0.9999")

    assert shown.code == 1, shown.out
    assert "unknown" in shown.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("rounds.jsonl",), "--target"),
        (("rounds.jsonl", "--target", "95"), "between 0 and 1"),
        (("rounds.jsonl", "--target", "0.5", "--metric", "los"), "unknown metric"),
        (("nowhere.jsonl", "--target", "0.5"), "does not exist"),
    ],
)
def test_wrong_input_is_one_line(run: Run, pilot: str, arguments: tuple[str, ...], said: str):
    shown = run("federate", "forecast", *arguments)

    assert shown.code == 2
    assert said in shown.err
    assert shown.err.count("\n") == 1
