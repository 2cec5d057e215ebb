"""Save on four ranks, resume under other layouts; prints what was seen as one JSON line."""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
from decoder import Run
from forked import on_ranks

from escala.errors import EscalaError
from escala.training.checkpoint import Checkpoints, latest, read_facts


def four(folder: Path) -> Any:
    def work(rank: int) -> Any:
        run, seen = Run("fsdp"), {}
        seen["whole"] = run.train(6)
        run = Run("fsdp")
        with Checkpoints(folder / "sync") as checkpoints:
            run.train(3, checkpoints, at=3)
        run = Run("fsdp")
        with Checkpoints(folder / "async", is_async=True) as checkpoints:
            seen["while saving"] = run.train(6, checkpoints, at=3)[3:]
        for kind, source in (("tensor", "sync"), ("pipeline", "sync"), ("fsdp", "async")):
            run = Run(kind)
            seen[f"notes of {kind}"] = run.resume(latest(folder / source))
            with Checkpoints(folder / kind) as checkpoints:
                seen[kind] = run.train(6, checkpoints, at=5)
        for source in ("tensor", "pipeline"):
            run = Run("fsdp")
            run.resume(latest(folder / source))
            seen[f"fsdp after {source}"] = run.train(6)
        return seen

    return on_ranks(4, work)


def two(folder: Path) -> Any:
    def work(rank: int) -> Any:
        seen: dict[str, Any] = {}
        run = Run("fsdp")
        seen["notes"] = run.resume(latest(folder / "sync"))
        seen["fsdp"] = run.train(6)
        seen["dropped"] = Run("fsdp", dropout=0.2).train(4)
        run = Run("fsdp", dropout=0.2)
        with Checkpoints(folder / "dropout") as checkpoints:
            run.train(2, checkpoints, at=2)
        torch.manual_seed(99)
        run = Run("fsdp", dropout=0.2)
        seen["notes of dropout"] = run.resume(latest(folder / "dropout"))
        seen["dropped again"] = run.train(4)
        seen["wrong optimizer"] = refused(lambda: Run("fsdp", optimizer=torch.optim.SGD), folder)
        return seen

    return on_ranks(2, work)


def refused(build: Any, folder: Path) -> str:
    try:
        build().resume(latest(folder / "sync"))
    except EscalaError as error:
        return str(error)
    return "nothing was refused"


if __name__ == "__main__":
    place = Path(sys.argv[1])
    seen = {"four": four(place), "two": two(place)}
    seen["facts"] = {"ranks": read_facts(latest(place / "sync")).ranks}
    print(json.dumps(seen))
