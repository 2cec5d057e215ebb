"""The oracle of layouts: training under a plan gives the losses, norms and weights of one plain process.

Tests list cases; one torchrun job a world size runs them all, since starting it costs more than they do. In
the job rank 0 trains the same module from the same seed on the whole batch by a bare loop of PyTorch, and the
ranks together by the plan; what differs comes back as JSON lines.
"""

import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from escala.model.plan import Plan, Precision

EXACT: Final = 5e-6
"""Largest difference of losses and weights in fp32: sums in another order, nothing else."""
EPSILON: Final = 1e-6
"""Of AdamW, in both loops: a gradient of 0 that rounding makes 1e-10 must not move a weight."""
IGNORED: Final = -100


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One module under one plan: what to train, how, and how far it may be from one process.

    `is_wrong` plants a fault: data-parallel ranks learn from the same samples.
    """

    name: str
    kind: str
    plan: Plan
    rows: int = 8
    steps: int = 4
    optimizer: str = "adamw"
    rate: float = 1e-3
    clip_norm: float | None = 0.5
    has_documents: bool = False
    is_wrong: bool = False
    choices: dict[str, Any] = field(default_factory=dict)
    tolerance: float = EXACT


def plan(**fields: Any) -> Plan:
    """A plan in fp32 unless another format is asked for."""
    return Plan(**{"precision": Precision.FP32, **fields})


def differences(cases: Sequence[Case], ranks: int, folder: Path, timeout_s: float = 240) -> dict[str, Any]:
    """Run cases on ranks: by name what differs, `{"loss": ..., "weights": ..., "norm": ...}` or an error."""
    (folder / "cases").write_bytes(pickle.dumps(list(cases)))
    here, src = Path(__file__).parents[1], Path(__file__).parents[2] / "src"
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
        "-m", "parallel.oracle", str(folder),
    ]  # fmt: skip
    known = {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{src}{os.pathsep}{here}",
        "TORCHINDUCTOR_CACHE_DIR": str(folder),
    }
    job = subprocess.Popen(
        command, env=os.environ | known, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        shown, _ = job.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, 9)
        shown = f"no end after {timeout_s} s\n" + job.communicate()[0]
    (folder / "output").write_text(shown)
    lines = (folder / "results").read_text().splitlines() if (folder / "results").exists() else []
    found = {line["name"]: line for line in map(json.loads, lines)}
    return {each.name: found.get(each.name, {"error": shown[-6000:]}) for each in cases}


def judge(found: dict[str, Any], case: Case) -> None:
    """Fail with what the job said, or where a loss, a norm or a weight is too far from one process."""
    assert "error" not in found, f"{case.name}: {found['error']}"
    for what in ("loss", "norm", "weights"):
        assert found[what] <= case.tolerance, f"{case.name}: {what} differs by {found[what]:.1e}; {found}"


def main(folder: Path) -> None:
    """Run the cases of a folder; one process of the job."""
    import torch
    import torch.distributed as dist

    torch.manual_seed(0)
    dist.init_process_group("gloo")
    for case in pickle.loads((folder / "cases").read_bytes()):
        began = time.perf_counter()
        found = _compared(case) | {"name": case.name, "s": round(time.perf_counter() - began, 2)}
        if dist.get_rank() == 0:
            with (folder / "results").open("a") as file:
                file.write(json.dumps(found) + "\n")
    dist.destroy_process_group()


def _compared(case: Case) -> dict[str, Any]:
    import torch.distributed as dist

    from escala.errors import EscalaError

    try:
        outcomes, weights = _parallel(case)
    except EscalaError as error:
        return {"error": str(error)}
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.gather_object((outcomes, weights), everyone if dist.get_rank() == 0 else None)
    if dist.get_rank() != 0:
        return {}
    losses, norms, whole = _alone(
        case.kind, case.rows, case.steps, case.optimizer, case.rate, case.clip_norm, case.has_documents
    )
    names = set().union(*(set(held) for _, held in everyone))
    assert names == set(whole), f"names differ: {sorted(names ^ set(whole))[:8]}"
    return {
        "loss": max(
            _far(each.loss, loss) for told, _ in everyone for each, loss in zip(told, losses, strict=True)
        ),
        "norm": max(
            _far(each.gradient_norm, norm)
            for told, _ in everyone
            for each, norm in zip(told, norms, strict=True)
        ),
        "weights": max(
            (each - whole[name]).abs().max().item() for _, held in everyone for name, each in held.items()
        ),
        "losses": losses,
    }


def _far(ours: float, alone: float) -> float:
    return abs(ours - alone) if ours == ours else float("inf")


def _parallel(case: Case) -> tuple[list[Any], dict[str, Any]]:
    """Outcomes of a rank's steps, and the weights it holds, whole."""
    import torch
    from torch.distributed.tensor import DTensor

    from escala.model.workload import OptimizerKind
    from escala.parallel.mesh import DATA, mesh_of
    from escala.parallel.optimizers import optimizer_of
    from escala.parallel.parallelize import parallelize
    from escala.parallel.pieces import whole
    from escala.parallel.step import Step
    from parallel.models import model

    mesh = mesh_of(case.plan, torch.device("cpu"))
    parallel = parallelize(model(case.kind), case.plan, mesh, **case.choices)
    optimizer = optimizer_of(
        parallel, OptimizerKind(case.optimizer), rate=case.rate, **_options(case.optimizer)
    )
    step = Step(parallel, optimizer, clip_norm=case.clip_norm)
    rows = case.rows // mesh.size(*DATA)
    first = 0 if case.is_wrong else mesh.place(*DATA) * rows
    batches = [batch(case.kind, case.rows, place, case.has_documents) for place in range(case.steps)]
    outcomes = [step(each.rows(first, rows), _rate(place)) for place, each in enumerate(batches)]
    held = {name: each.detach() for chunk in parallel.chunks for name, each in chunk.named_parameters()}
    return outcomes, {name: whole(each) if isinstance(each, DTensor) else each for name, each in held.items()}


