"""Several ranks in a test: one process that loads torch, and its forks. Knows gloo and a file, no ports."""

import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATIENCE_S = 240


def run_job(script: Path, *arguments: str, paths: tuple[str, ...] = ()) -> dict[str, Any]:
    """Run a job as a process of its own; the result is the JSON object of its last line."""
    known = (str(ROOT / "src"), str(ROOT / "tests"), str(Path(__file__).parent), *paths)
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(known), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(script), *arguments],
            capture_output=True,
            text=True,
            env=settings,
            timeout=PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise AssertionError(f"{script.name} hung:\n{late.stdout}\n{late.stderr}") from None
    assert done.returncode == 0, f"{script.name} failed:\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


def on_ranks(ranks: int, work: Callable[[int], Any]) -> list[Any]:
    """What `work(rank)` returns on each of so many forks of this process, which form a group."""
    with tempfile.TemporaryDirectory() as folder:
        children = [_fork(rank, ranks, work, Path(folder)) for rank in range(ranks)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        if any(codes):
            raise SystemExit(f"ranks ended with {codes}")
        return [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(ranks)]


def _fork(rank: int, ranks: int, work: Callable[[int], Any], folder: Path) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        _work(rank, ranks, work, folder)
        code = 0
    except BaseException:  # a fork must never return into the code of its parent
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _work(rank: int, ranks: int, work: Callable[[int], Any], folder: Path) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    answer = work(rank)
    (folder / f"{rank}.json").write_text(json.dumps(answer))
    dist.barrier()
    dist.destroy_process_group()
