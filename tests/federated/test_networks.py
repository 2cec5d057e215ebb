"""Real Flower on hosts with links of two speeds: bytes, lost clients, rounds, as the event engine says."""

from pathlib import Path

import pytest

from netlab.hosts import missing

pytestmark = [pytest.mark.optional, pytest.mark.slow]
pytest.importorskip("flwr")

from escala.federated.transport import FLOWER  # noqa: E402
from federated.truth import NODES, Costs, Setting, compared  # noqa: E402

ROUNDS, DEADLINE_S = 3, 9.0
COSTS = Costs(transport=FLOWER, latency_s=0.1, start_s=0.3, server_s=0.2)


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