def _options(optimizer: str) -> dict[str, Any]:
    return {"eps": EPSILON, "weight_decay": 0.1} if optimizer == "adamw" else {"momentum": 0.9}


def _rate(step: int) -> float:
    """A schedule: the rate halves."""
    return 0.5**step


@cache
def _alone(
    kind: str,
    rows: int,
    steps: int,
    optimizer: str,
    rate: float,
    clip_norm: float | None,
    has_documents: bool,
) -> Any:
    """Losses, norms and weights of a bare loop over the whole batch in one process."""
    import torch
    from torch.nn import functional

    from parallel.models import model

    module = model(kind)
    build = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[optimizer]
    update = build(module.parameters(), lr=rate, foreach=True, **_options(optimizer))
    losses, norms = [], []
    for step in range(steps):
        given = batch(kind, rows, step, has_documents)
        packed = {"position_ids": given.positions, "documents": given.documents} if has_documents else {}
        answer = module(given.inputs, **packed)
        logits = getattr(answer, "logits", answer)
        loss = functional.cross_entropy(
            logits.view(-1, logits.shape[-1]), given.targets.view(-1), ignore_index=IGNORED
        )
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(module.parameters(), clip_norm or float("inf")).item())
        update.param_groups[0]["lr"] = rate * _rate(step)
        update.step()
        update.zero_grad()
        losses.append(loss.item())
    return losses, norms, {name: each.detach() for name, each in module.named_parameters()}


def batch(kind: str, rows: int, step: int, has_documents: bool) -> Any:
    """The whole batch of a step: some targets are ignored, more of them in the first rows."""
    import torch

    from escala.parallel.batch import Batch
    from parallel.models import CLASSES, PIXELS, TOKENS, VOCABULARY, is_image

    made = torch.Generator().manual_seed(1000 + step)
    if is_image(kind):
        images = torch.randn(rows, 3, PIXELS, PIXELS, generator=made)
        return Batch(inputs=images, targets=torch.randint(CLASSES, (rows,), generator=made))
    tokens = torch.randint(VOCABULARY, (rows, TOKENS + 1), generator=made)
    targets = tokens[:, 1:].clone()
    for row in range(rows):
        targets[row, : max(TOKENS // 2 - row, 0)] = IGNORED
    documents, positions = _documents(rows, TOKENS) if has_documents else (None, None)
    return Batch(inputs=tokens[:, :-1], targets=targets, documents=documents, positions=positions)


def _documents(rows: int, tokens: int) -> tuple[Any, Any]:
    """Two documents a row, cut at another place in each."""
    import torch

    place = torch.arange(tokens).expand(rows, tokens)
    cut = (torch.arange(rows) % (tokens - 4) + 2)[:, None]
    return (place >= cut).int(), torch.where(place >= cut, place - cut, place)


if __name__ == "__main__":
    from parallel import oracle

    oracle.main(Path(sys.argv[1]))
