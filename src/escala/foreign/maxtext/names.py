"""MaxText's words beside the field's: one table for reading and for writing. Knows no file."""

from collections.abc import Mapping
from typing import Final

from escala.model.plan import ContextKind, Precision, Recompute

DATA_AXES: Final = ("data", "fsdp", "fsdp_transpose", "expert")
"""Axes that divide the samples of a batch."""
SHARD_AXES: Final = ("fsdp", "fsdp_transpose", "sequence", "context", "expert")
"""Axes that weights are sharded over beside those of TP (logical axis `embed` of base.yml)."""
TENSOR_AXES: Final = ("tensor", "tensor_sequence")
CONTEXT_AXES: Final = ("context", "sequence")
ALONE: Final = ("autoregressive", "context_autoregressive", "context_usp_ulysses", "diloco")
AXES: Final = (*DATA_AXES, *TENSOR_AXES, *CONTEXT_AXES, "pipeline", *ALONE)
LEVELS: Final = ("ici", "dcn")
FREE: Final[Mapping[str, str]] = {"ici": "fsdp", "dcn": "data"}
"""The axis of a level that takes what is left over, where nothing else is said (-1)."""
REMAT: Final[Mapping[str, Recompute]] = {
    "full": Recompute.FULL,
    "minimal": Recompute.SELECTIVE,
    "save_dot_except_mlp": Recompute.SELECTIVE,
    "save_dot_except_mlpwi": Recompute.SELECTIVE,
    "save_dot_with_context_except_mlp": Recompute.SELECTIVE,
    "save_qkv_proj": Recompute.SELECTIVE,
    "save_out_proj": Recompute.SELECTIVE,
    "qkv_proj_offloaded": Recompute.SELECTIVE,
    "minimal_offloaded": Recompute.SELECTIVE,
    "minimal_with_context": Recompute.NONE,  # only operations element by element are done again
}
OFFLOADED: Final = ("qkv_proj_offloaded", "minimal_offloaded")
QUANTIZATIONS: Final[Mapping[str, Precision]] = {
    "fp8": Precision.FP8_TENSORWISE,
    "fp8_full": Precision.FP8_TENSORWISE,
    "fp8_gpu": Precision.FP8_TENSORWISE,
    "nanoo_fp8": Precision.FP8_TENSORWISE,
    "te_fp8_currentscaling": Precision.FP8_TENSORWISE,
    "te_fp8_delayedscaling": Precision.FP8_TENSORWISE,
    "te_mxfp8": Precision.MXFP8,
    "te_nvfp4": Precision.NVFP4,
}
DTYPES: Final[Mapping[str, Precision]] = {
    "bfloat16": Precision.BF16,
    "float16": Precision.FP16,
    "float32": Precision.FP32,
}
STRATEGIES: Final[Mapping[str, ContextKind]] = {
    "all_gather": ContextKind.ALL_GATHER,
    "ring": ContextKind.RING,
    "ulysses": ContextKind.ULYSSES,
}
MODELS: Final[Mapping[str, str]] = {
    "llama2-7b": "llama-2-7b",
    "llama2-13b": "llama-2-13b",
    "llama2-70b": "llama-2-70b",
    "llama3-8b": "llama-3-8b",
    "llama3-70b": "llama-3-70b",
    "llama3.1-8b": "llama-3.1-8b",
    "llama3.1-70b": "llama-3.1-70b",
    "llama3.1-405b": "llama-3.1-405b",
    "llama3.3-70b": "llama-3.3-70b",
    "mistral-7b": "mistral-7b",
    "mixtral-8x7b": "mixtral-8x7b",
    "mixtral-8x22b": "mixtral-8x22b",
    "gemma-2b": "gemma-2b",
    "gemma-7b": "gemma-7b",
    "gemma2-2b": "gemma-2-2b",
    "gemma2-9b": "gemma-2-9b",
    "gemma2-27b": "gemma-2-27b",
    "gemma3-12b": "gemma-3-12b",
    "gemma3-27b": "gemma-3-27b",
    "gpt-oss-20b": "gpt-oss-20b",
    "gpt-oss-120b": "gpt-oss-120b",
    "deepseek3-671b": "deepseek-v3",
    "qwen3-0.6b": "qwen3-0.6b",
    "qwen3-4b": "qwen3-4b",
    "qwen3-8b": "qwen3-8b",
    "qwen3-14b": "qwen3-14b",
    "qwen3-32b": "qwen3-32b",
    "qwen3-30b-a3b": "qwen3-30b-a3b",
    "qwen3-235b-a22b": "qwen3-235b-a22b",
}
"""model_name of MaxText beside the catalog's name of the same network."""
