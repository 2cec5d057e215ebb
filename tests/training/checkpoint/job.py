"""Save on two ranks while training goes on, resume with dropout and on one; prints it as one JSON line."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from decoder import Run
from forked import on_ranks

from escala.errors import EscalaError
from escala.training.checkpoint import Checkpoints, latest

DROPOUT = 0.2


def two(folder: Path) -> list[Any]:
    def work(rank: int) -> Any:
        seen: dict[str, Any] = {"whole": Run().train(6), "dropped": Run(DROPOUT).train(4)}
        with Checkpoints(folder / "plain", is_async=True) as checkpoints:
            seen["while saving"] = Run().train(6, checkpoints, at=3)
        with Checkpoints(folder / "dropout") as checkpoints:
            Run(DROPOUT).train(2, checkpoints, at=2)
        run = Run()
        run.resume(latest(folder / "plain"))
        seen["resumed"] = run.train(6)
        run = Run(DROPOUT)
        torch.manual_seed(99)
        seen["notes"] = run.resume(latest(folder / "dropout"))
        seen["dropped again"] = run.train(4)
        seen["wrong optimizer"] = refused(Run(optimizer=torch.optim.SGD), folder / "plain")
        return seen

    return on_ranks(2, work)


def one(folder: Path) -> list[Any]:
    def work(rank: int) -> Any:
        run = Run()
        notes = run.resume(latest(folder / "plain"))
        return {"notes": notes, "resumed": run.train(6)}

    return on_ranks(1, work)


def refused(run: Run, folder: Path) -> str:
    try:
        run.resume(latest(folder))
    except EscalaError as error:
        return str(error)
    return "nothing was refused"


if __name__ == "__main__":
    place = Path(sys.argv[1])
    print(json.dumps({"two": two(place), "one": one(place)}))
