"""Settings of torchtitan as facts of a job, with the defaults that count. Judges nothing."""

import math
from collections.abc import Iterator
from typing import Final

from escala.foreign.facts import Fact, Value, count_of, fact
from escala.foreign.places import Node, Place
from escala.foreign.torchtitan.meaning import (
    ALL_SCHEDULES,
    BACKENDS,
    CONVERTERS,
    DTYPES,
    MODES,
    OLD_CONVERTERS,
    RECIPES,
    RESHARDS,
    SCHEDULES,
    SINGLE,
    word,
)
from escala.foreign.torchtitan.settings import Settings
from escala.foreign.torchtitan.sizes import Size, network_of, size_of
from escala.model.plan import Precision
from escala.model.precision import recipe

DEGREES: Final = {
    "tp": "parallelism.tensor_parallel_degree",
    "pp": "parallelism.pipeline_parallel_degree",
    "cp": "parallelism.context_parallel_degree",
    "ep": "parallelism.expert_parallel_degree",
    "etp": "parallelism.expert_tensor_parallel_degree",
}
SHARD: Final = "parallelism.data_parallel_shard_degree"
REPLICATE: Final = "parallelism.data_parallel_replicate_degree"
LOCAL: Final = "training.local_batch_size"
PIECE: Final = "parallelism.pipeline_parallel_microbatch_size"
PIECES: Final = "parallelism.pipeline_parallel_microbatches"


def facts_of(settings: Settings, start: Place) -> Iterator[Fact]:
    """All facts; those of defaults have the place where the configuration begins."""
    return _Facts(settings, start).all()


