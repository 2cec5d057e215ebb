from itertools import pairwise

import numpy as np
import pytest

from escala.model.plan import Plan, Schedule
from escala.planning.timeline import Phase, Sends, Timeline, play
from escala.planning.trace import COMPUTE, NETWORK, trace

HALF = Sends(send_s=0.5, exchange_s=0.5, exposed=1.0)


@pytest.fixture
def played() -> Timeline:
    """Two ranks, two micro-batches: forward 1 s, backward 2 s, send 0.5 s; 10 and 20 bytes on the stages.

    Rank 0: F0 at 0, sent 1 to 1.5, F1 at 1; rank 1: F0 at 1.5, B0 at 2.5. From 4.5 to 5 F1 goes one way, B0
    the other; rank 0: B0 at 5; rank 1: F1 at 5, B1 at 6, sent 8 to 8.5.
    """
    plan = Plan(schedule=Schedule.ONE_F_ONE_B, pp=2, micro_batches=2)
    return Timeline(
        plan=plan,
        spans=play(plan, np.array([[1.0, 1.0], [2.0, 2.0], [0.0, 0.0]]), HALF),
        phases=(
            Phase("gradient_sync", 10.5, 11.0),
            Phase("optimizer", 11.0, 11.0),
            Phase("overhead", 11.0, 12.0),
        ),
        pipeline_s=10.5,
        step_s=12.0,
        bubble_share=(0.1, 0.2),
        peak_in_flight=(2.0, 1.0),
        peak_kept_bytes=(20.0, 20.0),
        kept_bytes=(10.0, 20.0),
    )


def bars(played: Timeline, rank: int, thread: int) -> list[tuple[str, float, float]]:
    """Name, start and end in seconds of the bars on one thread."""
    return [
        (event["name"], event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6)
        for event in trace(played)["traceEvents"]
        if event["ph"] == "X" and (event["pid"], event["tid"]) == (rank, thread)
    ]


def test_events_have_what_the_format_asks_for(played: Timeline):
    content = trace(played)

    assert set(content) == {"traceEvents", "displayTimeUnit", "metadata"}
    assert content["displayTimeUnit"] == "ms"
    for event in content["traceEvents"]:
        assert event["ph"] in {"X", "C", "M"}
        assert {"name", "ph", "pid", "tid", "ts"} <= set(event)
        assert event["ts"] >= 0
        assert event["ph"] != "X" or event["dur"] >= 0
        assert event["ph"] != "C" or all(isinstance(value, float) for value in event["args"].values())


def test_compute_thread_has_tasks_and_then_the_phases(played: Timeline):
    assert bars(played, 1, COMPUTE) == [
        ("F0", 1.5, 2.5),
        ("B0", 2.5, 4.5),
        ("F1", 5.0, 6.0),
        ("B1", 6.0, 8.0),
        ("overhead", 11.0, 12.0),
    ]


def test_network_thread_has_what_the_rank_receives(played: Timeline):
    assert bars(played, 1, NETWORK) == [
        ("receive for F0", 1.0, 1.5),
        ("receive for F1", 4.5, 5.0),
        ("gradient sync", 10.5, 11.0),
    ]


def test_bars_of_one_thread_do_not_overlap(played: Timeline):
    for rank in range(2):
        for thread in (COMPUTE, NETWORK):
            own = bars(played, rank, thread)
            assert all(earlier[2] <= later[1] for earlier, later in pairwise(own))


def test_counter_rises_with_forward_and_falls_after_backward(played: Timeline):
    counts = [
        (event["ts"] / 1e6, event["args"]["bytes"])
        for event in trace(played)["traceEvents"]
        if event["ph"] == "C" and event["pid"] == 0
    ]

    # F0 and F1 keep 10 bytes each until B0 and B1 have ended
    assert [held for _, held in counts] == [10.0, 20.0, 10.0, 0.0]
    assert [when for when, _ in counts] == sorted(when for when, _ in counts)


def test_every_rank_and_thread_has_a_name(played: Timeline):
    named = {
        (event["pid"], event["tid"], event["args"]["name"])
        for event in trace(played)["traceEvents"]
        if event["name"] == "thread_name"
    }

    assert named == {(0, 0, "compute"), (0, 1, "network"), (1, 0, "compute"), (1, 1, "network")}


def test_kinds_have_colours_of_their_own(played: Timeline):
    colours = {
        event["cat"]: event["cname"]
        for event in trace(played)["traceEvents"]
        if event.get("cat") in {"F", "B"}
    }

    assert len(set(colours.values())) == 2
