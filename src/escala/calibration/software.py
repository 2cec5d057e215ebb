"""Which engine ran a row, and what that software does where a table is silent. Knows words, no numbers.

One entry a framework generation, first match wins; patterns are searched in "source | framework" in lower
case. An entry says what a blank column means there: sharding, micro-batch, interleaving, recompute, counter.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from escala.calibration.recipes import Graphs, recipe
from escala.calibration.rows import Row
from escala.model.engine import AttentionKernel, ConvolutionLayout, Engine, EngineMessages, EngineTime
from escala.model.plan import Compile, Recompute


class Counter(StrEnum):
    """Which memory a table prints: in use by tensors, held by the allocator, or seen by the driver."""

    ALLOCATED = "allocated"
    RESERVED = "reserved"
    DEVICE = "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """An engine and what a blank column means under it.

    `zero` is the sharding stage of a blank column, `batch_is_whole` that all sequences of a rank run at once
    (no accumulation), `interleaves` that a pipeline with a blank column is interleaved. `kernel` overrides
    the engine's attention kernel.
    """

    pattern: str
    engine: str
    zero: int = 0
    sp: bool = False
    batch_is_whole: bool = False
    interleaves: bool = False
    recompute: Recompute = Recompute.NONE
    recompute_adapted: Recompute | None = None
    compile: Compile = Compile.OFF
    counter: Counter = Counter.DEVICE
    kernel: AttentionKernel | None = None


_UNFUSED: Final = AttentionKernel.UNFUSED
_FULL: Final = Recompute.FULL
# Where each default was read: the framework's own configuration files of that generation, see docs/accuracy.
SOFTWARE: Final = (
    Software(pattern=r"korthikanti", engine="megatron-2022", recompute=_FULL),
    Software(pattern=r"sc21|megatron-lm readme \(202", engine="megatron-2021", recompute=_FULL),
    Software(pattern=r"megatron-lm \+ deepspeed|glm-130b", engine="megatron-deepspeed", recompute=_FULL),
    Software(pattern=r"sailor", engine="sailor"),
    Software(pattern=r"bloom.*production|mt-nlg", engine="megatron-deepspeed-bf16", recompute=_FULL),
    Software(pattern=r"megatron-deepspeed \(bigscience\)", engine="megatron-deepspeed", zero=1),
    Software(pattern=r"megatron-deepspeed", engine="megatron-deepspeed"),
    Software(pattern=r"mlperf.*(?:nemo|llama|gpt)", engine="mlperf-nemo", zero=1, sp=True, interleaves=True),
    Software(
        pattern=r"nemo 24\.07|long-sequence|launcher", engine="nemo-2024", zero=1, sp=True, interleaves=True
    ),
    Software(pattern=r"automodel", engine="automodel", zero=3),
    # Assumed, with the rows in view: AWS names no CUDA graphs, which NVIDIA's recipes use.
    Software(pattern=r"aws.*megatron-bridge", engine="megatron-core", zero=1, sp=True, interleaves=False),
    Software(pattern=r"megatron-bridge", engine="megatron-bridge", zero=1, sp=True, interleaves=False),
    Software(pattern=r"dgx cloud|pai-megatron", engine="megatron-core", zero=1, sp=True),
    Software(pattern=r"megatron-swift", engine="megatron-core", zero=1, sp=True),
    Software(pattern=r"megatron-core|nemo", engine="megatron-core", zero=1, sp=True, interleaves=True),
    Software(pattern=r"\| megatron-lm", engine="megatron-2021"),
    Software(pattern=r"trl sft", engine="trl-fsdp2", zero=3, counter=Counter.ALLOCATED),
    Software(pattern=r"torchtitan", engine="pytorch", zero=3, sp=True, counter=Counter.RESERVED),
    Software(pattern=r"float8 fsdp2", engine="pytorch", zero=3),
    Software(pattern=r"meta internal", engine="pytorch", zero=3, sp=True, interleaves=True),
    Software(pattern=r"llm-foundry", engine="llm-foundry", zero=3),
    Software(pattern=r"fms-fsdp|ibm fsdp", engine="fsdp1-ibm", zero=3),
    Software(pattern=r"internevo", engine="internevo", zero=1),
    Software(
        pattern=r"lightning lite|1\.11 fsdp",
        engine="lightning-fsdp",
        zero=3,
        counter=Counter.ALLOCATED,
        kernel=_UNFUSED,
    ),
    Software(pattern=r"paxml", engine="jaxtoolbox", batch_is_whole=True),
    Software(
        pattern=r"maxtext",
        engine="maxtext",
        zero=3,
        sp=True,
        batch_is_whole=True,
        recompute=Recompute.SELECTIVE,
    ),
    Software(pattern=r"torchtune", engine="torchtune", recompute=_FULL, zero=3, counter=Counter.RESERVED),
    Software(pattern=r"ms-swift", engine="ms-swift", recompute=_FULL, counter=Counter.RESERVED),
    Software(pattern=r"litgpt|lit-gpt", engine="litgpt", counter=Counter.ALLOCATED),
    Software(pattern=r"transformers \+ deepspeed", engine="hf-deepspeed", recompute_adapted=_FULL),
    Software(pattern=r"trainer \+ deepspeed|accelerate \+ deepspeed", engine="deepspeed", kernel=_UNFUSED),
    Software(pattern=r"qwen readme", engine="hf-trainer", recompute_adapted=_FULL),
    Software(pattern=r"run_clm|hf trainer|accelerate", engine="hf-trainer", kernel=_UNFUSED),
    Software(pattern=r"transformers", engine="hf-trainer"),
    Software(pattern=r"tensorflow 1|tf_cnn", engine="tf1-xla", compile=Compile.DEFAULT),
    Software(pattern=r"mlperf.*bert", engine="mlperf-bert"),
    Software(pattern=r"mlperf", engine="mlperf-mxnet", compile=Compile.DEFAULT),
    Software(pattern=r"mxnet", engine="mxnet", compile=Compile.DEFAULT),
    Software(pattern=r"tf2 bert", engine="deeplearningexamples-tf2"),
    Software(pattern=r"pytorch bert", engine="deeplearningexamples-pytorch"),
    Software(pattern=r"convnets|efficientnet|kempner|csc|imagenet", engine="pytorch"),
)
UNKNOWN: Final = Software(pattern="", engine="pytorch")
NO_CHECKPOINTS: Final = "Gradient Checkpointing=&#x2718"
NO_FLASH: Final = "Use Flash Attn=&#x2718"  # a cross in the tables of ms-swift
# Launches of a layer with experts that are left beside a graph, over all of them: 3.5 dense layers of 35
# kernels, of which attention is half of one, router and preprocessing (counts, positions, copies to the host)
# 1.5. Assumed by counting, with runs of both kinds in view.
LAUNCHES_LEFT: Final[Mapping[Graphs, float]] = {
    Graphs.NONE: 1.0,
    Graphs.ROUTER: 2.0 / 3.5,
    Graphs.PARTS: 1.5 / 3.5,
    Graphs.WHOLE: 0.0,
}


def software(row: Row) -> tuple[Software, tuple[str, ...]]:
    """The software of a row, and "framework" when it is not one of those known."""
    words = f"{row.source} | {row.framework} | {row.model}".lower()
    found = next((each for each in SOFTWARE if re.search(each.pattern, words)), None)
    if found is None:
        return UNKNOWN, ("framework",)
    return _generation(row, found), ()


def _generation(row: Row, known: Software) -> Software:
    """The engine of the generation: 16-bit kinds of ZeRO-1 and Q-LoRA under DeepSpeed differ in memory."""
    if known.engine == "megatron-2021" and "zero" in row.sharding.lower():
        return replace(known, engine="megatron-deepspeed")
    if known.engine == "megatron-deepspeed" and "bigscience" in row.source.lower():
        known = replace(known, engine="megatron-deepspeed-jean-zay")
    if known.engine.startswith("megatron-deepspeed") and row.precision == "bf16":
        return replace(known, engine="megatron-deepspeed-bf16")
    if "Qwen README" in row.source and row.method.lower() in ("full", "qlora"):
        return replace(known, engine="hf-deepspeed", zero=3 if row.method == "full" else known.zero)
    return known


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a row or its recipe says of the software beyond the engine: kernel, graphs, overlaps, layout."""

    kernel: AttentionKernel | None = None
    graphs: Graphs | None = None
    overlaps_experts: bool = False
    overlaps_gradients: bool = True
    layout: ConvolutionLayout | None = None

    def on(self, engine: Engine) -> Engine:
        """The engine as this row ran it."""
        time = engine.time
        if self.kernel is not None:
            time = replace(time, attention_kernel=self.kernel)
        if self.graphs is not None:
            time = _launched(engine, self.graphs)
        if not self.overlaps_gradients:
            time = replace(time, gradient_hidden=0.0)
        if self.layout is not None:
            time = replace(time, convolution_layout=self.layout)
        messages = _overlapping(engine) if self.overlaps_experts else engine.messages
        return replace(engine, time=time, messages=messages)


