"""Real Flower on hosts with links of two speeds: bytes, lost clients, rounds, as the event engine says."""

from pathlib import Path
from typing import Any

import pytest

from netlab.hosts import missing

pytestmark = pytest.mark.optional
pytest.importorskip("flwr")

from escala.federated.roundrecord import Round  # noqa: E402
from escala.federated.transport import FLOWER  # noqa: E402
from federated.truth import NODES, Costs, Seen, Setting, compared, line, times  # noqa: E402

ROUNDS, DEADLINE_S = 3, 9.0
COSTS = Costs(transport=FLOWER, latency_s=0.1, start_s=0.3, server_s=0.2)


@pytest.mark.slow
def test_slow_nodes_miss_the_deadline_and_every_message_has_the_bytes_that_were_predicted(tmp_path: Path):
    why = missing()
    if why:
        pytest.skip(why)
    # at 2 Mbit/s 1 MB takes 4 s down, then 20 samples of 0.4 s: 12 s; at 20 Mbit/s 0.4 s and 0.4 s
    setting = Setting(
        name="late",
        megabits_per_s=(20, 2),
        sample_s=(0.02, 0.4),
        shapes=((500, 500), (500,)),
        rules={"round_deadline_s": DEADLINE_S},
    )

    rows = {row.what: row for row in compared(setting, COSTS, tmp_path / "run", ROUNDS)}

    assert rows["lost a round"].predicted == pytest.approx(NODES / 2)
    assert rows["lost a round"].measured == NODES / 2
    assert rows["payload down, B"].predicted == rows["payload down, B"].measured
    assert rows["payload up, B"].predicted == rows["payload up, B"].measured


def visit(client: int, start_s: float) -> list[dict[str, Any]]:
    """A piece of work: received after 0.2 s, begun after 0.5 s, trained for 1 s, 0.1 s back, 0.4 s sent."""
    at_s = {"receiving": 0.0, "received": 0.2, "sending": 1.6, "sent": 2.0}
    events = [{"what": what, "client": client, "at_s": start_s + after} for what, after in at_s.items()]
    trained = {"what": "train", "client": client, "begun_s": start_s + 0.5, "ended_s": start_s + 1.5}
    return [*events, trained]


def test_a_probe_finds_the_seconds_that_it_was_given():
    # work ends at 2.0; looks of 0.1 s at 2.0 and, after 3 s, at 5.1: the next message is there at 5.2
    visits = [each for client in range(NODES) for at_s in (0.0, 5.2) for each in visit(client, at_s)]
    scores = [{"what": "score", "client": -1, "begun_s": at_s, "ended_s": at_s} for at_s in (2.5, 7.9)]
    rounds = [
        Round(round=at, cohort=(), returned=(), down_bytes=0, up_bytes=0, start_s=start_s, round_s=length_s)
        for at, start_s, length_s in ((1, 0.0, 2.5), (2, 2.6, 5.3))
    ]

    found = times(Seen(rounds=tuple(rounds), stamps=(*visits, *scores), down_bytes=0, up_bytes=0))

    expected = {"look": 0.1, "down": 0.2, "start": 0.5, "back": 0.1, "up": 0.4}
    assert {name: found[name] for name in expected} == {
        name: pytest.approx([each] * NODES) for name, each in expected.items()
    }
    # the last reply had been sent at 7.2, its round was scored at 7.9; the next began 0.1 s after the first
    assert found["server"] == pytest.approx([0.7])
    assert found["between"] == pytest.approx([0.1])


def test_two_sizes_of_messages_give_what_an_empty_one_and_a_byte_of_payload_cost():
    assert line([1000.0, 9000.0], [3100.0, 11500.0]) == pytest.approx((2050.0, 1.05))
