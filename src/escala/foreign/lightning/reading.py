"""Lightning's Trainer as facts of a job, from Python files and LightningCLI YAML. Judges nothing."""

from collections.abc import Iterator
from typing import Final

from escala.foreign.documents import Document
from escala.foreign.facts import Fact, Value, count_of, fact, is_open
from escala.foreign.findings import Finding
from escala.foreign.jobs import Job
from escala.foreign.lightning.meaning import PRECISIONS, SHARDINGS, SHORT, TRUE
from escala.foreign.lightning.rules import rules_of
from escala.foreign.lightning.settings import Settings, of_document
from escala.foreign.places import Node, Place
from escala.foreign.readings import Reading, Reference, Role, VersionIs
from escala.model.precision import recipe

NAME: Final = "lightning"
TITLE: Final = "Lightning"
VERSION: Final = "2.6.6"
FSDP: Final = ("FSDPStrategy", "fsdp", "fsdp_cpu_offload")
OFFLOADS: Final = {"offload_optimizer": "offload_optimizer", "offload_parameters": "offload_params"}
DEVICES: Final = {
    "offload_optimizer": "offload_optimizer_device",
    "offload_parameters": "offload_params_device",
}
COUNTS: Final = {
    "accumulate_grad_batches": "accumulation",
    "num_nodes": "nodes",
    "max_steps": "steps",
    "max_epochs": "epochs",
}


def score(document: Document) -> int:
    """By a Trainer in a file that imports Lightning, or by a trainer block with its arguments."""
    return 70 if of_document(document) is not None else 0


def read(document: Document, version: str | None) -> Reading:
    """What the document says."""
    settings = of_document(document)
    assert settings is not None
    return Reading(
        tool=NAME,
        title=TITLE,
        version=version or VERSION,
        version_is=VersionIs.GIVEN if version else VersionIs.ASSUMED,
        role=Role.CODE if document.code is not None else Role.CONFIG,
        document=document,
        facts=tuple(_facts(settings)),
        references=tuple(_references(settings)),
        engine=_engine(settings.strategy),
        extra={"settings": settings},
    )


def rules(job: Job, reading: Reading) -> Iterator[Finding]:
    """What is wrong with it."""
    return rules_of(job, reading)


def _engine(strategy: str) -> str:
    if strategy in FSDP:
        return "lightning-fsdp"
    return "deepspeed" if "deepspeed" in strategy.lower() else "pytorch"


def _references(settings: Settings) -> Iterator[Reference]:
    """The DeepSpeed file that a DeepSpeedStrategy is given."""
    node = settings.option("config")
    is_file = node is not None and isinstance(node.scalar, str) and not is_open(node.scalar)
    if settings.strategy == "DeepSpeedStrategy" and node is not None and is_file:
        yield Reference(file=str(node.scalar), place=node.entry, said="config of DeepSpeedStrategy")


def _facts(settings: Settings) -> Iterator[Fact]:
    for key, name in COUNTS.items():
        count = count_of(settings.node(key))
        if count is not None and count > 0:
            yield fact(name, count, settings.trainer.table[key], key)
    yield from _devices(settings)
    yield from _precision(settings)
    yield from _beside(settings)
    strategy = settings.strategy
    place = settings.node("strategy") or settings.trainer
    if strategy in FSDP:
        yield from _fsdp(settings, place)
    elif "deepspeed" in strategy.lower():
        yield from _deepspeed(settings, place)
    elif strategy == "ModelParallelStrategy":
        yield from _model_parallel(settings, place)
    elif strategy.lower().startswith("ddp") or strategy in ("auto", ""):
        yield fact("zero", 0, place, "strategy", is_default=strategy in ("auto", ""))


def _devices(settings: Settings) -> Iterator[Fact]:
    devices, node = settings.devices, settings.node("devices")
    if devices is None or node is None or settings.text("accelerator") == "cpu":
        return
    yield fact("devices_per_node", devices, node, "devices")
    if settings.nodes is not None:
        yield fact("devices", devices * settings.nodes, node, "devices")