def _overlapping(engine: Engine) -> tuple[tuple[str, EngineMessages], ...]:
    """The engine's messages, of which dispatches run beside the computation of another micro-batch."""
    own = dict(engine.messages)
    return tuple((own | {"any": replace(own.get("any", EngineMessages()), overlaps_dispatch=True)}).items())


def traits(row: Row, known: Software, engine: Engine) -> Traits:
    """The attention kernel as printed, else as the framework's generation had it; overlap as printed."""
    kernel = known.kernel
    usual = kernel or engine.time.attention_kernel
    is_flash = usual in (AttentionKernel.FLASH2, AttentionKernel.FLASH3)
    if (row.flash is False or NO_FLASH in row.other) and is_flash:
        is_eager = known.engine.startswith(("hf-", "deepspeed", "torchtune", "litgpt"))
        kernel = AttentionKernel.UNFUSED if is_eager else AttentionKernel.FUSED_SOFTMAX
    elif row.flash and not is_flash:
        kernel = AttentionKernel.FLASH2
    if known.engine == "jaxtoolbox":
        kernel = _pax_kernel(row)
    known_recipe = recipe(row)
    return Traits(
        kernel=kernel,
        graphs=known_recipe.graphs,
        overlaps_experts="ep_overlap=on" in row.other or known_recipe.overlaps_experts,
        overlaps_gradients="horovod" not in f"{row.framework} {row.other}".lower(),
        layout=_layout(row),
    )


