"""The trainer's arguments as transformers declares them, with those of other versions.

The versions in which fields came and went are those of `training_args.py` of one release of each minor
version from 4.30 to 5.24, whose fields were compared.
"""

from typing import Final

import msgspec

from escala.foreign.keys import Gone, Key, Section, Table
from oracles.dataclass_keys import section_of

SINCE: Final = {
    "lr_scheduler_kwargs": "4.36",
    "optim_target_modules": "4.39",
    "average_tokens_across_devices": "4.46",
    "activation_checkpointing": "5.23",
    "activation_checkpointing_kwargs": "5.23",
    "gradient_checkpointing_kwargs": "4.35",
    "use_liger_kernel": "4.45",
    "liger_kernel_config": "4.53",
    "use_cache": "5.0",
    "neftune_noise_alpha": "4.35",
    "torch_empty_cache_steps": "4.43",
    "include_num_input_tokens_seen": "4.36",
    "project": "4.57",
    "trackio_space_id": "4.57",
    "trackio_bucket_id": "5.6",
    "trackio_static_space_id": "5.6",
    "eval_strategy": "4.41",
    "eval_on_start": "4.42",
    "eval_do_concat_batches": "4.40",
    "eval_use_gather_object": "4.43",
    "include_for_metrics": "4.46",
    "batch_eval_metrics": "4.41",
    "save_only_model": "4.36",
    "enable_jit_checkpoint": "5.0",
    "hub_always_push": "4.32",
    "hub_revision": "4.53",
    "restore_callback_states_from_checkpoint": "4.41",
    "use_cpu": "4.32",
    "accelerator_config": "4.38",
    "parallelism_config": "4.56",
    "dataloader_persistent_workers": "4.36",
    "dataloader_prefetch_factor": "4.38",
    "dataloader_multiprocessing_context": "5.15",
    "dataloader_in_order": "5.15",
    "train_sampling_strategy": "5.2",
    "ddp_broadcast_buffers": "4.31",
    "ddp_static_graph": "5.6",
}
GONE: Final = {
    "overwrite_output_dir": Gone(removed="5.0", why="an output folder that exists is written into"),
    "evaluation_strategy": Gone(to="eval_strategy", deprecated="4.41", removed="4.51"),
    "per_gpu_train_batch_size": Gone(to="per_device_train_batch_size", deprecated="4.0", removed="5.0"),
    "per_gpu_eval_batch_size": Gone(to="per_device_eval_batch_size", deprecated="4.0", removed="5.0"),
    "warmup_ratio": Gone(
        to="warmup_steps", deprecated="5.0", removed="5.15", why="a number below 1 is a share of all steps"
    ),
    "logging_dir": Gone(
        deprecated="5.0", removed="5.15", why="the variable TENSORBOARD_LOGGING_DIR takes its place"
    ),
    "save_safetensors": Gone(removed="5.0", why="safetensors is the only format"),
    "no_cuda": Gone(to="use_cpu", deprecated="4.32", removed="5.0"),
    "use_mps_device": Gone(removed="5.0", why="mps is used where there is one"),
    "jit_mode_eval": Gone(removed="5.0"),
    "use_ipex": Gone(removed="4.57"),
    "fp16_opt_level": Gone(removed="5.0", why="apex is gone"),
    "half_precision_backend": Gone(removed="5.0", why="apex is gone"),
    "fp16_backend": Gone(removed="5.0", why="apex is gone"),
    "tpu_num_cores": Gone(removed="5.0"),
    "tpu_metrics_debug": Gone(removed="5.0"),
    "past_index": Gone(removed="5.0"),
    "sharded_ddp": Gone(removed="4.35", why="fairscale is gone; fsdp takes its place"),
    "fsdp_min_num_params": Gone(removed="5.0", why="it is min_num_params in fsdp_config"),
    "fsdp_transformer_layer_cls_to_wrap": Gone(
        removed="5.0", why="it is transformer_layer_cls_to_wrap in fsdp_config"
    ),
    "adafactor": Gone(removed="5.0", why="optim: adafactor takes its place"),
    "group_by_length": Gone(removed="5.2", why="train_sampling_strategy: group_by_length takes its place"),
    "use_legacy_prediction_loop": Gone(removed="5.0"),
    "include_inputs_for_metrics": Gone(removed="5.0", why="include_for_metrics takes its place"),
    "include_tokens_per_second": Gone(removed="5.0"),
    "push_to_hub_model_id": Gone(to="hub_model_id", removed="5.0"),
    "push_to_hub_organization": Gone(removed="5.0", why="hub_model_id names the organization too"),
    "push_to_hub_token": Gone(to="hub_token", removed="5.0"),
    "mp_parameters": Gone(removed="5.0"),
    "torchdynamo": Gone(to="torch_compile_backend", removed="5.0"),
    "ray_scope": Gone(removed="5.0"),
    "xpu_backend": Gone(to="ddp_backend", removed="4.32"),
    "dispatch_batches": Gone(removed="4.51", why="it is a key of accelerator_config"),
    "split_batches": Gone(removed="4.51", why="it is a key of accelerator_config"),
    "tp_size": Gone(removed="4.52", why="parallelism_config takes its place"),
    "gradient_checkpointing": Gone(to="activation_checkpointing", deprecated="5.23"),
    "gradient_checkpointing_kwargs": Gone(to="activation_checkpointing_kwargs", deprecated="5.23"),
}
FSDP: Final = (
    "version",
    "min_num_params",
    "transformer_layer_cls_to_wrap",
    "auto_wrap_policy",
    "cpu_offload",
    "cpu_ram_efficient_loading",
    "state_dict_type",
    "activation_checkpointing",
    "reshard_after_forward",
    "forward_prefetch",
    "backward_prefetch",
    "use_orig_params",
    "sync_module_states",
    "limit_all_gathers",
    "xla",
    "xla_fsdp_v2",
    "xla_fsdp_grad_ckpt",
    "xla_fsdp_settings",
)
"""What `_process_fsdp_args` asks its table for; the test looks for each in its text."""
PREFIX: Final = "fsdp_"
SWITCH: Final = Key(types=("array", "boolean", "string"))
"""fsdp, which is declared as a text for the command line and taken as true in files."""


def table() -> Table:
    """All keys."""
    import transformers

    return Table(
        tool="transformers",
        version=transformers.__version__,
        source=f"transformers {transformers.__version__} training_args.py",
        sections={
            "TrainingArguments": _section(transformers.TrainingArguments),
            "Seq2SeqTrainingArguments": _section(transformers.Seq2SeqTrainingArguments),
            "fsdp_config": Section(
                keys={name: Key() for key in FSDP for name in (key, PREFIX + key)}, strict=False
            ),
        },
    )


def _section(kind: type) -> Section:
    given = section_of(kind, nested={"fsdp_config": "fsdp_config"})
    keys = {
        name: msgspec.structs.replace(key, since=SINCE.get(name, ""))
        for name, key in given.keys.items()
        if name not in GONE
    }
    return Section(keys={**keys, "fsdp": SWITCH}, gone=GONE)
