"""When a torchtitan configuration is wrong. The words are in data/rules/torchtitan.toml."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Final

from escala.catalog.accelerators import accelerator
from escala.errors import InvalidInput, near
from escala.foreign.facts import is_open
from escala.foreign.findings import Finding, finding, replaced
from escala.foreign.jobs import Job
from escala.foreign.keys import KeyCheck, table
from escala.foreign.places import Node, every
from escala.foreign.readings import Reading, Role
from escala.foreign.torchtitan.facts import (
    DEGREES,
    LOCAL,
    PIECE,
    REPLICATE,
    SHARD,
    converter_names,
    ends,
    schedule_name,
    virtual_stages,
)
from escala.foreign.torchtitan.meaning import ALL_SCHEDULES, ROUNDS, SINGLE, SPLIT_BACKWARD
from escala.foreign.torchtitan.older import older_table
from escala.foreign.torchtitan.settings import CURRENT, Settings
from escala.foreign.torchtitan.sizes import Size, size_of

CURRENT_VERSION: Final = (0, 3)
ABSOLUTE: Final = re.compile(r"\s*(/|\w+://)")
NUMBERS: Final = re.compile(r"\d+(\.\d+)*")
SCHEDULE: Final = "parallelism.pipeline_parallel_schedule"
GRAPHS: Final = "training.disable_cuda_graphs"
ASYNC: Final = "compile.enable_async_tensor_parallel"
MODE: Final = "activation_checkpoint.mode"
SHOWN: Final = ("training.", "parallelism.", "experimental.")
"""Sections whose keys show best what became of a name."""
NO_CONTEXT: Final = ("qwen3_5", "kimi_k2_7")
"""Modules of 0.3.0 that refuse context parallelism."""
FEWEST_SYNCLESS: Final = ("hybridep", "minimal_async_ep")
"""Dispatchers that CUDA graphs can hold, if they are given a capacity."""


def rules_of(job: Job, reading: Reading) -> Iterator[Finding]:
    """All findings of one configuration."""
    settings = reading.extra["settings"]
    assert isinstance(settings, Settings)
    for other in job.readings:
        flags = other.extra.get("settings")
        changes = other.role is Role.ARGUMENTS and other.tool == reading.tool and other is not reading
        if changes and isinstance(flags, Settings) and not flags.is_whole:
            settings = replace(settings, values={**settings.values, **flags.values})
            yield from _function(reading, other)
    yield from _Rules(job, reading, settings).all()


def _function(reading: Reading, arguments: Reading) -> Iterator[Finding]:
    """Whether the function that a command names is one of its module."""
    functions, named = reading.extra["functions"], arguments.extra["named"]
    assert isinstance(functions, tuple)
    assert isinstance(named, tuple)
    module, function = named
    stem = FilePath(reading.document.file).stem
    if module is None or function is None or not functions or module.text.rpartition(".")[2] != stem:
        return
    if function.text not in functions and not function.is_open:
        yield finding(
            "torchtitan-function",
            function.place,
            function=function.text,
            file=FilePath(reading.document.file).name,
            functions=", ".join(functions),
        )


class _Rules:
    """One configuration, with the degrees that it comes to on the devices of its job."""

    def __init__(self, job: Job, reading: Reading, settings: Settings) -> None:
        self.job, self.reading, self.settings = job, reading, settings
        self.size = size_of(settings.text("model.name"), settings.text("model.flavor"))
        self.tp, self.pp, self.cp, self.ep = (
            max(settings.count(DEGREES[name], 1) or 1, 1) for name in ("tp", "pp", "cp", "ep")
        )
        self.replicas = max(settings.count(REPLICATE, 1) or 1, 1)
        self.is_current = _version(reading.version) >= CURRENT_VERSION

    @property
    def shard(self) -> int | None:
        """Shards of data parallelism: as written, or what the devices leave; None where that is not known."""
        written = self.settings.count(SHARD, -1)
        if written is None or written > 0:
            return written
        devices, others = self.job.count("devices"), self.replicas * self.cp * self.tp * self.pp
        return devices // others if devices and devices % others == 0 else None

    def all(self) -> Iterator[Finding]:
        """Keys first, then the numbers beside each other."""
        yield from self.generation()
        yield from self.keys()
        if self.settings.is_whole:
            yield from self.mesh()
            yield from self.sequence()
            yield from self.heads()
            yield from self.experts()
            yield from self.batch()
            yield from self.pipeline()
            yield from self.stages()
            yield from self.graphs()
            yield from self.compiled()
            yield from self.recompute()
            yield from self.precision()
            yield from self.context()
            yield from self.weights()

    def generation(self) -> Iterator[Finding]:
        if not self.settings.is_current:
            now = _current_form([name for name, _ in _dotted(self.settings.tree)])
            rule = "torchtitan-toml-gone" if self.is_current else "torchtitan-toml-old"
            place = self.reading.document.lines.place(0)
            yield finding(rule, place, version=self.reading.version, now=now)
        functions = self.reading.extra["functions"]
        if isinstance(functions, tuple) and len(functions) > 1:
            yield finding(
                "torchtitan-several-functions",
                self.settings.tree.place,
                read=functions[-1],
                others=", ".join(functions[:-1]),
            )
        node = self.settings.node("model.converters")
        if node is not None and isinstance(node.scalar, str) and node.scalar and not self.is_current:
            text = ", ".join(f'"{name.strip()}"' for name in node.scalar.split(","))
            yield finding("torchtitan-converters-text", node, edits=(replaced(node, f"[{text}]"),), list=text)

    def keys(self) -> Iterator[Finding]:
        checked = table("torchtitan") if self.settings.is_current else older_table()
        yield from KeyCheck(table=checked, tool="torchtitan").findings(self.settings.tree)

    def mesh(self) -> Iterator[Finding]:
        """Replicas * shards * cp * tp * pp = devices."""
        devices, written = self.job.count("devices"), self.settings.count(SHARD, -1)
        if devices is None or written is None:
            return
        if self.job.facts["devices"].is_default:
            yield finding("torchtitan-devices", self.settings.at(SHARD, DEGREES["tp"]), devices=devices)
        others = self.replicas * self.cp * self.tp * self.pp
        product = others * max(written, 1)
        if product == devices or (written < 1 and devices % others == 0):
            return
        shards = written if written > 0 else "what is left"
        yield finding(
            "torchtitan-mesh",
            self.settings.at(SHARD, DEGREES["tp"], DEGREES["pp"], DEGREES["cp"], REPLICATE),
            degrees=f"{self.replicas} × {shards} × cp {self.cp} × tp {self.tp} × pp {self.pp}",
            product=product if written > 0 else f"a multiple of {others}",
            devices=devices,
        )

    def sequence(self) -> Iterator[Finding]:
        """The sequence is a multiple of 2 * cp, and of tp under sequence parallelism."""
        tokens = self.settings.count("training.seq_len", 2048)
        sp = self.settings.is_on("parallelism.enable_sequence_parallel", True)
        unit = (self.tp if sp else 1) * (2 * self.cp if self.cp > 1 else 1)
        if tokens and tokens % unit:
            yield finding(
                "torchtitan-sequence",
                self.settings.at("training.seq_len", DEGREES["cp"], DEGREES["tp"]),
                tokens=tokens,
                unit=unit,
                cp=self.cp,
                tp=self.tp if sp else 1,
                near=tokens // unit * unit or unit,
            )
        if tokens and self.is_current and self.size and tokens > self.size.max_tokens:
            yield finding(
                "torchtitan-sequence-long",
                self.settings.at("training.seq_len"),
                tokens=tokens,
                most=self.size.max_tokens,
            )

    def heads(self) -> Iterator[Finding]:
        """The tensor parallel degree divides heads and KV heads, which are not replicated."""
        if self.size is None or self.tp == 1:
            return
        for name, heads in (("heads", self.size.heads), ("KV heads", self.size.kv_heads)):
            if heads % self.tp:
                fitting = ", ".join(str(each) for each in range(1, heads + 1) if heads % each == 0)
                yield finding(
                    "torchtitan-heads",
                    self.settings.at(DEGREES["tp"]),
                    tp=self.tp,
                    heads=f"{heads} {name}",
                    fitting=fitting,
                )
                return

    def experts(self) -> Iterator[Finding]:
        if self.ep == 1:
            return
        node, shard = self.settings.at(DEGREES["ep"]), self.shard
        if self.size is not None and self.size.experts == 0:
            yield finding("torchtitan-experts-none", node, ep=self.ep)
            return
        if self.size is not None and self.size.experts % self.ep:
            yield finding("torchtitan-experts", node, ep=self.ep, experts=self.size.experts)
        if shard is not None and shard * self.cp * self.tp % self.ep:
            yield finding(
                "torchtitan-expert-mesh",
                node,
                ep=self.ep,
                ranks=shard * self.cp * self.tp,
                degrees=f"{shard} × cp {self.cp} × tp {self.tp}",
            )

    def batch(self) -> Iterator[Finding]:
        """The global batch is a multiple of local batch * data parallel ranks."""
        local, whole = self.settings.count(LOCAL, 8), self.settings.count("training.global_batch_size", -1)
        shard = self.shard
        if not local or whole is None or whole < 1 or shard is None:
            return
        ranks = shard * self.replicas
        if whole % (local * ranks):
            yield finding(
                "torchtitan-batch",
                self.settings.at("training.global_batch_size"),
                whole=whole,
                local=local,
                ranks=ranks,
                product=local * ranks,
            )
        elif whole > local * ranks and shard * self.cp > 1:
            yield finding(
                "torchtitan-accumulation",
                self.settings.at("training.global_batch_size"),
                steps=whole // (local * ranks),
            )

    def pipeline(self) -> Iterator[Finding]:
        """Name of the schedule; the local batch is cut into micro-batches that fill it."""
        given = self.settings.node(SCHEDULE)
        name = schedule_name(self.settings.text(SCHEDULE, "1F1B"))
        if given is not None and isinstance(given.scalar, str) and name not in ALL_SCHEDULES:
            close = near(name, ALL_SCHEDULES, limit=1)
            yield finding(
                "torchtitan-schedule",
                given,
                given=name,
                allowed=", ".join(ALL_SCHEDULES),
                hint=f"did you mean {close[0]}?" if close else "choose one of them",
            )
        local, piece = self.settings.count(LOCAL, 8), self.settings.count(PIECE, 1)
        if self.pp == 1 or not local or not piece or self.settings.counts_pieces:
            return
        node = self.settings.at(LOCAL, PIECE, DEGREES["pp"])
        if local % piece:
            yield finding("torchtitan-micro-batches", node, local=local, piece=piece)
            return
        count, stages = local // piece, self.pp * (1 if name in SINGLE else 2)
        rounds = max(1, count // self.pp)
        if name in ROUNDS and count % rounds:
            yield finding("torchtitan-rounds", node, named=name, count=count, pp=self.pp, rounds=rounds)
        elif count < stages:
            yield finding("torchtitan-bubble", node, count=count, stages=stages)
        if self.settings.text("parallelism.fsdp_reshard_after_forward") == "always":
            place = self.settings.at("parallelism.fsdp_reshard_after_forward")
            yield finding("torchtitan-reshard-pipeline", place, count=count)
        if name in SPLIT_BACKWARD and self.settings.text(MODE) == "full":
            yield finding("torchtitan-zero-bubble-recompute", self.settings.at(SCHEDULE, MODE), named=name)

    def stages(self) -> Iterator[Finding]:
        """Stages are a multiple of the ranks, one or several on each as the schedule has it, none empty."""
        key = "parallelism.pipeline_parallel_layers_per_stage"
        name = schedule_name(self.settings.text(SCHEDULE, "1F1B"))
        if self.pp == 1 or self.size is None or name not in ALL_SCHEDULES:
            return
        if self.is_current and self.size.tied:
            yield finding("torchtitan-tied-pipeline", self.settings.at(DEGREES["pp"]))
        if self.settings.node("parallelism.module_fqns_per_model_part") is not None:
            return
        stages = virtual_stages(self.settings, self.size)
        wrong = _wrong_stages(stages, self.pp, name) if stages is not None else ""
        if not wrong:
            stages = stages or self.pp * (1 if name in SINGLE else 2)
            wrong = _empty_stages(self.size, stages, *ends(self.settings))
        if wrong:
            yield finding("torchtitan-stages", self.settings.at(key, DEGREES["pp"]), wrong=wrong, pp=self.pp)

    def graphs(self) -> Iterator[Finding]:
        """CUDA graphs are on by default and hold neither pipelines nor most dispatchers of experts."""
        if not self.is_current or self.settings.is_on(GRAPHS) is not False:
            return
        has_experts = self.ep > 1 and (self.size is None or self.size.experts > 0)
        dispatcher = self.settings.text("model.moe_comm_backend", "standard")
        waits = has_experts and dispatcher not in FEWEST_SYNCLESS
        if self.pp > 1 or waits:
            what = (
                f"pipeline_parallel_degree {self.pp}" if self.pp > 1 else f"expert_parallel_degree {self.ep}"
            )
            yield finding(
                "torchtitan-cuda-graphs", self.settings.at(DEGREES["pp" if self.pp > 1 else "ep"]), what=what
            )

    def compiled(self) -> Iterator[Finding]:
        components = self.settings.node("compile.components")
        names = [each.scalar for each in components.items] if components is not None else ["model"]
        is_compiled = self.settings.is_on("compile.enable") is not False and "model" in names
        if self.settings.is_on(ASYNC):
            node = self.settings.at(ASYNC)
            if not is_compiled:
                yield finding("torchtitan-async-compile", node)
            elif self.tp == 1:
                yield finding("torchtitan-async-idle", node)
        if self.settings.text(MODE) == "memory_budget" and not is_compiled:
            yield finding("torchtitan-budget-compile", self.settings.at(MODE))
        for name, node in converter_names(self.settings).items():
            is_scaled = "loat8" in name or name.lower().startswith(("mx", "nvfp4", "quantize"))
            if is_scaled and not is_compiled:
                yield finding("torchtitan-scaled-compile", node, named=name)

    def recompute(self) -> Iterator[Finding]:
        node = self.settings.node("activation_checkpoint.selective_ac_option")
        mode = self.settings.text(MODE, "selective")
        if node is None or self.is_current or mode != "selective" or node.scalar is None:
            return
        given = str(node.scalar)
        if given != "op" and not given.isdigit():
            yield finding("torchtitan-selective-option", node, given=given)

    def precision(self) -> Iterator[Finding]:
        """What the device has to have for the converters."""
        device = self.job.value("device")
        if not isinstance(device, str):
            return
        try:
            given = accelerator(device)
        except InvalidInput:
            return
        for name, node in converter_names(self.settings).items():
            low = name.lower()
            is_fine = "mx" in low or "nvfp4" in low
            if (is_fine and given.fp4_flop_per_s is None) or (
                "float8" in low and given.fp8_flop_per_s is None
            ):
                needed = (
                    "Blackwell (compute capability 10.0)"
                    if is_fine
                    else "compute capability 8.9 (Ada, Hopper)"
                )
                yield finding("torchtitan-scaled-device", node, named=name, device=device, needed=needed)

    def context(self) -> Iterator[Finding]:
        if self.cp == 1 or not self.is_current:
            return
        node, name = self.settings.at(DEGREES["cp"]), self.settings.text("model.name")
        default = "varlen" if name == "gpt_oss" else "flex"
        if name in NO_CONTEXT:
            yield finding("torchtitan-context-model", node, named=name)
        elif self.settings.text("model.attn_backend", default) == "varlen":
            yield finding("torchtitan-context-varlen", node)

    def weights(self) -> Iterator[Finding]:
        node = self.settings.node("checkpoint.initial_load_path")
        if node is None or not self.is_current or not self.settings.is_on("checkpoint.enable"):
            return
        given = node.scalar
        if isinstance(given, str) and given and not is_open(given) and not ABSOLUTE.match(given):
            yield finding("torchtitan-load-path", node, given=given)


def _current_form(keys: list[str]) -> str:
    """How 0.3 writes one of some keys, of a renamed one if there is any."""
    known = [name for name in keys if name.startswith(SHOWN)] or keys or [LOCAL]
    renamed = [name for name in known if name in CURRENT]
    return f"config.{CURRENT[renamed[0]]} for {renamed[0]}" if renamed else f"config.{known[0]}"


def _wrong_stages(stages: int, pp: int, name: str) -> str:
    """What is wrong with a number of stages of all ranks; empty where nothing is."""
    if stages % pp:
        return f"layers_per_stage makes {stages} stages, which {pp} ranks cannot share"
    if name in SINGLE and stages != pp:
        return f"layers_per_stage makes {stages} stages, and {name} has one on each of {pp} ranks"
    if name not in SINGLE and stages < 2 * pp:
        return f"layers_per_stage makes {stages} stages, and {name} has two or more on each of {pp} ranks"
    return ""


def _empty_stages(size: Size, stages: int, first: int, last: int) -> str:
    """What is wrong with dealing layers to stages; empty where nothing is."""
    least = (size.layers + first + last) // stages
    if least == 0:
        return f"{stages} stages for {size.layers} layers and {first + last} for embedding and head"
    if max(first, last) > least:
        return f"{max(first, last)} layers less at an end, where a stage has {least}"
    return ""


def _version(text: str) -> tuple[int, ...]:
    """A version as numbers; what begins with none ("before 0.1") is older than all."""
    match = NUMBERS.match(text)
    return tuple(int(part) for part in match.group().split(".")) if match else (0,)


def _dotted(tree: Node) -> Iterator[tuple[str, Node]]:
    for path, node in every(tree):
        if len(path) > 1:
            yield ".".join(path), node
