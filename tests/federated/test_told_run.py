"""What a run on Flower says while it starts, goes on and is stopped; nothing is started here."""

from math import isnan

import msgspec
import pytest

pytestmark = pytest.mark.optional
pytest.importorskip("flwr")

from escala.federated import run  # noqa: E402
from escala.federated.federation import new_settings  # noqa: E402
from escala.federated.roundrecord import Round  # noqa: E402
from federated.boards import scenario  # noqa: E402


@pytest.fixture
def federation(tmp_path):
    return run.federation_of(new_settings(scenario(), tmp_path, rounds=6, task="digits"), 2)


def write(folder, count):
    lines = [
        msgspec.json.encode(
            Round(
                round=number,
                cohort=(0,),
                returned=(0,),
                lost={},
                down_bytes=1,
                up_bytes=1,
                start_s=0.0,
                round_s=1.0,
                metrics={},
            )
        )
        for number in range(1, count + 1)
    ]
    (folder / "rounds.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))


def test_nodes_are_waited_for_and_time_left_counts_from_when_all_are_there(federation, monkeypatch):
    # resumed after 2 of 6; all nodes are there from 30 s on; rounds 3 and 4 end at 50 s: 10 s each, 2 to go
    told, clock = [], [0.0]
    monkeypatch.setattr(run.time, "monotonic", lambda: clock[0])
    write(federation.folder, 2)
    running = run.Running(federation, lambda what, left_s: told.append((what, left_s)))
    for clock[0], running._online, rounds in (
        (10.0, 0, 2),
        (30.0, 1, 2),
        (31.0, 2, 2),
        (50.0, 2, 4),
        (55.0, 2, 4),
    ):
        write(federation.folder, rounds)
        running._say()

    assert [what for what, _ in told] == [
        "waiting for round 3 of 6: 0 of 2 nodes online",
        "waiting for round 3 of 6: 1 of 2 nodes online",
        "waiting for round 3 of 6: 2 of 2 nodes online",
        "round 4 of 6 done",
        "round 4 of 6 done",
    ]
    assert all(isnan(left_s) for _, left_s in told[:3])
    assert [left_s for _, left_s in told[3:]] == [20.0, 15.0]


def test_ctrl_c_is_answered_before_programs_are_stopped_and_the_way_on_is_told_after(federation, monkeypatch):
    said = []
    monkeypatch.setattr(run.Running, "start", lambda self: None)
    monkeypatch.setattr(run.Running, "stop", lambda self: said.append("(stopped)"))

    with pytest.raises(KeyboardInterrupt), run.started(federation, print, said.append):
        raise KeyboardInterrupt

    assert said == [
        "stopping server and nodes ...",
        "(stopped)",
        "stopped; the same command goes on with --resume",
    ]
