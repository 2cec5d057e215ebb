"""The event engine beside real Flower over links of two speeds: `python benchmarks/federated_networks.py`.

Five hosts (network namespaces): a server, two fast nodes, two slow ones. First a probe over links that hold
nothing up gives what a message and a client's process cost here; with that every setting is predicted, then
run. Told are predicted, measured and error of a round's seconds, clients lost, payload and bytes on the wire.
Rounds are timed from the second on; where the machine stalled, its seconds say nothing. As root on Linux,
with the extra `federated`; about ten minutes.
"""

import argparse
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from escala.federated.training import Codec
from federated.truth import Setting, compared, probed
from netlab.hosts import missing

MEGABYTE = ((500, 500), (500,))
SETTINGS = (
    Setting(name="20 and 4 Mbit/s", megabits_per_s=(20, 4), sample_s=(0.02, 0.1), shapes=MEGABYTE),
    Setting(name="10 and 2 Mbit/s", megabits_per_s=(10, 2), sample_s=(0.02, 0.1), shapes=MEGABYTE),
    Setting(
        name="10 and 2 Mbit/s, int8 up",
        megabits_per_s=(10, 2),
        sample_s=(0.02, 0.1),
        shapes=MEGABYTE,
        rules={"codec_up": Codec(kind="int8")},
    ),
    Setting(
        name="20 and 2 Mbit/s, 9 s at most",
        megabits_per_s=(20, 2),
        sample_s=(0.02, 0.4),
        shapes=MEGABYTE,
        rules={"round_deadline_s": 9.0},
    ),
    Setting(
        name="20 and 4 Mbit/s, first 2 of 4",
        megabits_per_s=(20, 4),
        sample_s=(0.02, 0.1),
        shapes=MEGABYTE,
        rules={"clients_per_round": 2, "over_selection": 2.0},
    ),
)


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--rounds", type=int, default=8)
    options.add_argument("--probe-rounds", type=int, default=6)
    options.add_argument("--settings", type=int, default=len(SETTINGS), help="only the first of them")
    given = options.parse_args()
    why = missing()
    if why:
        print(f"no lab here: {why}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as place:
        costs = probed(Path(place), MEGABYTE, given.probe_rounds)
        for name, value in {**asdict(costs), **asdict(costs.transport)}.items():
            if name != "transport":
                print(f"{name}: {value:.4g}")
        print("| setting | what | predicted | measured | error | machine stalled, s |")
        print("|---|---|---|---|---|---|", flush=True)
        for at, setting in enumerate(SETTINGS[: given.settings]):
            for row in compared(setting, costs, Path(place) / str(at), given.rounds):
                print(
                    f"| {row.setting} | {row.what} | {row.predicted:,.2f} | {row.measured:,.2f}"
                    f" | {row.error:+.1%} | {row.stalled_s:.1f} |",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
