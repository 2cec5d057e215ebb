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
PATIENCE_S = 480


def run_job(script: Path, *arguments: str, paths: tuple[str, ...] = ()) -> dict[str, Any]:
    """Run a job as a process of its own; the result is the JSON object of its last line."""
    known = (str(ROOT / "src"), str(ROOT / "tests"), str(Path(__file__).parent), *paths)
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(known), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", str(script), *arguments]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=settings)
    out, err = finished(job)
    assert job.returncode == 0, f"{script.name} failed:\n{out}\n{err}"
    return json.loads(out.splitlines()[-1])


def finished(job: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process printed; one that hangs is ended, and what it printed is shown."""
    try:
        return job.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        job.kill()  # its ranks end with it
        out, err = job.communicate()
        raise AssertionError(f"it hung:\n{out}\n{err}") from None


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

    from escala.measurement.job.orphan import end_with_launcher

    end_with_launcher()
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    answer = work(rank)
    (folder / f"{rank}.json").write_text(json.dumps(answer))
    dist.barrier()
    dist.destroy_process_group()
