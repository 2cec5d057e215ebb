"""When Lightning's Trainer is wrong. The words are in data/rules/lightning.toml."""

from collections.abc import Iterator
from typing import Final

from escala.errors import misspelt, near
from escala.foreign.facts import count_of, is_open
from escala.foreign.findings import Finding, finding, replaced
from escala.foreign.jobs import Job
from escala.foreign.keys import KeyCheck, table
from escala.foreign.lightning.meaning import GONE, NAMES, SHORT, STRATEGIES
from escala.foreign.lightning.settings import Settings
from escala.foreign.readings import Reading

FSDP: Final = ("FSDPStrategy", "fsdp", "fsdp_cpu_offload")
CHECKED: Final = ("FSDPStrategy", "ModelParallelStrategy", "DeepSpeedStrategy")
OF_MESH: Final = ("32-true", "bf16-mixed", "bf16-true", "16-true")
EIGHT_BIT: Final = ("AdamW8bit", "Adam8bit", "PagedAdamW8bit", "PagedAdam8bit", "Lion8bit")
FIRST: Final = "2"


def rules_of(job: Job, reading: Reading) -> Iterator[Finding]:
    """All findings of one Trainer."""
    settings = reading.extra["settings"]
    assert isinstance(settings, Settings)
    text = reading.document.text
    if reading.version.partition(".")[0] >= FIRST:
        yield from _keys(settings)
        yield from _strategy(settings)
    yield from _precision(settings)
    yield from _fsdp(settings, text)
    yield from _mesh(job, settings)
    yield from _data(settings, text)
    if "deepspeed" in settings.strategy.lower():
        yield finding("lightning-deepspeed-pin", settings.node("strategy") or settings.trainer)


def _keys(settings: Settings) -> Iterator[Finding]:
    known = table("lightning")
    yield from KeyCheck(table=known, tool="Lightning").findings(settings.trainer, "trainer")
    if settings.strategy in CHECKED:
        yield from KeyCheck(table=known, tool="Lightning").findings(settings.options, settings.strategy)


def _strategy(settings: Settings) -> Iterator[Finding]:
    """Names of the registry, whatever their case."""
    node = settings.node("strategy")
    if node is None or not isinstance(node.scalar, str) or is_open(node.scalar) or "." in node.scalar:
        return
    given = node.scalar.lower()
    if given in STRATEGIES:
        if given.endswith("find_unused_parameters_true"):
            yield finding("lightning-unused-parameters", node, strategy=node.scalar)
        return
    meant = GONE.get(given) or misspelt(given, STRATEGIES)
    quote = '"' if node.place.end - node.place.start > len(node.scalar) else ""
    edits = (replaced(node, f"{quote}{meant}{quote}"),) if meant else ()
    rule = "lightning-strategy-gone" if given in GONE else "lightning-strategy"
    hint = f"write {meant}" if meant else "choose ddp, fsdp, deepspeed_stage_2, or a strategy object"
    yield finding(rule, node, edits=edits, strategy=node.scalar, hint=hint)


def _precision(settings: Settings) -> Iterator[Finding]:
    node, given = settings.node("precision"), settings.text("precision")
    if node is None or not given or is_open(given):
        return
    name = SHORT.get(given, given)
    if name not in NAMES:
        close = near(name, NAMES, limit=1)
        hint = f"did you mean {close[0]}?" if close else "choose one of them"
        yield finding("lightning-precision", node, given=given, allowed=", ".join(NAMES), hint=hint)
    elif settings.strategy == "ModelParallelStrategy" and name not in OF_MESH:
        yield finding("lightning-precision-mesh", node, given=given, allowed=", ".join(OF_MESH))


def _fsdp(settings: Settings, text: str) -> Iterator[Finding]:
    """What FSDP refuses, and what makes it gather more than it has to."""
    place = settings.node("strategy") or settings.trainer
    if settings.strategy not in FSDP:
        return
    yield finding("lightning-fsdp1", place)
    if settings.text("accelerator") in ("cpu", "mps", "tpu"):
        yield finding("lightning-fsdp-accelerator", settings.trainer.table["accelerator"])
    clip = settings.node("gradient_clip_val")
    if clip is not None and clip.scalar and settings.text("gradient_clip_algorithm") != "value":
        yield finding("lightning-fsdp-clip", clip)
    policy = settings.option("auto_wrap_policy")
    if policy is None and "LightningModule" in text and "wrap(" not in text:
        yield finding("lightning-fsdp-one-unit", place)
    accumulation = count_of(settings.node("accumulate_grad_batches")) or 1
    if accumulation > 1:
        node = settings.trainer.table["accumulate_grad_batches"]
        yield finding("lightning-fsdp-accumulation", node, steps=accumulation)
    if any(name in text for name in EIGHT_BIT):
        yield finding("lightning-fsdp-8bit", settings.beside.get("optimizer", place))


def _mesh(job: Job, settings: Settings) -> Iterator[Finding]:
    """Sizes of a mesh are the devices of the job."""
    devices = job.sure("devices")
    keys = ("data_parallel_size", "tensor_parallel_size")
    node = settings.option("device_mesh")
    if settings.strategy == "ModelParallelStrategy":
        nodes = [settings.option(key) for key in keys]
        node = next((each for each in nodes if each is not None), None)
    else:
        nodes = list(node.items) if node is not None and settings.strategy == "FSDPStrategy" else []
    sizes = [count_of(each) for each in nodes]
    if node is None or devices is None or len(sizes) != 2 or not all(sizes):
        return
    product = (sizes[0] or 1) * (sizes[1] or 1)
    if product != devices:
        yield finding(
            "lightning-mesh", node, first=sizes[0], second=sizes[1], product=product, devices=devices
        )


def _data(settings: Settings, text: str) -> Iterator[Finding]:
    """Samplers and batch norms across ranks; a file without its loader says nothing of samplers."""
    sampler = settings.node("use_distributed_sampler")
    devices = (settings.devices or 1) * (settings.nodes or 1)
    is_plain = "DataLoader(" in text and "Sampler" not in text and "IterableDataset" not in text
    if sampler is not None and sampler.scalar is False and devices > 1 and is_plain:
        yield finding("lightning-sampler", sampler, devices=devices)
    norm = settings.node("sync_batchnorm")
    if norm is not None and norm.scalar is True:
        if "deepspeed" in settings.strategy.lower() or settings.strategy == "ModelParallelStrategy":
            yield finding("lightning-sync-batchnorm", norm, strategy=settings.strategy)
        elif devices == 1 and settings.devices == 1:
            yield finding("lightning-sync-batchnorm-alone", norm)