def _precision(settings: Settings) -> Iterator[Fact]:
    node = settings.node("precision")
    given = SHORT.get(settings.text("precision"), settings.text("precision"))
    if node is None:
        yield fact("precision", "fp32", settings.trainer, "precision (default)", is_default=True)
    elif given in PRECISIONS:
        yield fact("precision", recipe(PRECISIONS[given]).name, node, "precision")
        if given in TRUE:
            yield fact("dtype_weights", TRUE[given], node, "precision")


def _beside(settings: Settings) -> Iterator[Fact]:
    names: dict[str, tuple[str, type | tuple[type, ...]]] = {
        "batch_size": ("micro_batch", int),
        "max_length": ("sequence_tokens", int),
        "lr": ("learning_rate", (int, float)),
        "optimizer": ("optimizer", str),
        "model": ("model", str),
        "compile": ("compile", bool),
    }
    for key, (name, kind) in names.items():
        node = settings.beside.get(key)
        if node is not None and isinstance(node.scalar, kind) and not is_open(node.scalar):
            assert node.scalar is not None
            yield fact(name, node.scalar, node, key)
    checkpointed = settings.beside.get("recompute")
    if checkpointed is not None:
        yield fact("recompute", "full", checkpointed, "gradient_checkpointing_enable")


def _fsdp(settings: Settings, place: Node | Place) -> Iterator[Fact]:
    given = settings.option("sharding_strategy")
    name = str(given.scalar).rpartition(".")[2].rstrip("}") if given is not None else "FULL_SHARD"
    where = given or place
    sharding = SHARDINGS.get(name)
    if sharding is not None:
        yield fact("zero", sharding.zero, where, "sharding_strategy")
        if sharding.zero == 3:
            yield fact("reshard", sharding.reshard, where, "sharding_strategy")
    mesh = settings.option("device_mesh")
    sizes = [count_of(each) for each in mesh.items] if mesh is not None else []
    if mesh is not None and len(sizes) == 2 and all(sizes):
        yield from _of_values({"replicas": sizes[0], "shard": sizes[1]}, mesh, "device_mesh")
    elif sharding is not None and sharding.is_hybrid and settings.devices is not None and settings.nodes:
        yield from _of_values(
            {"replicas": settings.nodes, "shard": settings.devices}, where, "sharding_strategy"
        )
    offload = settings.option("cpu_offload")
    if settings.strategy == "fsdp_cpu_offload" or (offload is not None and offload.scalar is True):
        yield from _of_values(
            dict.fromkeys(("offload_optimizer", "offload_params"), "cpu"), offload or place, "cpu_offload"
        )
    for key in ("activation_checkpointing_policy", "activation_checkpointing"):
        node = settings.option(key)
        if node is not None and node.value is not None:
            yield fact("recompute", "full", node, key)
            break


def _deepspeed(settings: Settings, place: Node | Place) -> Iterator[Fact]:
    name = settings.strategy
    stage = settings.option("stage")
    number = (
        count_of(stage)
        if stage is not None
        else next((int(part) for part in name.split("_") if part.isdigit()), 2)
    )
    if number is None or settings.option("config") is not None:
        return
    yield fact("zero", number, stage or place, "stage")
    if number == 3:
        yield fact("reshard", True, stage or place, "stage")
    is_named = "offload" in name
    for key, fact_name in OFFLOADS.items():
        node = settings.option(key)
        device = settings.option(DEVICES[key])
        where = "nvme" if name.endswith("nvme") else str(device.scalar) if device is not None else "cpu"
        if (node is not None and node.scalar is True) or (
            is_named and (number == 3 or key == "offload_optimizer")
        ):
            yield fact(fact_name, where, node or place, key)


def _model_parallel(settings: Settings, place: Node | Place) -> Iterator[Fact]:
    for key, name in (("tensor_parallel_size", "tp"), ("data_parallel_size", "dp")):
        node = settings.option(key)
        count = count_of(node)
        if node is not None and count is not None:
            yield fact(name, count, node, key)
    yield fact("zero", 3, place, "ModelParallelStrategy", is_default=True)
    yield fact("reshard", True, place, "ModelParallelStrategy", is_default=True)


def _of_values(values: dict[str, Value | None], place: Node | Place, said: str) -> Iterator[Fact]:
    for name, value in values.items():
        if value is not None:
            yield fact(name, value, place, said)
