"""What is judged: a job with its network, cluster, engine and plan as far as known. Judges nothing."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from escala.catalog.engines import engine as engine_named
from escala.catalog.engines import find_engine
from escala.checking.layouts import layout_of, tool_defaults, unset_variables
from escala.checking.machines import SOCKETS, Missing, sockets_at
from escala.checking.networks import network_of
from escala.errors import InvalidInput
from escala.foreign.facts import Value
from escala.foreign.jobs import Job
from escala.model.cluster import Cluster
from escala.model.engine import Engine
from escala.model.network import Network
from escala.model.plan import Plan, Precision
from escala.model.precision import recipe
from escala.model.problem import Problem
from escala.model.rejects import has_units
from escala.planning.defaults import Assumed, Question, answerable
from escala.planning.simplicity import moved

ENGINE: Final = "pytorch"
BF16_ENGINES: Final = {"hf-trainer": "hf-bf16"}
"""Engines whose weights are fp32, and what they are when a job loads weights in 16 bit and trains them."""
WITHOUT_ZERO: Final = {"deepspeed": "hf-trainer", "hf-deepspeed": "hf-trainer"}
"""What stands in for an engine that only knows ZeRO where nothing is sharded."""
INSTEAD: Final = (Precision.BF16, Precision.FP16, Precision.FP32)
"""What stands in for a number format that a device has no unit for; the first that it has."""
MOST: Final = {
    **dict.fromkeys(("tp", "pp", "cp", "ep", "etp", "shard", "replicas", "virtual_stages"), 1_000_000),
    **dict.fromkeys(("micro_batch", "accumulation", "global_batch", "steps"), 1_000_000_000),
    **dict.fromkeys(("recompute_layers", "eval_batch", "second_copy", "lora_rank"), 1_000_000),
    "sequence_tokens": 100_000_000,
}
"""The largest numbers of a job that are estimated; those of the command line have the same limits."""
MOST_STAGES: Final = 20_000
TUNING: Final = frozenset(("transformers", "trl", "llamafactory", "axolotl", "torchtune"))
OPTIMIZERS: Final = (
    ("paged_adamw_8bit", "adamw-8bit-paged"),
    ("8bit", "adamw-8bit"),
    ("8-bit", "adamw-8bit"),
    ("adafactor", "adafactor"),
    ("muon", "muon"),
    ("lion", "lion"),
    ("adam", "adamw"),
    ("sgd", "sgd"),
)
"""Parts of names, and the optimizer that they mean; the first one found counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A job with what is known of it; `problem` and `plan` are both there or both missing.

    `gaps` are things that a file asks for and that no formula here knows.
    """

    job: Job
    network: Network | None
    cluster: Cluster | None
    engine: Engine
    problem: Problem | None = None
    plan: Plan | None = None
    assumed: tuple[Assumed, ...] = ()
    missing: tuple[Missing, ...] = ()
    gaps: tuple[str, ...] = ()

    @property
    def second_copy(self) -> int:
        """Ranks over which the weights are sharded a second time (hpZ); 0 without."""
        return max(0, self.job.count("second_copy") or 0)


def subject_of(
    job: Job, cluster: Cluster | None, lacking: Missing | None, *, total_tokens: float | None = None
) -> Subject:
    """The job on a cluster; `lacking` is what is missing where there is none."""
    network, why = network_of(job)
    engine, gaps = engine_of(job)
    missing = [] if lacking is None else [lacking]
    if network is None:
        missing.append(Missing(what=f"no model: {why}", add="--model NAME, a config.json or its folder"))
    found = Subject(
        job=job, network=network, cluster=cluster, engine=engine, missing=tuple(missing), gaps=gaps
    )
    if network is not None and why:
        assumed = Assumed(name="network", value=network.name, reason=why, option="--model")
        found = replace(found, assumed=(assumed,))
    if cluster is not None:
        found = _over_sockets(found, cluster)
    return found if network is None or cluster is None else _planned(found, network, cluster, total_tokens)


OWN_RATE: Final = "network at "
"""How the link is called whose rate the command line gives."""


def _over_sockets(found: Subject, cluster: Cluster) -> Subject:
    """What is said of a network whose speed a variable takes away."""
    forced, link = sockets_at(found.job), cluster.links[-1].name
    if forced is None or cluster.nodes == 1:
        return found
    if link.startswith(OWN_RATE):
        return found
    if link != SOCKETS:
        gap = f"TCP, which {forced.said} forces: estimated over {link}; add --network '10 Gb/s'"
        return replace(found, gaps=(*found.gaps, gap))
    reason = f"{forced.said} forces TCP; no file says the rate of the port"
    assumed = Assumed(name="link between nodes", value=link, reason=reason, option="--network")
    return replace(found, assumed=(*found.assumed, assumed))


def chief_of(job: Job) -> Job:
    """The job itself; of a text that tells of several jobs the one that says most."""
    if job.readings:
        return job
    return replace(max((job, *job.parts), key=lambda each: len(each.facts)), parts=job.parts)


def engine_of(job: Job) -> tuple[Engine, tuple[str, ...]]:
    """The engine of the tool that runs the job, and which of its words none of the catalog means."""
    names = [reading.engine for reading in job.readings if reading.engine is not None]
    unknown = tuple(f"the engine '{name}'" for name in names if find_engine(name) is None)
    known = [name for each in names if (name := find_engine(each)) is not None]
    zero = job.count("zero") or 0
    if "deepspeed" in known and zero > 0:
        return engine_named("deepspeed"), unknown
    name = next((each for each in known if each != "deepspeed"), known[0] if known else ENGINE)
    if zero == 0:
        name = WITHOUT_ZERO.get(name, name)
    if str(job.value("dtype_weights")) in ("bf16", "fp16") and _method(job) in ("full", "pretrain"):
        name = BF16_ENGINES.get(name, name)
    return engine_named(name), unknown


def _planned(found: Subject, network: Network, cluster: Cluster, total_tokens: float | None) -> Subject:
    job = found.job
    beyond = tuple(_beyond(job))
    if beyond:
        return replace(found, missing=(*found.missing, *beyond))
    layout = layout_of(job, found.engine, cluster.devices)
    found = replace(
        found,
        assumed=(*found.assumed, *tool_defaults(job), *unset_variables(job), *_usual(job), *layout.assumed),
        missing=(*found.missing, *layout.missing),
    )
    if layout.plan is None:
        return found
    plan, instead = _on_device(layout.plan, cluster)
    optimizer, gaps = _optimizer(job)
    question = replace(
        _question(found, network, cluster, layout.global_batch),
        total_tokens=total_tokens or _tokens(job, layout.global_batch),
        optimizer=optimizer,
        precision=recipe(plan.precision).name,
    )
    try:
        problem, assumed = answerable(question)
    except InvalidInput as error:
        return replace(found, missing=(*found.missing, Missing(what=str(error), add="other values")))
    gaps = (*instead, *gaps, *_method_gaps(job), *_offload_gaps(plan, cluster), *_other_jobs(job))
    return replace(
        found,
        problem=problem,
        plan=plan,
        assumed=(*found.assumed, *assumed),
        gaps=(*found.gaps, *gaps),
    )


def _beyond(job: Job) -> Iterator[Missing]:
    """Numbers that no job has, of which nothing is predicted."""
    for name, most in MOST.items():
        given = job.count(name)
        if given is not None and given > most:
            yield Missing(what=f"{name.replace('_', '-')} is above {most:,}", add="a smaller number")
    stages = (job.count("pp") or 1) * (job.count("virtual_stages") or 1)
    if stages > MOST_STAGES:
        yield Missing(what=f"there are more than {MOST_STAGES:,} pipeline stages", add="fewer of them")


def _on_device(plan: Plan, cluster: Cluster) -> tuple[Plan, tuple[str, ...]]:
    """The plan in a format that the device has units for, and what was asked for in its place."""
    chip = cluster.accelerator
    if has_units(chip, plan.precision):
        return plan, ()
    instead = next((code for code in INSTEAD if has_units(chip, code)), Precision.FP32)
    asked, taken = recipe(plan.precision).name, recipe(instead).name
    return replace(plan, precision=instead), (f"{asked} on {chip.name}: estimated as {taken}",)


def _question(found: Subject, network: Network, cluster: Cluster, global_batch: int | None) -> Question:
    job, method = found.job, _method(found.job)
    return Question(
        network=network,
        cluster=cluster,
        engine=found.engine.name,
        sequence_tokens=_positive(job.count("sequence_tokens")),
        global_batch=global_batch,
        method=method,
        lora_rank=_positive(job.count("lora_rank")) if method in ("lora", "qlora") else None,
    )


def _method(job: Job) -> str:
    said = str(job.value("method") or "")
    if said in ("pretrain", "full", "lora", "qlora"):
        return said
    return "full" if any(reading.tool in TUNING for reading in job.readings) else "pretrain"


def _usual(job: Job) -> Iterator[Assumed]:
    """Method and optimizer where no file and no tool says them."""
    reason = "no file says it"
    if job.value("method") is None:
        yield Assumed(name="method", value=_method(job), reason=reason, option="the file's method")
    if job.value("optimizer") is None:
        yield Assumed(name="optimizer", value="adamw", reason=reason, option="the file's optimizer")


def _method_gaps(job: Job) -> tuple[str, ...]:
    bits = job.count("quantized_bits")
    return ("weights in 8 bit: estimated in 16 bit, which needs more",) if bits == 8 else ()


def _offload_gaps(plan: Plan, cluster: Cluster) -> tuple[str, ...]:
    slow = "the seconds of states in host memory: nobody knows the speed of the host's bus"
    return (slow,) if moved(plan) and cluster.host.pcie_bytes_per_s is None else ()


def _other_jobs(job: Job) -> tuple[str, ...]:
    """The jobs of a text that are not estimated."""
    others = len(job.parts) - 1
    return (f"the other {'job' if others == 1 else f'{others} jobs'} of a text",) if others > 0 else ()


def _optimizer(job: Job) -> tuple[str, tuple[str, ...]]:
    """The optimizer by the name that the file has; AdamW for one that is not modelled, which is said."""
    said = str(job.value("optimizer") or "adamw").lower()
    name = next((known for part, known in OPTIMIZERS if part in said), None)
    if name is not None:
        return name, ()
    return "adamw", (f"the optimizer {said}: estimated as AdamW, which needs more memory",)


def _positive(count: int | None) -> int | None:
    return count if count is not None and count > 0 else None


def _tokens(job: Job, global_batch: int | None) -> float | None:
    """Tokens of the run: as said, or steps * batch * sequence."""
    said: Value | None = job.value("total_tokens")
    if isinstance(said, int | float) and said > 0:
        return float(said)
    steps, sequence = job.count("steps"), job.count("sequence_tokens")
    if steps is None or sequence is None or global_batch is None or min(steps, sequence) < 1:
        return None
    return float(steps) * global_batch * sequence
