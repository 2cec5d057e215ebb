"""Round trips: what a writer wrote, read again, says every fact of the plan; what it refuses has reasons."""

from pathlib import Path
from typing import Final

from escala.foreign.facts import Value
from escala.foreign.findings import Severity
from escala.foreign.jobs import Job, read_job
from escala.foreign.orders import Order, Writer, lacking
from escala.model.plan import Compile, ContextKind, Dispatcher, Offload, Plan, Recompute, Schedule
from escala.model.precision import recipe
from escala.model.workload import Method
from escala.report.planfile import PlanFile, plan_bytes

SCHEDULES: Final = {
    Schedule.GPIPE: "gpipe",
    Schedule.ONE_F_ONE_B: "1f1b",
    Schedule.INTERLEAVED: "interleaved",
    Schedule.ZERO_BUBBLE_V: "zero-bubble-v",
}
ONES: Final = frozenset(("tp", "pp", "cp", "ep", "etp", "virtual_stages", "accumulation", "replicas", "dp"))
"""Degrees of which 1 need not be written."""
SILENT: Final[dict[str, Value]] = {
    **dict.fromkeys(ONES, 1),
    **dict.fromkeys(("offload_optimizer", "offload_params", "offload_activations"), "none"),
    **dict.fromkeys(("compile", "fused_loss", "sp"), False),
    "recompute": "none",
    "zero": 0,
    "precision": "fp32",
}
"""What a file that says nothing means."""
SAME_TASK: Final = {
    Method.PRETRAIN: (Method.PRETRAIN, Method.FULL),
    Method.FULL: (Method.PRETRAIN, Method.FULL),
}
"""Both train all weights: most tools do not tell them apart."""


def word(choice: Recompute | ContextKind | Dispatcher | Offload) -> str:
    """A choice as facts say it."""
    return choice.name.lower().replace("_", "-")


def facts_of(order: Order) -> dict[str, Value]:
    """The facts that files of an order have to give back."""
    plan, work = order.plan, order.problem.workload
    found: dict[str, Value] = {
        "devices": plan.devices,
        "sequence_tokens": work.sequence_tokens,
        "global_batch": work.global_batch,
        "micro_batch": plan.micro_batch,
        "zero": plan.zero,
        "tp": plan.tp,
        "pp": plan.pp,
        "cp": plan.cp,
        "ep": plan.ep,
        "precision": recipe(plan.precision).name,
        "recompute": word(plan.recompute),
        "offload_optimizer": word(plan.offload_optimizer),
        "offload_params": word(plan.offload_params),
        "offload_activations": word(plan.offload_activations),
        "compile": plan.compile is not Compile.OFF,
        "fused_loss": plan.fused_loss,
        "method": str(work.method),
        "learning_rate": order.learning_rate,
        "steps": order.steps,
        **_of_axes(plan),
    }
    return found if work.lora is None else {**found, "lora_rank": work.lora.rank}


def _of_axes(plan: Plan) -> dict[str, Value]:
    """What is said of an axis only where it is longer than one."""
    found: dict[str, Value] = {}
    if plan.pp == 1:
        found["accumulation"] = plan.micro_batches
    else:
        found |= {"schedule": SCHEDULES[plan.schedule], "virtual_stages": plan.virtual_stages}
    if plan.zero == 3:
        found["reshard"] = plan.reshard
    if 1 < plan.shard < plan.dp * plan.cp:
        found |= {"shard": plan.shard, "replicas": plan.dp * plan.cp // plan.shard}
    if plan.tp > 1:
        found["sp"] = plan.sp
    if plan.cp > 1:
        found["cp_kind"] = word(plan.cp_kind)
    if plan.recompute is Recompute.FIRST_LAYERS:
        found["recompute_layers"] = plan.recompute_layers
    if plan.ep > 1:
        found |= {"etp": plan.etp, "dispatcher": word(plan.dispatcher)}
    return found


def written(writer: Writer, order: Order, folder: Path) -> list[str]:
    """The files of an order in a folder, by path; written twice, they are the same."""
    files = writer.write(order)
    assert files == writer.write(order), "another text for the same order"
    assert len({each.name for each in files}) == len(files) > 0
    for each in files:
        place = folder / each.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(each.text, "utf-8")
    return [str(folder / each.name) for each in files]


def plan_file(order: Order, folder: Path) -> str:
    """The plan itself, as it is written beside the files of every target."""
    path = folder / "plan.json"
    path.write_bytes(plan_bytes(PlanFile(problem=order.problem, plans=(order.plan,)), 0))
    return str(path)


def assert_round_trip(
    writer: Writer,
    order: Order,
    folder: Path,
    *,
    lost: frozenset[str] = frozenset(),
    with_plan: bool = False,
    **given: Value,
) -> Job:
    """Files of an order give back its facts and no error; `lost` are facts that its page says it cannot hold.

    A fact that the global batch, the micro-batch and the degrees follow from may be left out with it. Files
    that start escala itself are read with the plan that they name.
    """
    paths = written(writer, order, folder)
    job = read_job([*paths, plan_file(order, folder)] if with_plan else paths, given, {})
    wanted = {name: value for name, value in facts_of(order).items() if name not in lost}
    said = {name: job.value(name) for name in wanted}
    wrong = {
        name: (said[name], value) for name, value in wanted.items() if not _agrees(name, said, value, order)
    }
    assert wrong == {}, f"(read, planned): {wrong}"
    errors = [f"{each.rule}: {each.what}" for each in job.findings if each.severity is Severity.ERROR]
    assert errors == []
    return job


def _agrees(name: str, said: dict[str, Value | None], value: Value, order: Order) -> bool:
    given, plan = said[name], order.plan
    if name == "method":
        return given is None or given in SAME_TASK.get(order.problem.workload.method, (value,))
    if given is not None:
        return given == value
    if name == "global_batch":  # of three numbers two are enough
        return said["micro_batch"] is not None and (plan.pp > 1 or said.get("accumulation") is not None)
    if name == "accumulation" and value != 1:
        return said["micro_batch"] is not None and said["global_batch"] is not None
    return SILENT.get(name) == value


def assert_written_or_refused(
    writer: Writer,
    order: Order,
    folder: Path,
    *,
    lost: frozenset[str] = frozenset(),
    with_plan: bool = False,
    **given: Value,
) -> bool:
    """What the target can express comes back, what it cannot has reasons; True where it was written."""
    reasons = lacking(writer.TARGET, order)
    assert all(reasons), "an empty reason"
    if not reasons:
        assert_round_trip(writer, order, folder, lost=lost, with_plan=with_plan, **given)
    return not reasons
