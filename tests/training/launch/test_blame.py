"""The rank that failed first is named by what it says, not by who noticed first."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from escala.training.launch.blame import first_fault
from escala.training.launch.words import leave_words


class Failure:
    """As torchelastic's ProcessFailure."""

    def __init__(
        self, folder: Path, code: int, said: str = "", timestamp: int = 100, doing: str = ""
    ) -> None:
        self.exitcode, self.timestamp, self.error_file = code, timestamp, str(folder / f"{said[:9]}.json")
        self.message: Any = "Signal"
        if said:
            self.message = {"message": said, "extraInfo": {"doing": doing}}
            Path(self.error_file).write_text(json.dumps({"message": self.message}))

    def signal_name(self) -> str:
        return signal.Signals(-self.exitcode).name


def test_a_killed_rank_is_named_before_those_that_lost_it(tmp_path: Path):
    lost = Failure(tmp_path, 1, "RuntimeError: Connection closed by peer", timestamp=99)
    killed = Failure(tmp_path, -signal.SIGKILL, timestamp=100)

    assert str(first_fault({0: lost, 3: killed})) == (
        "rank 3 was killed by SIGKILL (the system may have run out of memory)"
    )


def test_own_words_are_shown_in_one_line(tmp_path: Path):
    own = Failure(tmp_path, 1, "ValueError: no such token\nmore")
    ended = Failure(tmp_path, -signal.SIGTERM, timestamp=90)

    assert str(first_fault({0: ended, 2: own})) == "rank 2 failed: ValueError: no such token"


def test_a_hang_is_told_as_the_watchdog_told_it(tmp_path: Path):
    hung = Failure(tmp_path, 1, "Hang: rank 3 has not entered all_reduce #17")
    killed = Failure(tmp_path, -signal.SIGKILL, timestamp=90)

    assert str(first_fault({0: hung, 3: killed})) == "Hang: rank 3 has not entered all_reduce #17"


def test_a_code_without_words_is_told(tmp_path: Path):
    fault = first_fault({1: Failure(tmp_path, 5)})

    assert (str(fault), fault.code) == ("rank 1 ended with code 5 and said nothing", 5)


def test_an_error_names_the_step_in_which_it_came(tmp_path: Path):
    fault = first_fault({2: Failure(tmp_path, 1, "ValueError: no such token", doing="step 12")})

    assert str(fault) == "rank 2 failed in step 12: ValueError: no such token"


@pytest.mark.parametrize(
    ("before", "after", "is_again"),
    [
        (("ValueError: bad <T at 0x7f1a>", "step 5"), ("ValueError: bad <T at 0x7fcc>", "step 5"), True),
        (("ValueError: bad", "step 5"), ("ValueError: bad", "step 6"), False),
        (("ValueError: bad", "step 5"), ("ValueError: worse", "step 5"), False),
        (("RuntimeError: Broken pipe", "step 5"), ("RuntimeError: Broken pipe", "step 5"), False),
        (("Hang: rank 1 is missing", ""), ("Hang: rank 1 is missing", ""), False),
        (("", ""), ("", ""), False),
    ],
)
def test_an_error_that_comes_again_at_the_same_place_is_no_passing_one(
    tmp_path: Path, before: tuple[str, str], after: tuple[str, str], is_again: bool
):
    # another rank may be the one that raises it
    first = first_fault({0: Failure(tmp_path, 1, before[0], doing=before[1])})
    second = first_fault({1: Failure(tmp_path, 1, after[0], doing=after[1])})

    assert not first.repeats(None)
    assert second.repeats(first) is is_again


def test_last_words_are_what_torchelastic_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))

    leave_words("a reason")

    message = json.loads((tmp_path / "error.json").read_text())["message"]
    assert message["message"] == "a reason"
    assert message["extraInfo"]["timestamp"].isdecimal()


def test_without_a_launcher_no_words_are_left(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE", raising=False)

    leave_words("a reason")