class _Facts:
    """One configuration."""

    def __init__(self, settings: Settings, start: Place) -> None:
        self.settings, self.start = settings, start

    def all(self) -> Iterator[Fact]:
        """Facts of the model, of its data, and of how it is spread."""
        yield from self.model()
        yield from self.work()
        yield from self.degrees()
        yield from self.sharding()
        yield from self.batch()
        yield from self.pipeline()
        yield from self.precision()
        yield from self.memory()

    def said(self, name: str, value: Value | None, key: str) -> Iterator[Fact]:
        """A fact at its setting, or at the start where the setting has its default."""
        node = self.settings.node(key)
        if value is None or (node is None and not self.settings.is_whole):
            return
        where: Node | Place = node if node is not None else self.start
        said = key if node is not None else f"{key} (default)"
        yield fact(name, value, where, said, is_default=node is None)

    def model(self) -> Iterator[Fact]:
        name, flavor = self.settings.text("model.name"), self.settings.text("model.flavor")
        yield from self.said("model", network_of(name, flavor), "model.flavor")
        backend = self.settings.node("model.attn_backend")
        if backend is not None and isinstance(backend.scalar, str):
            yield fact("attention", backend.scalar, backend, "attn_backend")

    def work(self) -> Iterator[Fact]:
        yield from self.said(
            "sequence_tokens", self.settings.count("training.seq_len", 2048), "training.seq_len"
        )
        yield from self.said("steps", self.settings.count("training.steps", 10000), "training.steps")
        rank = self.settings.node("model.lora_rank")
        if rank is not None and (count := count_of(rank)) is not None:
            yield fact("lora_rank", count, rank, "LoRAConverter.rank")
        loads = [
            key
            for key in ("checkpoint.initial_load_path", "checkpoint.initial_load_in_hf")
            if (node := self.settings.node(key)) is not None and node.scalar
        ]
        lora = "LoRAConverter" in self.converters()
        method = "lora" if lora else "full" if loads else "pretrain"
        yield from self.said("method", method, "model.converters" if lora else (loads or ["checkpoint"])[0])
        yield from self.said("packing", True, "dataloader.dataset")
        for key, name in (("optimizer.name", "optimizer"), ("optimizer.lr", "learning_rate")):
            node = self.settings.node(key)
            kind = str if name == "optimizer" else (int, float)
            if node is not None and isinstance(node.scalar, kind) and not isinstance(node.scalar, bool):
                yield fact(name, node.scalar, node, key)

    def degrees(self) -> Iterator[Fact]:
        for name, key in DEGREES.items():
            if name not in ("etp",) or self.settings.node(key) is not None:
                yield from self.said(name, self.settings.count(key, 1), key)
        sp = "parallelism.enable_sequence_parallel"
        if (self.settings.count(DEGREES["tp"], 1) or 1) > 1:
            yield from self.said("sp", self.settings.is_on(sp, True), sp)
        if (self.settings.count(DEGREES["cp"], 1) or 1) > 1:
            method = "parallelism.context_parallel_rotate_method"
            kind = "ring" if self.settings.text(method) == "alltoall" else "all-gather"
            yield from self.said("cp_kind", kind, method)
        if (self.settings.count(DEGREES["ep"], 1) or 1) > 1:
            key = "model.moe_comm_backend"
            backend = BACKENDS.get(self.settings.text(key, "standard"))
            yield from self.said("dispatcher", word(backend) if backend is not None else None, key)

    def sharding(self) -> Iterator[Fact]:
        shard, replicas = self.settings.count(SHARD, -1), self.settings.count(REPLICATE, 1)
        cp = self.settings.count(DEGREES["cp"], 1)
        if shard is None or replicas is None or cp is None:
            return
        over = None if shard < 1 else shard * cp
        is_sharded = over is None or over > 1
        yield from self.said("zero", 3 if is_sharded else 0, SHARD)
        if replicas > 1:
            yield from self.said("replicas", replicas, REPLICATE)
        if over is not None:
            yield from self.said("shard", over, SHARD)
            yield from self.said("dp", shard * replicas, SHARD)
            product = shard * replicas * cp * self.product()
            yield fact("devices", product, self.settings.at(SHARD), "the product of degrees", is_default=True)
        if is_sharded:
            policy = "parallelism.fsdp_reshard_after_forward"
            pp = self.settings.count(DEGREES["pp"], 1)
            yield from self.said(
                "reshard", RESHARDS.get(self.settings.text(policy, "default"), pp == 1), policy
            )

    def product(self) -> int:
        """Ranks of tensor parallelism and of the pipeline."""
        return (self.settings.count(DEGREES["tp"], 1) or 1) * (self.settings.count(DEGREES["pp"], 1) or 1)

    def batch(self) -> Iterator[Fact]:
        """With a pipeline the local batch is cut into micro-batches; else it is one."""
        local, pp = self.settings.count(LOCAL, 8), self.settings.count(DEGREES["pp"], 1)
        whole, piece = self.settings.count("training.global_batch_size", -1), self.piece()
        shard, replicas = self.settings.count(SHARD, -1), self.settings.count(REPLICATE, 1)
        if local is None or pp is None or not (piece or pp == 1):
            return
        key = LOCAL if pp == 1 or self.settings.counts_pieces else PIECE
        yield from self.said("micro_batch", piece if pp > 1 else local, key)
        if whole is not None and whole > 0:
            yield from self.said("global_batch", whole, "training.global_batch_size")
        elif shard is not None and replicas is not None and shard > 0:
            yield from self.said("global_batch", local * shard * replicas, LOCAL)
        elif whole is not None:
            yield from self.said("accumulation", max(local // (piece or 1), 1) if pp > 1 else 1, LOCAL)

    def piece(self) -> int | None:
        """Samples of a micro-batch of the pipeline: as set, or the local batch cut in as many as set."""
        if not self.settings.counts_pieces:
            return self.settings.count(PIECE, 1)
        local, count = self.settings.count(LOCAL, 8), self.settings.count(PIECES) or self.stages()
        return local // count if local and local % count == 0 else None

    def stages(self) -> int:
        """Stages of all ranks."""
        pp = self.settings.count(DEGREES["pp"], 1) or 1
        parts = self.settings.node("parallelism.module_fqns_per_model_part")
        layers = stage_layers(parts) if parts is not None else ()
        points = len(parts.items) if parts is not None and not layers else 0
        stages = len(layers) or (points + 1 if points else None) or virtual_stages(self.settings, self.size)
        name = schedule_name(self.settings.text("parallelism.pipeline_parallel_schedule", "1F1B"))
        return stages or (pp if name in SINGLE else 2 * pp)

    def pipeline(self) -> Iterator[Fact]:
        pp, key = self.settings.count(DEGREES["pp"], 1), "parallelism.pipeline_parallel_schedule"
        if pp is None or pp < 2:
            return
        name = schedule_name(self.settings.text(key, "1F1B"))
        if name in SCHEDULES:
            yield from self.said("schedule", word(SCHEDULES[name]), key)
        parts = self.settings.node("parallelism.module_fqns_per_model_part")
        layers = stage_layers(parts) if parts is not None else ()
        yield from self.said("virtual_stages", max(self.stages() // pp, 1), key)
        if layers:
            yield from self.said(
                "stage_layers",
                tuple(str(count) for count in layers),
                "parallelism.module_fqns_per_model_part",
            )

    def precision(self) -> Iterator[Fact]:
        named = self.converters()
        for name, each in named.items():
            scaled = CONVERTERS.get(name) or OLD_CONVERTERS.get(name)
            if scaled in (Precision.FP8_ROWWISE, Precision.FP8_TENSORWISE):
                scaled = RECIPES.get(self.settings.text("model.float8_recipe"), scaled)
            if scaled is not None:
                yield fact("precision", recipe(scaled).name, each, "converters")
                return
        key = "training.mixed_precision_param"
        dtype = DTYPES.get(self.settings.text(key, "bfloat16"))
        yield from self.said("precision", recipe(dtype).name if dtype is not None else None, key)
        weights = self.settings.node("training.dtype")
        if weights is not None and weights.scalar in DTYPES:
            yield fact("dtype_weights", recipe(DTYPES[str(weights.scalar)]).name, weights, "training.dtype")

    def memory(self) -> Iterator[Fact]:
        yield from self.recompute()
        offload = "training.enable_cpu_offload"
        if self.settings.is_on(offload):
            yield from self.said("offload_optimizer", "cpu", offload)
            yield from self.said("offload_params", "cpu", offload)
        components = self.settings.node("compile.components")
        names = [each.scalar for each in components.items] if components is not None else ["model"]
        is_on = self.settings.is_on("compile.enable")
        if is_on is not None:
            yield from self.said("compile", is_on and "model" in names, "compile.enable")
        kind = self.settings.text("loss.kind")
        if kind in ("ChunkedLossWrapper", "CrossEntropyLoss"):
            yield from self.said("fused_loss", kind == "ChunkedLossWrapper", "loss.kind")

    def recompute(self) -> Iterator[Fact]:
        """Selective by operation, or older: every n-th layer in full."""
        key, option = "activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"
        mode = self.settings.text(key, "selective" if self.settings.node(key) is None else "")
        given = self.settings.text(option) or str(self.settings.count(option) or "")
        every = given if given or self.settings.is_current else "2"
        if mode == "selective" and every.isdigit():
            size = self.size
            if int(every) < 2:
                yield from self.said("recompute", "full", option)
            elif size is not None:
                yield from self.said("recompute", "first-layers", option)
                yield from self.said("recompute_layers", size.layers // int(every), option)
        elif mode in MODES:
            yield from self.said("recompute", word(MODES[mode]), key)

    @property
    def size(self) -> Size | None:
        """Sizes of the model, where this version ships it."""
        return size_of(self.settings.text("model.name"), self.settings.text("model.flavor"))

    def converters(self) -> dict[str, Node]:
        """Names of converters, of a list or of a text with commas."""
        return converter_names(self.settings)


def converter_names(settings: Settings) -> dict[str, Node]:
    """Names of converters, of a list or of a text with commas, with their places."""
    node = settings.node("model.converters")
    if node is None:
        return {}
    if isinstance(node.scalar, str):
        return {name.strip(): node for name in node.scalar.split(",") if name.strip()}
    return {str(each.scalar): each for each in node.items}


def schedule_name(given: str) -> str:
    """The name as torch has it; upper and lower case are the same there."""
    return next((name for name in ALL_SCHEDULES if name.lower() == given.lower()), given)


def virtual_stages(settings: Settings, size: Size | None) -> int | None:
    """Stages of all ranks: (layers + first less + last less) / layers of a stage, rounded up."""
    per_stage = settings.count("parallelism.pipeline_parallel_layers_per_stage")
    if size is None or not per_stage or per_stage < 1:
        return None
    first, last = ends(settings)
    return math.ceil((size.layers + first + last) / per_stage)


def ends(settings: Settings) -> tuple[int, int]:
    """Layers that the first and the last stage have less."""
    first = settings.count("parallelism.pipeline_parallel_first_stage_less_layers", 1)
    last = settings.count("parallelism.pipeline_parallel_last_stage_less_layers", 1)
    return (1 if first is None else first), (1 if last is None else last)


def stage_layers(parts: Node) -> tuple[int, ...]:
    """Layers of each stage from lists of module names."""
    return tuple(
        sum(str(each.scalar).startswith("layers.") for each in part.items)
        for part in parts.items
        if part.items
    )
