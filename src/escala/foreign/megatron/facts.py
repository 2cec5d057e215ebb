"""What arguments say of a job, in the field's words. Knows no condition under which they are wrong."""

from collections.abc import Iterator
from typing import Final

from escala.foreign.facts import Fact, fact
from escala.foreign.megatron.arguments import Arguments
from escala.foreign.megatron.names import (
    CONTEXT,
    COUNTS,
    DISPATCHERS,
    FP8_RECIPE,
    FP8_RECIPES,
    SHARDING,
    spoken_choice,
)
from escala.model.plan import Precision
from escala.model.precision import recipe

VIRTUAL: Final = ("num_virtual_stages_per_pipeline_rank", "num_layers_per_virtual_pipeline_stage")


def facts_of(given: Arguments) -> Iterator[Fact]:
    """All of them."""
    for name, what in COUNTS.items():
        yield from _said(given, what, given.count(name), name)
    for name, what in (("lr", "learning_rate"), ("optimizer", "optimizer")):
        yield from _said(given, what, given.number(name) if name == "lr" else given.word(name), name)
    yield from _said(given, "precision", precision_of(given), "fp4_format", "fp8_format", "bf16", "fp16")
    yield from _states(given)
    yield from _axes(given)
    yield from _recompute(given)
    yield from _offload(given)
    if given.is_on("sft") or given.is_on("finetune"):
        yield from _said(given, "method", "full", "sft", "finetune")
    elif given.is_whole:
        yield from _said(given, "method", "pretrain", "train_iters")


def _said(given: Arguments, what: str, value: str | int | float | bool | None, *names: str) -> Iterator[Fact]:
    """A fact at the first of the names that is given."""
    if value is not None:
        named = next((name for name in names if name in given.nodes), names[0])
        yield fact(what, value, given.nodes.get(named, given.start), given.spelled(named))


def precision_of(given: Arguments) -> str | None:
    """The number format by the names of escala plan --precision; None where nothing says it."""
    if given.is_on("fp4_format"):
        return recipe(Precision.NVFP4).name
    if given.is_on("fp8_format"):
        known = FP8_RECIPES.get(given.word("fp8_recipe") or FP8_RECIPE)
        return recipe(known).name if known is not None else None
    if given.is_on("bf16") or given.is_on("fp16"):
        return "bf16" if given.is_on("bf16") else "fp16"
    return "fp32" if given.is_whole else None


def zero_of(given: Arguments) -> int | None:
    """The ZeRO stage: 1 with the distributed optimizer, the strategy's with Megatron-FSDP."""
    if given.is_on("use_torch_fsdp2"):
        return 3
    if given.is_on("use_megatron_fsdp"):
        return SHARDING.get(given.word("data_parallel_sharding_strategy") or "optim_grads_params")
    if given.is_on("use_distributed_optimizer"):
        return 1
    return 0 if given.is_off("use_distributed_optimizer") else None


def _states(given: Arguments) -> Iterator[Fact]:
    zero = zero_of(given)
    where = ("use_torch_fsdp2", "use_megatron_fsdp", "use_distributed_optimizer")
    yield from _said(given, "zero", zero, *where)
    if zero == 3:
        yield from _said(given, "reshard", not given.is_on("torch_fsdp2_no_reshard_after_forward"), *where)


def _axes(given: Arguments) -> Iterator[Fact]:
    tp, pp, ep = (given.count(f"{each}_model_parallel_size", 1) for each in ("tensor", "pipeline", "expert"))
    if tp is not None and tp > 1 and (given.is_on("sequence_parallel") or given.is_off("sequence_parallel")):
        is_on = given.is_on("sequence_parallel")
        yield from _said(given, "sp", is_on, "sequence_parallel", "tensor_model_parallel_size")
    if pp is not None and pp > 1:
        virtual = virtual_of(given)
        if virtual is not None:
            schedule = "interleaved" if virtual > 1 else "1f1b"
            yield from _said(given, "schedule", schedule, *VIRTUAL, "pipeline_model_parallel_size")
            yield from _said(given, "virtual_stages", virtual, *VIRTUAL, "pipeline_model_parallel_size")
    kind = CONTEXT.get(given.word("cp_comm_type") or "p2p")
    if kind is not None and (given.count("context_parallel_size") or 1) > 1:
        yield from _said(given, "cp_kind", spoken_choice(kind), "cp_comm_type", "context_parallel_size")
    if given.count("num_experts") or (ep or 1) > 1:
        etp = given.count("expert_tensor_parallel_size", tp)
        yield from _said(given, "etp", etp, "expert_tensor_parallel_size", "num_experts")
        way = given.word("moe_token_dispatcher_type") or ("allgather" if given.is_whole else "")
        if way in DISPATCHERS:
            said = spoken_choice(DISPATCHERS[way])
            yield from _said(given, "dispatcher", said, "moe_token_dispatcher_type", "num_experts")


def virtual_of(given: Arguments) -> int | None:
    """Stages of a pipeline on each of its ranks; None where a layout says it, or the numbers do not fit."""
    stages = given.count(VIRTUAL[0])
    if stages is not None:
        return stages
    if VIRTUAL[1] in given.nodes:
        layers, each = dealt_layers(given), given.count(VIRTUAL[1])
        pp = given.count("pipeline_model_parallel_size", 1)
        return layers // pp // each or 1 if layers and each and pp else None
    return 1 if given.is_whole and "pipeline_model_parallel_layout" not in given.nodes else None


def dealt_layers(given: Arguments) -> int | None:
    """Layers that are dealt to stages: embedding and loss count as one each where that is asked for."""
    layers = given.count("num_layers")
    ends = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
    return None if layers is None else layers + sum(given.is_on(name) for name in ends)


def _recompute(given: Arguments) -> Iterator[Fact]:
    granularity = given.word("recompute_granularity")
    selective = granularity == "selective" or given.is_on("recompute_activations")
    where = ("recompute_granularity", "recompute_activations")
    if selective:
        yield from _said(given, "recompute", "selective", *where)
    elif granularity == "full" and _first_layers(given) == 0:
        yield from _said(given, "recompute", "none", "recompute_num_layers")
    elif granularity == "full" and given.word("recompute_method") == "block":
        yield from _said(given, "recompute", "first-layers", *where)
        layers, virtual = given.count("recompute_num_layers"), virtual_of(given)
        if layers is not None and virtual is not None:  # the number holds for each stage on a rank
            yield from _said(given, "recompute_layers", layers * virtual, "recompute_num_layers")
    elif granularity == "full":
        yield from _said(given, "recompute", "full", *where)
    elif given.is_off("recompute_granularity"):
        yield from _said(given, "recompute", "none", *where)


def _first_layers(given: Arguments) -> int | None:
    """Layers of a stage that are recomputed, where only the first ones are."""
    return given.count("recompute_num_layers") if given.word("recompute_method") == "block" else None


def _offload(given: Arguments) -> Iterator[Fact]:
    if given.is_on("optimizer_cpu_offload"):
        yield from _said(given, "offload_optimizer", "cpu", "optimizer_cpu_offload")
    layers = given.count("cpu_offloading_num_layers")
    if given.is_on("fine_grained_activation_offloading") or (layers or 0) > 0:
        where = ("fine_grained_activation_offloading", "cpu_offloading_num_layers")
        yield from _said(given, "offload_activations", "cpu", *where)
