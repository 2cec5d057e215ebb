"""A training run from request to document: the job as a file, the ranks that run it, what it came to.

Measures and predicts nothing itself.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from escala.errors import InvalidInput, spoken
from escala.formats.files import read_keys
from escala.formats.record_keys import keys_of, record_of, table_of
from escala.measurement.bench.device import present_kind
from escala.measurement.bench.place import refuse_elsewhere
from escala.measurement.bench.request import checked_kind, make_writable
from escala.measurement.job.request import QUIET_PROFILER, require_torch
from escala.model.estimate import estimate
from escala.model.freezing import frozen_words
from escala.model.lengths import is_full
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.rejects import Reject, describe
from escala.parallel.outer import Outer
from escala.report.pairs import write_pair
from escala.report.planfile import plan_document, plan_file_of
from escala.report.runfile import save_run
from escala.report.saved import chosen_plan
from escala.report.train_page import train_page
from escala.report.under import under
from escala.training.conclude import Trained
from escala.training.job import Choices, Decay, Job, Rate, Saving, Update
from escala.training.launch import Launcher, Place, nodes_of, place_of, refuse_other_size, start
from escala.training.launch.lock import only_run
from escala.training.launch.nodes import sbatch_script, submit, torchrun_line
from escala.training.sinks import LINES, checked_sinks, damage, read_lines
from escala.training.steprecord import StepRecord
from escala.wholefile import write_whole

JOB_SCHEMA: Final = "escala/train-job@1"
JOB, RUN, PAIR, RESULT, PAGE = "job.json", "run.json", "verified-run.json", "trained.json", "report.html"
WORK: Final = "escala.cli.train:ranked"
COMPRESSIONS: Final = ("none", "bf16", "fp16", "powersgd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A checked request: the job, the document of its plan, how its ranks are started."""

    job: Job
    plan_document: Mapping[str, Any]
    restarts: int
    resumes: bool


def asked_of(plan: str | None, given: Mapping[str, Any]) -> Asked:
    """What the options of `escala train` ask for."""
    file, row = chosen_plan(plan)
    problem, chosen = under(file.problem, given["calibration"]), file.plans[row]
    file = replace(file, problem=problem)
    refuse_unrunnable(problem, chosen)
    refuse_elsewhere(problem.cluster)
    choices = _choices(problem, chosen, given)
    job = Job(problem=problem, plan=chosen, folder=Path(given["out"]), choices=choices)
    return Asked(
        job=job,
        plan_document=plan_document(file, row),
        restarts=given["restarts"],
        resumes=given["resume"],
    )


TRIABLE: Final = Reject.MEMORY | Reject.HOST_MEMORY | Reject.HOST_LINK | Reject.OFFLOAD | Reject.ENGINE
"""Rules of a prediction, which a run may break."""


def refuse_unrunnable(problem: Problem, plan: Plan) -> None:
    """What breaks a rule is not run; what does not fit, or is not planned, may be tried."""
    broken = int(estimate(problem, Plans.of(plan)).reject[0])
    broken &= ~int(TRIABLE)
    if broken:
        raise InvalidInput(f"the plan cannot be run ({', '.join(describe(broken))}); plan again")
    if not is_full(problem.workload):
        how = problem.workload.lengths.batching
        raise InvalidInput(f"rows of {how} samples are planned but not run; plan with --batching packed")
    frozen = frozen_words(problem.workload.network)
    if frozen:
        raise InvalidInput(f"the plan freezes {frozen}, and escala train trains all; plan without --freeze")


