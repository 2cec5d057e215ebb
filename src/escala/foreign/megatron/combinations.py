"""Arguments that need or exclude each other, as a table. The words are in data/rules/megatron.toml."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from escala.foreign.findings import Finding, finding
from escala.foreign.megatron.arguments import Arguments

ARGUMENTS: Final = "megatron-core 0.19.2 training/arguments.py, validate_args"
CONFIG: Final = "megatron-core 0.19.2 core/transformer/transformer_config.py, __post_init__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """An argument that is refused unless one of others is there; a value after = has to be that one."""

    name: str
    one_of: tuple[str, ...]
    source: str = ARGUMENTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Clash:
    """Two arguments that are refused together."""

    name: str
    other: str
    source: str = ARGUMENTS


FULL: Final = "recompute_granularity=full"
SELECTIVE: Final = "recompute_granularity=selective"
NEEDS: Final = (
    Need(
        name="overlap_param_gather",
        one_of=("use_distributed_optimizer", "use_megatron_fsdp", "optimizer=dist_muon"),
    ),
    Need(name="overlap_param_gather", one_of=("overlap_grad_reduce",)),
    Need(name="overlap_param_gather_with_optimizer_step", one_of=("overlap_param_gather",)),
    Need(name="tp_comm_overlap", one_of=("sequence_parallel",)),
    Need(
        name="fp8_param_gather",
        one_of=("use_distributed_optimizer", "use_megatron_fsdp", "use_torch_fsdp2"),
    ),
    Need(name="fp8_param_gather", one_of=("fp8_format",), source=CONFIG),
    Need(name="fp4_param_gather", one_of=("fp4_format",)),
    Need(name="optimizer_cpu_offload", one_of=("use_precision_aware_optimizer",)),
    Need(name="use_megatron_fsdp", one_of=("ckpt_format=fsdp_dtensor",)),
    Need(name="use_torch_fsdp2", one_of=("untie_embeddings_and_output_weights",)),
    Need(name="distribute_saved_activations", one_of=(FULL,)),
    Need(name=FULL, one_of=("recompute_method",), source=CONFIG),
    Need(name=FULL, one_of=("recompute_num_layers",), source=CONFIG),
    Need(
        name="moe_shared_expert_overlap",
        one_of=("moe_token_dispatcher_type=alltoall", "moe_token_dispatcher_type=flex"),
        source=CONFIG,
    ),
    Need(name="moe_pad_expert_input_to_capacity", one_of=("moe_expert_capacity_factor",), source=CONFIG),
    Need(name="cp_comm_type=a2a+p2p", one_of=("hierarchical_context_parallel_sizes",)),
    Need(name="save", one_of=("save_interval",)),
    Need(name="fp32_residual_connection", one_of=("bf16", "fp16")),
)
CLASHES: Final = (
    Clash(name="fp16", other="bf16"),
    Clash(name="fp4_format", other="fp8_format"),
    Clash(name=SELECTIVE, other="recompute_method"),
    Clash(name=SELECTIVE, other="recompute_num_layers", source=CONFIG),
    Clash(name="distribute_saved_activations", other="sequence_parallel", source=CONFIG),
    Clash(name="cpu_offloading_num_layers", other="recompute_granularity", source=CONFIG),
    Clash(name="use_torch_fsdp2", other="use_distributed_optimizer"),
    Clash(name="use_torch_fsdp2", other="fp16"),
    Clash(name="train_iters", other="train_samples"),
    Clash(name="train_iters", other="lr_decay_samples"),
    Clash(name="train_iters", other="lr_warmup_samples"),
    Clash(name="train_samples", other="lr_decay_iters"),
    Clash(name="train_samples", other="lr_warmup_iters"),
    Clash(name="data_path", other="mock_data"),
    Clash(name="num_layers_per_virtual_pipeline_stage", other="num_virtual_stages_per_pipeline_rank"),
    Clash(name="num_layers_per_virtual_pipeline_stage", other="pipeline_model_parallel_layout"),
    Clash(name="num_virtual_stages_per_pipeline_rank", other="pipeline_model_parallel_layout"),
    Clash(name="num_layers_per_virtual_pipeline_stage", other="decoder_first_pipeline_num_layers"),
    Clash(name="num_layers_per_virtual_pipeline_stage", other="decoder_last_pipeline_num_layers"),
    Clash(name="multi_latent_attention", other="group_query_attention"),
    Clash(name="enable_cuda_graph", other="external_cuda_graph"),
    Clash(name="cross_entropy_loss_fusion", other="cross_entropy_fusion_impl=te"),
    Clash(name="grad_reduce_in_bf16", other="accumulate_allreduce_grads_in_fp32"),
)
LENGTHS: Final = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size")
UNUSED: Final = (
    ("recompute_method", "recompute_granularity"),
    ("recompute_num_layers", "recompute_granularity"),
    ("recompute_modules", "recompute_granularity"),
    ("fp8_recipe", "fp8_format"),
    ("num_query_groups", "group_query_attention"),
    ("moe_router_topk", "num_experts"),
)
"""Arguments that nothing reads without another one."""


def combinations_of(given: Arguments) -> Iterator[Finding]:
    """What needs, excludes or passes over what."""
    yield from _needs(given)
    yield from _clashes(given)
    yield from _unused(given)
    yield from _sharded_by_torch(given)
    yield from _rates(given)
    if given.is_on("sequence_parallel") and given.count(LENGTHS[0], 1) == 1:
        yield finding("megatron-sp-alone", given.place("sequence_parallel"))
    if given.is_on("use_flash_attn"):
        yield finding("megatron-flash-flag", given.place("use_flash_attn"))


def _holds(given: Arguments, term: str) -> bool:
    name, sign, value = term.partition("=")
    return given.word(name) == value if sign else given.is_on(name)


def _place_of(given: Arguments, term: str) -> str:
    name, sign, value = term.partition("=")
    return f"{given.spelled(name)} {value}" if sign else given.spelled(name)


def _needs(given: Arguments) -> Iterator[Finding]:
    for need in NEEDS:
        is_known = given.is_whole or any(term.partition("=")[0] in given.nodes for term in need.one_of)
        if _holds(given, need.name) and is_known and not any(_holds(given, term) for term in need.one_of):
            wanted = " or ".join(_place_of(given, term) for term in need.one_of)
            place = given.place(need.name.partition("=")[0])
            yield finding(
                "megatron-needs", place, key=_place_of(given, need.name), wanted=wanted, source_of=need.source
            )


def _clashes(given: Arguments) -> Iterator[Finding]:
    for clash in CLASHES:
        if _holds(given, clash.name) and _holds(given, clash.other):
            yield finding(
                "megatron-clash",
                given.place(clash.other.partition("=")[0]),
                key=_place_of(given, clash.name),
                other=_place_of(given, clash.other),
                source_of=clash.source,
            )


def _unused(given: Arguments) -> Iterator[Finding]:
    for name, master in UNUSED:
        is_default = name == "num_query_groups" and given.count(name) == given.count("num_attention_heads")
        activations = master == "recompute_granularity" and given.is_on("recompute_activations")
        if given.is_on(name) and given.is_off(master) and not activations and not is_default:
            key, wanted = given.spelled(name), given.spelled(master)
            yield finding("megatron-unused", given.place(name), key=key, master=wanted)


def _sharded_by_torch(given: Arguments) -> Iterator[Finding]:
    for name in LENGTHS[1:]:
        if given.is_on("use_torch_fsdp2") and (given.count(name, 1) or 1) > 1:
            yield finding(
                "megatron-clash",
                given.place(name),
                key=given.spelled("use_torch_fsdp2"),
                other=f"{given.spelled(name)} {given.count(name)}",
                source_of=ARGUMENTS,
            )
    offloaded = given.count("cpu_offloading_num_layers", 0)
    if offloaded and (given.count(LENGTHS[1], 1) or 1) > 1:
        yield finding(
            "megatron-clash",
            given.place("cpu_offloading_num_layers"),
            key=given.spelled("cpu_offloading_num_layers"),
            other=f"{given.spelled(LENGTHS[1])} {given.count(LENGTHS[1])}",
            source_of=CONFIG,
        )


def _rates(given: Arguments) -> Iterator[Finding]:
    rate, least = given.number("lr"), given.number("min_lr")
    if rate is not None and least is not None and least > rate:
        yield finding("megatron-learning-rate", given.place("min_lr"), rate=f"{rate:g}", least=f"{least:g}")
