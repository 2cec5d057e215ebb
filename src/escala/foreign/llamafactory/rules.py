"""When LLaMA-Factory's YAML is wrong. The words, and conditions of keys alone, are in its rules' file."""

from collections.abc import Iterator, Mapping
from typing import Final

from escala.errors import spoken
from escala.foreign.conditions import conditional
from escala.foreign.facts import number_of
from escala.foreign.findings import Finding, finding, replaced
from escala.foreign.jobs import Job
from escala.foreign.keys import KeyCheck, table
from escala.foreign.llamafactory.reading import OWN
from escala.foreign.mapped import is_on
from escala.foreign.places import Node, Scalar
from escala.foreign.readings import Reading, VersionIs
from escala.foreign.transformers.reading import Arguments
from escala.foreign.transformers.rules import KeyTypes, autos, numbers_as_text, of_trainer, texts
from escala.foreign.versions import is_before

GROUP: Final = "llamafactory"
DEFAULTS: Final[Mapping[str, Scalar]] = {
    "finetuning_type": "lora",
    "stage": "sft",
    "quantization_method": "bnb",
}
CONVERTS: Final = "0.9.3"
"""The first version that reads YAML with OmegaConf, which takes 5e-5 for a number."""
PROJECTED: Final = ("use_galore", "use_apollo", "use_badam")
LORA_ONLY: Final = ("use_dora", "use_rslora", "loraplus_lr_ratio", "pissa_init")
ATTENTION: Final = {
    True: "fa2",
    "true": "fa2",
    "flash_attention_2": "fa2",
    False: "disabled",
    "off": "disabled",
}
"""What people write for flash_attn, and its name."""
EXPERTS: Final = {
    "mixtral": "MixtralSparseMoeBlock",
    "qwen2-moe": "Qwen2MoeSparseMoeBlock",
    "qwen1.5-moe": "Qwen2MoeSparseMoeBlock",
    "qwen3-30b-a3b": "Qwen3MoeSparseMoeBlock",
    "qwen3-235b-a22b": "Qwen3MoeSparseMoeBlock",
    "deepseek-v2": "DeepseekV2MoE",
    "deepseek-v3": "DeepseekV3MoE",
    "olmoe": "OlmoeSparseMoeBlock",
    "phi-3.5-moe": "PhimoeSparseMoeBlock",
    "gpt-oss": "GptOssMLP",
    "jamba": "JambaSparseMoeBlock",
    "dbrx": "DbrxFFN",
    "llama-4": "Llama4TextMoe",
    "granite-3.0-1b-a400m": "GraniteMoeMoE",
    "granite-3.0-3b-a800m": "GraniteMoeMoE",
}
"""Models by a part of their names, and the block that LLaMA-Factory 0.9.5 marks (model_utils/moe.py)."""


def rules_of(job: Job, reading: Reading) -> Iterator[Finding]:
    """All findings of a file, or of what a command adds to it."""
    found = reading.extra["arguments"]
    assert isinstance(found, Arguments)
    node, keys = found.node, table("llamafactory")
    converts = not is_before(reading.version, CONVERTS)
    version = reading.version if reading.version_is is not VersionIs.ASSUMED else ""
    ignored = texts(node) | {"flash_attn"}
    yield from KeyCheck(table=keys, tool=reading.title, version=version, ignored=ignored).findings(node)
    yield from numbers_as_text(node, KeyTypes(keys), reading, is_converted=converts)
    yield from autos(node, KeyTypes(keys), reading)
    yield from of_trainer(job, reading, node)
    if frozenset(node.table) & OWN:
        yield from conditional(GROUP, job, node, DEFAULTS)
        yield from _kinds(job, node)
        yield from _data(node)
        yield from _attention(node)
        yield from _experts(job, reading)


def _kinds(job: Job, node: Node) -> Iterator[Finding]:
    """What goes with one kind of tuning only, or with no other way to shard."""
    kind = node.table.get("finetuning_type")
    name = "lora" if kind is None else kind.scalar
    for key in LORA_ONLY:
        if is_on(node.table.get(key)) and name in ("full", "freeze", "oft"):
            yield finding("llamafactory-lora-only", node.table[key], key=key, finetuning_type=name)
    for key in PROJECTED:
        given = node.table.get(key)
        if given is None or not is_on(given):
            continue
        if name == "lora":
            yield finding("llamafactory-projected-lora", given, key=key)
        if key != "use_badam" and is_on(node.table.get("deepspeed")):
            yield finding("llamafactory-projected-deepspeed", given)
        devices = job.sure("devices")
        if key == "use_badam" and devices is not None and devices > 1 and job.value("zero") != 3:
            yield finding("llamafactory-badam", given, devices=devices)


def _data(node: Node) -> Iterator[Finding]:
    """Training and evaluation need something to train and to evaluate on."""
    train = node.table.get("do_train")
    if train is not None and is_on(train) and not is_on(node.table.get("dataset")):
        yield finding("llamafactory-no-data", train)
    strategy = (
        node.table.get("do_eval") or node.table.get("do_predict") or node.table.get("predict_with_generate")
    )
    size = node.table.get("val_size")
    is_split = size is not None and (number_of(size) or 0) > 1e-6
    if (
        strategy is not None
        and is_on(strategy)
        and not is_split
        and not is_on(node.table.get("eval_dataset"))
    ):
        yield finding("llamafactory-no-eval-data", strategy)


def _attention(node: Node) -> Iterator[Finding]:
    given = node.table.get("flash_attn")
    if given is None or given.value is None or isinstance(given.value, list | dict):
        return
    if given.scalar not in ("auto", "disabled", "sdpa", "fa2", "fa3"):
        meant = ATTENTION.get(given.scalar, "auto") if isinstance(given.scalar, str | bool) else "auto"
        edits = (replaced(given, meant),)
        yield finding(
            "llamafactory-attention-name", given, edits=edits, given=spoken(given.scalar), meant=meant
        )


def _experts(job: Job, reading: Reading) -> Iterator[Finding]:
    """Experts under ZeRO-3 hang where blocks are not gathered whole."""
    model = reading.fact("model")
    if model is None or job.value("zero") != 3 or not is_on(_deepspeed(reading)):
        return
    name = str(model.value).rpartition("/")[2].lower().replace("_", "-")
    block = next((block for part, block in EXPERTS.items() if part in name), None)
    if block is not None:
        place = _deepspeed(reading) or model.place
        yield finding("llamafactory-experts-zero", place, model=model.value, block=block)


def _deepspeed(reading: Reading) -> Node | None:
    found = reading.extra["arguments"]
    assert isinstance(found, Arguments)
    return found.node.table.get("deepspeed")