def _choices(problem: Problem, plan: Plan, given: Mapping[str, Any]) -> Choices:
    steps = _steps(problem, plan, given)
    if given["warmup"] > steps:
        raise InvalidInput(
            f"--warmup {given['warmup']:,} is longer than the run of {steps:,} steps, whose rate would never "
            f"reach --lr; give {steps:,} at most"
        )
    return Choices(
        steps=steps,
        module=given["module"],
        data=given["data"],
        seed=given["seed"],
        device=checked_kind(given["device"]),
        trackers=checked_sinks(given["sink"]),
        rate=Rate(highest=given["lr"], warmup_steps=given["warmup"], decay=_word(Decay, given["decay"])),
        update=Update(
            weight_decay=given["weight_decay"],
            clip_norm=given["clip"] or None,
            compression=_among("--compress", given["compress"] or "none", COMPRESSIONS),
        ),
        saving=Saving(every_steps=given["save_every"], keep=given["keep"], is_async=given["async_save"]),
        outer=Outer(
            learning_rate=given["outer_lr"], momentum=given["outer_momentum"], fragments=given["fragments"]
        ),
        evaluate_every=given["eval_every"],
        is_observed=given["observe"],
        watches_noise=given["noise"],
    )


def _word(kind: type[Decay], given: str) -> Decay:
    return kind(_among("--decay", given, tuple(kind)))


def _among(option: str, given: str, allowed: tuple[str, ...]) -> str:
    if given.lower() not in allowed:
        raise InvalidInput(f"{option} {spoken(given)} is unknown; choose {', '.join(allowed)}")
    return given.lower()


def _steps(problem: Problem, plan: Plan, given: Mapping[str, Any]) -> int:
    """As many as are asked for, as are predicted to fill the minutes, or as the plan's tokens make."""
    if given["steps"] is not None and given["minutes"] is not None:
        raise InvalidInput("--steps and --minutes were given; give one of them")
    if given["steps"] is not None:
        return int(given["steps"])
    work = problem.workload
    if given["minutes"] is not None:
        step_s = float(estimate(problem, Plans.of(plan)).step_s[0])
        return max(int(np.ceil(60.0 * given["minutes"] / step_s)), 1)
    if work.total_tokens is None:
        raise InvalidInput("the plan has no number of tokens; give --steps, or --minutes")
    step_tokens = work.global_batch * (1 if work.network.is_image else work.sequence_tokens)
    return max(int(np.ceil(work.total_tokens / step_tokens)), 1)


@contextmanager
def begun(asked: Asked, tell: Callable[[str], None]) -> Iterator[Path]:
    """The job's file, written while no other run is in the folder, which stays so while this lasts."""
    make_writable(asked.job.folder, "--out")
    with only_run(asked.job.folder, tell):
        yield save_job(asked)


def tell_resumed(job: Job, tell: Callable[[str], None], *, is_asked: bool) -> None:
    """Tell in a line each what a person who goes on with a run should know before it begins."""
    require_torch()
    from escala.training.checkpoint import CHECKPOINTS, latest

    if is_asked and latest(job.folder / CHECKPOINTS) is None:
        tell(f"{job.folder} holds no whole checkpoint to go on from, so the run begins at step 1")
    for line in damage(job.folder):
        tell(line)


def save_job(asked: Asked) -> Path:
    """Write what is asked for into the run's folder, which ranks read and a resume compares."""
    folder = asked.job.folder
    make_writable(folder, "--out")
    path = folder / JOB
    _refuse_other(asked, path)
    write_whole(path, job_bytes(asked))
    return path


