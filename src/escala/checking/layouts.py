"""From the facts of a job to a plan: degrees, batch, sharding; what is taken where nobody said it.

A value that no file has is the default of the tool that reads the job (data/defaults.toml), else a general
one; both are listed as assumed, with the option or key that replaces them.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from importlib.resources import files
from typing import Any, Final, TypeVar

from escala.checking.machines import Missing
from escala.foreign.facts import UNSET
from escala.foreign.jobs import COMMAND_LINE, Job
from escala.model.engine import Engine
from escala.model.plan import (
    Compile,
    ContextKind,
    Dispatcher,
    Offload,
    Plan,
    Precision,
    Recompute,
    Schedule,
    Split,
)
from escala.model.precision import RECIPES, code
from escala.planning.defaults import Assumed

KEYS: Final = {
    "micro_batch": "the file's micro-batch",
    "accumulation": "the file's accumulation",
    "precision": "the file's number format",
}
GENERAL: Final[Mapping[str, Any]] = {"micro_batch": 1, "accumulation": 1, "precision": "bf16"}
LEFT_OPEN: Final = {"precision": "left to the device: bf16 where it has it, else fp16"}
"""Values that a file leaves open, and what is then taken; the trainer beside DeepSpeed decides for it."""
MOST_BATCH: Final = 1_000_000_000
"""Samples of a step up to which anything is estimated."""
AXES: Final = ("tp", "pp", "cp", "ep", "etp")
SCHEDULES: Final = {
    "gpipe": Schedule.GPIPE,
    "1f1b": Schedule.ONE_F_ONE_B,
    "interleaved": Schedule.INTERLEAVED,
    "zero-bubble-v": Schedule.ZERO_BUBBLE_V,
}
Choice = TypeVar("Choice", bound=IntEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The plan of a job, or what is missing for one; `global_batch` belongs to it."""

    plan: Plan | None = None
    global_batch: int | None = None
    assumed: tuple[Assumed, ...] = ()
    missing: tuple[Missing, ...] = field(default=())


def layout_of(job: Job, engine: Engine, devices: int) -> Layout:
    """The plan that the facts of a job describe on so many devices."""
    degrees: dict[str, Any] = {axis: max(1, job.count(axis) or 1) for axis in AXES}
    inner = degrees["tp"] * degrees["pp"] * degrees["cp"]
    if devices % inner:
        what = f"no layout: tp × pp × cp = {inner} does not divide {devices} devices"
        return Layout(missing=(Missing(what=what, add="--gpus N, or other degrees"),))
    taken = _Taken(job)
    dp = devices // inner
    batch = _batch(taken, dp, degrees["pp"])
    if batch is None:
        missing = Missing(what="no global batch, which fills the pipeline", add="--global-batch 256")
        return Layout(missing=(missing,), assumed=tuple(taken.assumed))
    micro, micro_batches = batch
    if dp * micro * micro_batches > MOST_BATCH:
        what = f"a step has more than {MOST_BATCH:,} samples"
        return Layout(missing=(Missing(what=what, add="smaller numbers"),), assumed=tuple(taken.assumed))
    plan = Plan(
        **degrees,
        dp=dp,
        micro_batch=micro,
        micro_batches=micro_batches,
        precision=code(str(taken.value("precision"))),
        **_sharding(job, engine, dp, degrees),
        **_pipeline(job, degrees["pp"]),
        **_rest(job, degrees),
    )
    return Layout(plan=plan, global_batch=dp * micro * micro_batches, assumed=tuple(taken.assumed))


