"""Kills a random rank at a random moment, again and again, every other time while a checkpoint is written.

`python kills.py FOLDER KILLS [RANKS]`; prints what happened as one JSON line. Run it with more kills by hand.
"""

import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from forked import on_ranks

from escala.training.checkpoint.folders import PARTIAL, latest
from escala.training.launch import start

PATIENCE_S = 120


class Killer(threading.Thread):
    """Waits until a start has made a step, kills one of its ranks, and notes what was whole by then."""

    def __init__(self, folder: Path, kills: int, ranks: int) -> None:
        super().__init__(daemon=True)
        self.folder, self.kills, self.ranks = folder, kills, ranks
        self.choice, self.seen, self.fault = random.Random(kills), [], ""

    def run(self) -> None:
        try:
            for place in range(self.kills):
                self.seen.append(self.kill(place))
            self.steps(self.kills, 4)
        except TimeoutError as late:
            self.fault = str(late)
        (self.folder / "end").touch()

    def kill(self, place: int) -> dict[str, Any]:
        self.steps(place, 2)
        time.sleep(self.choice.uniform(0, 1.5))
        if place % 2:
            wait_for(lambda: any(self.checkpoints().glob(f"*{PARTIAL}")), "a save")
            time.sleep(self.choice.uniform(0, 0.05))
        rank = self.choice.randrange(self.ranks)
        last = self.steps(place, 2)
        whole = latest(self.checkpoints())
        os.kill(int((self.folder / f"pid-{place}-{rank}").read_text()), signal.SIGKILL)
        is_saving = any(self.checkpoints().glob(f"*{PARTIAL}"))
        step = int(whole.name.removeprefix("step-")) if whole else 0
        return {"rank": rank, "last": last, "whole": step, "is_saving": is_saving}

    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def steps(self, place: int, least: int) -> int:
        """The last step that a start has made, once it has made so many."""
        path = self.folder / f"steps-{place}-0.jsonl"
        pids = [self.folder / f"pid-{place}-{rank}" for rank in range(self.ranks)]
        ready = lambda: all(each.exists() for each in pids) and path.read_text().count("\n") > least  # noqa: E731
        wait_for(ready, f"steps of start {place + 1}")
        return json.loads(path.read_text().splitlines()[-1])["step"]


def wait_for(ready: Any, what: str) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not ready():
        if time.monotonic() > until_s:
            raise TimeoutError(f"{what} did not come in {PATIENCE_S} s")
        time.sleep(0.005)


def whole_run(ranks: int, steps: int) -> list[float]:
    """The losses of a run that nobody kills."""

    def work(rank: int) -> list[float]:
        from planned import Run

        from parallel.oracle import plan

        return Run(plan(dp=ranks, zero=3, reshard=True, shard=ranks)).train(steps)

    return on_ranks(ranks, work)[0]


if __name__ == "__main__":
    folder, kills, ranks = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if sys.argv[3:] else 2
    killer, told = Killer(folder, kills, ranks), []
    killer.start()
    began_s = time.monotonic()
    work = {"folder": folder / "run", "restarts": 2 * kills, "tell": told.append}
    start(ranks, "kill_work:train", [str(folder)], **work)
    killer.join()
    noted = [
        [json.loads(line) for line in (folder / f"steps-{place}-0.jsonl").read_text().splitlines()]
        for place in range(kills + 1)
    ]
    last = noted[-1][-1]["step"]
    print(
        json.dumps(
            {
                "kills": killer.seen,
                "fault": killer.fault,
                "told": told,
                "starts": noted,
                "whole": whole_run(ranks, last),
                "s": round(time.monotonic() - began_s),
            }
        )
    )