def job_bytes(asked: Asked) -> bytes:
    """The content of a job's file."""
    document = {
        "schema": JOB_SCHEMA,
        "plan": dict(asked.plan_document),
        "choices": keys_of(asked.job.choices),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _refuse_other(asked: Asked, path: Path) -> None:
    """A folder with a run is gone on with only if that is asked for."""
    if (asked.job.folder / LINES).exists() and not asked.resumes:
        raise InvalidInput(
            f"{asked.job.folder} holds a run already; add --resume to go on with it, "
            "or name another folder with -o"
        )


def read_job(path: str) -> tuple[Job, Mapping[str, Any]]:
    """The job that a file holds, and the document of its plan."""
    keys = read_keys(Path(path))
    if keys.get("schema") != JOB_SCHEMA:
        raise InvalidInput(
            f"{path}: schema is {spoken(keys.get('schema'))}; this escala reads '{JOB_SCHEMA}'"
        )
    document = table_of(keys.get("plan"), f"{path}: plan")
    file = plan_file_of(document, f"{path}: plan")
    choices = record_of(Choices, table_of(keys.get("choices"), f"{path}: choices"), f"{path}: choices")
    job = Job(problem=file.problem, plan=file.plans[0], folder=Path(path).parent, choices=choices)
    return job, document


def here() -> Place:
    """This process among the ranks that a launcher started, or alone."""
    return place_of(os.environ)


def is_rank(place: Place) -> bool:
    """Whether a launcher started this process as one of several."""
    return place.launcher is not Launcher.NONE


def start_here(asked: Asked, path: Path, as_json: bool, tell: Callable[[str], None]) -> None:
    """Start the ranks of the job on this machine, and wait for them."""
    tell_resumed(asked.job, tell, is_asked=asked.resumes)
    start_job(asked.job, path, asked.restarts, as_json, tell)


def start_job(job: Job, path: Path, restarts: int, as_json: bool, tell: Callable[[str], None]) -> None:
    """Start the ranks of a job by its file."""
    require_torch()
    refuse_elsewhere(job.problem.cluster)
    work = (str(path), "json" if as_json else "text")
    start(job.plan.devices, WORK, work, folder=job.folder, restarts=restarts, tell=tell)


def nodes_text(asked: Asked, path: Path, nodes: int, *, submits: bool) -> str:
    """What to run on so many nodes, or what sbatch said to it."""
    devices = asked.job.plan.devices
    if devices % nodes:
        raise InvalidInput(
            f"--nodes {nodes} does not divide the {devices} devices of the plan; choose a divisor"
        )
    shape = nodes_of(devices, devices // nodes, has_gpus=asked.job.choices.device != "cpu")
    command = ("-m", "escala", "train", "--job", str(path))
    if submits:
        return submit(sbatch_script(shape, command))
    return (
        f"On every node:\n\n{torchrun_line(shape, command)}\n\nWith Slurm:\n\n{sbatch_script(shape, command)}"
    )


def trained(
    job: Job,
    document: Mapping[str, Any],
    place: Place,
    told: Callable[[StepRecord], None],
    progress: Callable[[str, float], None],
) -> Trained | None:
    """Train as one rank; the document in the first one."""
    device = device_of(job, place)
    from escala.training.ready import Setting
    from escala.training.session import train

    return train(job, dict(document), Setting(device=device, place=place, told=told, progress=progress))


def device_of(job: Job, place: Place) -> Any:
    """The torch.device of this rank."""
    require_torch()
    refuse_other_size(place, job.plan.devices)
    import torch

    kind = present_kind(job.choices.device)
    if kind == "cpu":
        os.environ.setdefault(*QUIET_PROFILER)
    return torch.device(kind, place.local_rank) if kind == "cuda" else torch.device(kind)


def read_result(folder: str | Path) -> Any:
    """What a run came to, as its file has it."""
    return msgspec.json.decode((Path(folder) / RESULT).read_bytes())


def save_trained(given: Trained, job: Job, document: Mapping[str, Any]) -> list[str]:
    """The run's files: the document, and where there is a record, it alone and with its plan."""
    folder = job.folder
    write_whole(folder / RESULT, msgspec.json.format(msgspec.json.encode(given), indent=2) + b"\n")
    write_whole(folder / PAGE, train_page(given, read_lines(folder)).encode())
    written = [str(folder / name) for name in (RESULT, LINES, PAGE)]
    if given.run is not None:
        save_run(given.run, str(folder / RUN))
        write_pair(given.run, plan_file_of(document, JOB), 0, str(folder / PAIR))
        written += [str(folder / RUN), str(folder / PAIR)]
    return written