class _Taken:
    """Values of a job with the defaults that stand in for them."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.assumed: list[Assumed] = []

    def value(self, name: str) -> Any:
        """The fact, or a default, which is noted."""
        said = self.job.value(name)
        if said is not None and (name != "precision" or str(said) in _precisions()):
            return said
        deciding = (reading for reading in self.job.readings if reading.tool != "deepspeed")
        if name in LEFT_OPEN and any(name in reading.wanted for reading in deciding):
            self._note(name, GENERAL[name], LEFT_OPEN[name])
            return GENERAL[name]
        for reading in self.job.readings:
            default = defaults().get(reading.tool, {}).get(name)
            if default is not None:
                self._note(name, default, f"the default of {reading.title}")
                return default
        self._note(name, GENERAL[name], "no file says it")
        return GENERAL[name]

    def _note(self, name: str, value: object, reason: str) -> None:
        title = name.replace("_", "-")
        self.assumed.append(Assumed(name=title, value=str(value), reason=reason, option=KEYS[name]))


TOLD: Final = ("micro_batch", "accumulation", "precision", "zero", "sequence_tokens", "method", "optimizer")
"""Defaults of tools that decide memory and time, so that they are worth a word."""


def tool_defaults(job: Job) -> Iterator[Assumed]:
    """What a tool takes by itself, as its reader says it."""
    for name in TOLD:
        said = job.facts.get(name)
        if said is not None and said.is_default and not said.said.endswith(UNSET):
            key = said.said.removesuffix(" (default)")
            yield Assumed(
                name=name.replace("_", "-"),
                value=str(said.value),
                reason="the default of the tool",
                option=key,
            )


def unset_variables(job: Job) -> Iterator[Assumed]:
    """What a script takes where nobody sets its variables."""
    reason = "the script's own value where its variable is not set"
    devices = job.facts.get("devices")
    given = devices is not None and devices.place.file == COMMAND_LINE
    untold = ("devices", *(("nodes", "devices_per_node") if given else ()))
    for said in job.facts.values():
        if said.is_default and said.said.endswith(UNSET) and said.name not in untold:
            key = said.said.removesuffix(UNSET)
            yield Assumed(name=said.name.replace("_", "-"), value=str(said.value), reason=reason, option=key)


def _precisions() -> frozenset[str]:
    return frozenset(("fp8", *(each.name for each in RECIPES)))


def _batch(taken: _Taken, dp: int, pp: int) -> tuple[int, int] | None:
    """Micro-batch and micro-batches of a rank; None where a pipeline has no global batch to cut."""
    job = taken.job
    whole = job.count("global_batch")
    micro = job.count("micro_batch")
    if micro is None and whole is not None and job.count("accumulation") is not None:
        micro = max(1, whole // (dp * max(1, job.count("accumulation") or 1)))
    micro = max(1, micro or int(taken.value("micro_batch")))
    steps = job.count("accumulation")
    if steps is None and whole is not None:
        steps = max(1, whole // (dp * micro))
    if steps is None and pp > 1:
        return None
    return micro, max(1, steps if steps is not None else int(taken.value("accumulation")))


def _sharding(job: Job, engine: Engine, dp: int, degrees: Mapping[str, int]) -> dict[str, Any]:
    """ZeRO stage, resharding and shard group; nothing is sharded where no file says so."""
    replicas, zero = dp * degrees["cp"], min(3, max(0, job.count("zero") or 0))
    if replicas == 1 and zero < 3:
        return {"zero": 0, "shard": 1, "reshard": False}
    said = job.value("reshard")
    keeps = degrees["pp"] > 1 and "reshard-with-pp" in engine.lacks
    reshard = zero == 3 and (bool(said) if said is not None else not keeps)
    return {"zero": zero, "reshard": reshard, "shard": 1 if zero == 0 else _shard(job, replicas, degrees)}


def _shard(job: Job, replicas: int, degrees: Mapping[str, int]) -> int:
    """Ranks that share states: replicas / groups that hold the same, or the group as said with its CP."""
    groups, shard = job.count("replicas"), job.count("shard")
    if groups is not None and groups >= 1 and replicas % groups == 0:
        return replicas // groups
    if shard is None or shard < 1:
        return replicas
    whole = shard * degrees["cp"] if shard % degrees["cp"] else shard
    return whole if replicas % whole == 0 else replicas


def _pipeline(job: Job, pp: int) -> dict[str, Any]:
    """Schedule and virtual stages; layers of stages only where the file lists one number for each."""
    if pp == 1:
        return {}
    virtual = max(1, job.count("virtual_stages") or 1)
    usual = Schedule.INTERLEAVED if virtual > 1 else Schedule.ONE_F_ONE_B
    schedule = SCHEDULES.get(str(job.value("schedule")), usual)
    if schedule is Schedule.ZERO_BUBBLE_V:
        virtual = 2
    elif schedule is Schedule.INTERLEAVED:
        virtual = max(2, virtual)
    else:
        virtual = 1
    return {"schedule": schedule, "virtual_stages": virtual, **_split(job, pp * virtual)}


def _split(job: Job, stages: int) -> dict[str, Any]:
    said = job.value("stage_layers")
    layers = tuple(int(each) for each in said if str(each).isdigit()) if isinstance(said, tuple) else ()
    return {"split": Split.CUSTOM, "stage_layers": layers} if len(layers) == stages else {}


def _rest(job: Job, degrees: Mapping[str, int]) -> dict[str, Any]:
    recompute = _choice(job, "recompute", Recompute, Recompute.NONE)
    layers = max(0, job.count("recompute_layers") or 0) if recompute is Recompute.FIRST_LAYERS else 0
    # below stage 3 weights are whole on every rank, and nothing of them is moved
    is_moved = job.count("zero") == 3 or not job.count("zero")
    offload_params = _choice(job, "offload_params", Offload, Offload.NONE) if is_moved else Offload.NONE
    offload_optimizer = _choice(job, "offload_optimizer", Offload, Offload.NONE)
    return {
        "sp": bool(job.value("sp")) and degrees["tp"] > 1,
        "cp_kind": _choice(job, "cp_kind", ContextKind, ContextKind.RING),
        "dispatcher": _choice(job, "dispatcher", Dispatcher, Dispatcher.ALL_TO_ALL),
        "recompute": recompute,
        "recompute_layers": layers,
        "offload_optimizer": offload_optimizer,
        "offload_params": offload_params,
        "offload_activations": _choice(job, "offload_activations", Offload, Offload.NONE),
        "compile": Compile.DEFAULT if job.value("compile") else Compile.OFF,
        "fused_loss": bool(job.value("fused_loss")),
    }


def _choice(job: Job, name: str, choice: type[Choice], usual: Choice) -> Choice:
    """The member that a fact names in small letters with hyphens."""
    words = {member.name.lower().replace("_", "-"): member for member in choice}
    return words.get(str(job.value(name)), usual)


def precision_said(job: Job) -> Precision | None:
    """The number format that a file asks for."""
    said = job.value("precision")
    return code(str(said)) if said is not None and str(said) in _precisions() else None


@cache
def defaults() -> Mapping[str, Mapping[str, Any]]:
    """What each tool takes where its file says nothing."""
    return tomllib.loads(files("escala.checking").joinpath("data/defaults.toml").read_text("utf-8"))
