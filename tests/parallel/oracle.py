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
from dataclasses import dataclass, field, replace
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

    `is_wrong` plants a fault: data-parallel ranks learn from the same samples. `allowed` are differences of
    "loss", "weights", or "norm" (relative) where they are not the tolerance.
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
    choices: dict[str, Any] = field(default_factory=dict, compare=False)
    tolerance: float = EXACT
    allowed: dict[str, float] = field(default_factory=dict, compare=False)
    watches_parts: bool = False


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
        "PYTHONPATH": os.pathsep.join([str(src), str(here), os.environ.get("PYTHONPATH", "")]),
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
    allowed = dict.fromkeys(("loss", "norm", "weights", "parts"), case.tolerance) | case.allowed
    for what, most in allowed.items():
        assert found[what] <= most, f"{case.name}: {what} differs by {found[what]:.1e}; {found}"


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
    dist.barrier()  # who ends while the first rank still compares would end the whole job
    dist.destroy_process_group()


def _compared(case: Case) -> dict[str, Any]:
    import torch.distributed as dist

    from escala.errors import EscalaError
    from escala.training.layouts import difference, far

    try:
        outcomes, weights = _parallel(case)
    except EscalaError as error:
        return {"error": str(error)}
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.gather_object((outcomes, weights), everyone if dist.get_rank() == 0 else None)
    if dist.get_rank() != 0:
        return {}
    told, weights = _alone(_bare(case))
    ranks = [([(each.loss, each.gradient_norm) for each in ours], held) for ours, held in everyone]
    found = difference(ranks, [(loss, norm) for loss, norm, _ in told], weights)
    pairs = [pair for ours, _ in everyone for pair in zip(ours, told, strict=True)]
    return {
        "loss": found.loss,
        "norm": found.norm,
        "weights": found.weights,
        "parts": max(
            far(ours.part_squared_norm / part, 1.0) if part else 0.0 for ours, (_, _, part) in pairs
        ),
        "losses": [loss for loss, _, _ in told],
    }


def _parallel(case: Case) -> tuple[list[Any], dict[str, Any]]:
    """Outcomes of a rank's steps, and the weights it holds, whole."""
    import torch

    from escala.model.workload import OptimizerKind
    from escala.parallel.mesh import DATA, mesh_of
    from escala.parallel.optimizers import optimizer_of
    from escala.parallel.parallelize import parallelize
    from escala.parallel.step import Step, evaluate
    from escala.training.layouts import held_weights
    from parallel.models import model

    mesh = mesh_of(case.plan, torch.device("cpu"))
    parallel = parallelize(model(case.kind), case.plan, mesh, **case.choices)
    optimizer = optimizer_of(
        parallel, OptimizerKind(case.optimizer), rate=case.rate, **_options(case.optimizer)
    )
    step = Step(parallel, optimizer, clip_norm=case.clip_norm, watches_parts=case.watches_parts)
    rows = case.rows // mesh.size(*DATA)
    first = 0 if case.is_wrong else mesh.place(*DATA) * rows
    batches = [batch(case.kind, case.rows, place, case.has_documents) for place in range(case.steps)]
    told = evaluate(parallel, batches[0].rows(first, rows)) if case.plan.pp > 1 else None
    outcomes = [step(each.rows(first, rows), _rate(place)) for place, each in enumerate(batches)]
    assert told is None or abs(told - outcomes[0].loss) <= case.tolerance, (told, outcomes[0].loss)
    return outcomes, held_weights(parallel)


def _options(optimizer: str) -> dict[str, Any]:
    return {"eps": EPSILON, "weight_decay": 0.1} if optimizer == "adamw" else {"momentum": 0.9}


def _rate(step: int) -> float:
    """A schedule: the rate halves for four steps, then again from the start."""
    return 0.5 ** (step % 4)


@cache
def _alone(case: Case) -> Any:
    """Losses, norms and weights of a bare loop over the whole batch in one process."""
    import torch

    from escala.parallel.huggingface import adopt
    from escala.parallel.parts import parts_of
    from parallel.models import model

    module = model(case.kind)
    if case.has_documents:
        adopt(module, parts_of(module))
    build = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[case.optimizer]
    update = build(module.parameters(), lr=case.rate, foreach=True, **_options(case.optimizer))
    told = []
    for step in range(case.steps):
        loss, part = _learn(module, case, step)
        norm = torch.nn.utils.clip_grad_norm_(module.parameters(), case.clip_norm or float("inf"))
        told.append((loss, norm.item(), part))
        update.param_groups[0]["lr"] = case.rate * _rate(step)
        update.step()
        update.zero_grad()
    return told, {name: each.detach() for name, each in _named(module)}


def _named(module: Any) -> Any:
    """Parameters by name; one that two parts share by both names."""
    return module.named_parameters(remove_duplicate=False)


def _bare(case: Case) -> Case:
    """What of a case decides training in one process: the plan tells only into how many parts it is taken.

    A batch norm sees the samples of one forward pass, so they must be the same ones. Gradients of parts are
    those of ranks under DDP, of ranks and micro-batches under FSDP.
    """
    from parallel.models import has_batch_norm

    is_finest = has_batch_norm(case.kind) or (case.watches_parts and case.plan.zero >= 2)
    parts = case.plan.dp * (case.plan.micro_batches if is_finest else 1)
    plain = Plan(micro_batches=parts if is_finest or case.watches_parts else 1)
    return replace(case, name="", plan=plain, tolerance=EXACT, is_wrong=False)


def _learn(module: Any, case: Case, step: int) -> tuple[float, float]:
    """Backward of the mean loss of a step; that, and the mean squared norm of its parts' gradients."""
    given, parts = batch(case.kind, case.rows, step, case.has_documents), case.plan.micro_batches
    rows, total, squares = case.rows // parts, 0.0, 0.0
    for first in range(0, case.rows, rows):
        mean = _loss_sum(module, case, given.rows(first, rows)) / (given.targets != IGNORED).sum()
        before = [None if each.grad is None else each.grad.clone() for each in module.parameters()]
        mean.backward()
        total += mean.item()
        squares += _squared_change(module, before) * parts**2 / parts
    return total, squares if case.watches_parts else 0.0


def _loss_sum(module: Any, case: Case, part: Any) -> Any:
    from torch.nn.functional import cross_entropy

    packed = {"position_ids": part.positions, "documents": part.documents} if case.has_documents else {}
    answer = module(part.inputs, **packed)
    logits = getattr(answer, "logits", answer).flatten(0, -2)
    return cross_entropy(logits, part.targets.flatten(), ignore_index=IGNORED, reduction="sum")


def _squared_change(module: Any, before: list[Any]) -> float:
    """Squared norm of what was added to the gradients."""
    pairs = [(each.grad, old) for each, old in zip(module.parameters(), before, strict=True)]
    changes = [new if old is None else new - old for new, old in pairs if new is not None]
    return sum(float(each.double().square().sum()) for each in changes)


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
