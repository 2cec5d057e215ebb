"""Which keys TOML files of torchtitan had, before 0.3 left TOML: those of 0.2.2 and the names before."""

from functools import cache
from typing import Final

import msgspec

from escala.foreign.keys import Key, Section, Table, table

BEFORE: Final[dict[str, tuple[str, ...]]] = {
    "": ("float8", "mx"),
    "job": ("use_for_integration_test", "print_args"),
    "model": ("norm_type", "mx_converters"),
    "metrics": ("enable_color_printing", "rank_0_only"),
    "optimizer": ("fused", "early_step_in_backward"),
    "lr_scheduler": ("lr_min",),
    "training": (
        "batch_size",
        "warmup_steps",
        "compile",
        "data_parallel_degree",
        "data_parallel_shard_degree",
        "data_parallel_replicate_degree",
        "tensor_parallel_degree",
        "enable_fp8_linear",
        "enable_float8_linear",
        "seed",
        "deterministic",
        "debug_moe_force_load_balance",
    ),
    "experimental": (
        "pipeline_parallel_degree",
        "pipeline_parallel_schedule",
        "pipeline_parallel_schedule_csv",
        "pipeline_parallel_split_points",
        "pipeline_parallel_microbatches",
        "context_parallel_degree",
        "context_parallel_rotate_method",
        "enable_async_tensor_parallel",
        "enable_compiled_autograd",
        "enable_loss_parallel",
        "custom_model_path",
    ),
    "parallelism": (
        "enable_compiled_autograd",
        "pipeline_parallel_split_points",
        "pipeline_parallel_microbatches",
    ),
    "checkpoint": (
        "enable_checkpoint",
        "initial_load_model_weights_only",
        "last_save_model_weights_only",
        "model_weights_only",
        "interval_type",
    ),
    "activation_checkpoint": (),
    "memory_estimation": ("enabled",),
    "fault_tolerance": ("sync_steps", "should_quantize", "fragment_sync_delay", "fragment_update_alpha"),
    "float8": (
        "enable_float8_linear",
        "enable_fsdp_float8_all_gather",
        "precompute_float8_dynamic_scale_for_fsdp",
        "force_recompute_fp8_weight_in_bwd",
        "scaling_type_input",
        "scaling_type_weight",
        "scaling_type_grad_output",
        "recipe_name",
        "filter_fqns",
        "emulate",
        "moe_fqns_prototype",
    ),
    "mx": ("use_fp8_dim1_cast_triton_kernel", "recipe_name", "filter_fqns", "moe_fqns_prototype"),
}
"""Names of 2024 and of 0.1.0 (its config_manager.py) that 0.2.2 has no more, by section."""


@cache
def older_table() -> Table:
    """Keys of 0.2.2 and before; names only, since older values had other types (converters was a text)."""
    known = table("torchtitan-toml")
    sections = {
        name: Section(
            keys={key: Key(section=each.section) for key, each in section.keys.items()}
            | {key: Key(section=key if not name else "") for key in BEFORE.get(name, ())}
        )
        for name, section in known.sections.items()
    }
    added = {
        name: Section(keys={key: Key() for key in keys})
        for name, keys in BEFORE.items()
        if name not in known.sections
    }
    return msgspec.structs.replace(known, version="0.2.2 and before", sections={**sections, **added})
