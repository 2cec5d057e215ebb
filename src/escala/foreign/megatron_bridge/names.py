"""Megatron-Bridge's words beside Megatron-LM's and the field's: one table for reading and writing."""

from collections.abc import Mapping
from typing import Final

from escala.model.plan import Precision

SECTIONS: Final = (
    "model",
    "train",
    "optimizer",
    "scheduler",
    "ddp",
    "dataset",
    "checkpoint",
    "mixed_precision",
    "comm_overlap",
    "peft",
    "tokenizer",
    "logger",
    "validation",
    "dist",
    "rng",
    "profiling",
)
"""Parts of a ConfigContainer; where two say the same, the first counts."""
VIRTUAL: Final = "virtual_pipeline_model_parallel_size"
OTHERS: Final[Mapping[str, str]] = {
    "num_moe_experts": "num_experts",
    VIRTUAL: "num_virtual_stages_per_pipeline_rank",
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
    "fp8": "fp8_format",
    "fp4": "fp4_format",
}
"""Names that Megatron-LM's options spell otherwise."""
RECIPES: Final[Mapping[str, Precision]] = {
    "bf16_mixed": Precision.BF16,
    "fp16_mixed": Precision.FP16,
    "bf16_with_fp8_current_scaling_mixed": Precision.FP8_TENSORWISE,
    "bf16_with_fp8_delayed_scaling_mixed": Precision.FP8_TENSORWISE,
    "bf16_with_fp8_subchannel_scaling_mixed": Precision.FP8_BLOCKWISE,
    "bf16_with_mxfp8_mixed": Precision.MXFP8,
    "bf16_with_nvfp4_mixed": Precision.NVFP4,
}
"""Values of mixed_precision; hyphens are taken for underscores."""
MODELS: Final[Mapping[str, str]] = {
    "llama2_7b": "llama-2-7b",
    "llama3_8b": "llama-3-8b",
    "llama3_70b": "llama-3-70b",
    "llama31_8b": "llama-3.1-8b",
    "llama31_70b": "llama-3.1-70b",
    "llama31_405b": "llama-3.1-405b",
    "llama32_1b": "llama-3.2-1b",
    "llama32_3b": "llama-3.2-3b",
}
"""How names of recipes begin, beside the catalog's names."""
