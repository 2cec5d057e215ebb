"""Twenty random faults in a row against one federated run: `python benchmarks/federated_faults.py --seed 1`.

Each strikes a leg of three rounds of `escala federate run` (two nodes, SCAFFOLD, TLS over loopback) at a
random moment. The leg has to end with 0 and all its rounds, or to say that it did not and to resume; its
weights have to be those of an undisturbed run after every round, bit for bit. Ends with 1 if anything else
happened. As root on Linux, with the extra `federated`; about a minute a fault.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np

from federated.faults import FAULTS, Outcome, drawn, inside, struck

INSIDE = "ESCALA_IN_NAMESPACES"


def row(each: Outcome) -> str:
    codes = " → ".join(map(str, (each.code, *each.resumed)))
    again = ", ".join(each.restarted) or "-"
    wrong = "; ".join(each.wrong).replace("\n", " ") or "none"
    return (
        f"| {each.number} | {each.fault} | {each.at_round} | {codes} | {again} | {each.rounds}"
        f" | {each.took_s:.0f} | {wrong} |"
    )


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--faults", type=int, default=20)
    options.add_argument("--only", action="append", choices=sorted(FAULTS), help="these, in this order")
    given = options.parse_args()
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        command = inside([sys.executable, *sys.argv])
        os.execvp(command[0], command)
    paths = [str(Path(__file__).parents[1] / each) for each in ("tests", "src")]
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])
    print("| # | fault | after round | exit codes | started again | rounds | s | wrong |")
    print("|---|---|---|---|---|---|---|---|")
    wrong, draws = 0, np.random.default_rng(given.seed)
    with tempfile.TemporaryDirectory() as place:
        for each in struck(given.only or drawn(given.faults, draws), draws, Path(place)):
            print(row(each), flush=True)
            wrong += bool(each.wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