def _launched(engine: Engine, graphs: Graphs) -> EngineTime:
    """The engine with the launches that a graph leaves; the record of Megatron-Bridge is that of PARTS."""
    if graphs is Graphs.WHOLE:
        return replace(engine.time, dispatch_s=0.0)
    usual = Graphs.PARTS if engine.name == "megatron-bridge" else Graphs.NONE
    left = LAUNCHES_LEFT[graphs] / LAUNCHES_LEFT[usual]
    return replace(engine.time, moe_dispatch_ratio=engine.time.moe_dispatch_ratio * left)


# DeepLearningExamples, PyTorch/Classification/ConvNets/configs.yml: `memory_format: nhwc` stands at the AMP
# entries of ResNet and ResNeXt, and at all of EfficientNet. tf_cnn_benchmarks: `data_format` is NCHW on GPU.
_LAYOUTS: Final = {
    r"PyTorch ConvNets": ConvolutionLayout.CHANNELS_LAST_IN_16_BIT,
    r"PyTorch EfficientNet": ConvolutionLayout.CHANNELS_LAST,
    r"CARAML": ConvolutionLayout.CHANNELS_FIRST,
}


def _layout(row: Row) -> ConvolutionLayout | None:
    """In which order image tensors lay where the run's configuration says so."""
    return next((word for name, word in _LAYOUTS.items() if re.search(name, row.source)), None)


def _pax_kernel(row: Row) -> AttentionKernel:
    """Transformer Engine brings fused attention; plain XLA of that time fused the softmax only."""
    has_engine = "transformer engine" in row.framework.lower()
    return AttentionKernel.FLASH3 if has_engine else AttentionKernel.FUSED_SOFTMAX


# What precision words mean; a scaled format without its recipe is tensor-wise.
RECIPE_WORDS: Final[Mapping[str, str]] = {"mx": "mxfp8", "block": "fp8-blockwise", "row": "fp8-rowwise"}
