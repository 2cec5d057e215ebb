"""Megatron's words beside the field's: one table for reading and for writing. Knows no file.

Megatron-LM's options with underscores are the names here; Megatron-Bridge calls most of them the same.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

from escala.model.plan import ContextKind, Dispatcher, Precision

Choice = TypeVar("Choice")

COUNTS: Final[Mapping[str, str]] = {
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
    "seq_length": "sequence_tokens",
    "micro_batch_size": "micro_batch",
    "global_batch_size": "global_batch",
    "train_iters": "steps",
    "eval_micro_batch_size": "eval_batch",
    "num_distributed_optimizer_instances": "replicas",
}
"""Options that are facts as they stand."""
SHARDING: Final[Mapping[str, int]] = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
"""ZeRO stage of --data-parallel-sharding-strategy, with --use-megatron-fsdp."""
CONTEXT: Final[Mapping[str, ContextKind]] = {
    "p2p": ContextKind.RING,
    "all_gather": ContextKind.ALL_GATHER,
    "a2a": ContextKind.ULYSSES,
}
DISPATCHERS: Final[Mapping[str, Dispatcher]] = {
    "alltoall": Dispatcher.ALL_TO_ALL,
    "allgather": Dispatcher.ALL_GATHER,
    "flex": Dispatcher.FUSED,
}
FORMATS: Final[Mapping[str, Precision]] = {"bf16": Precision.BF16, "fp16": Precision.FP16}
FP8_RECIPES: Final[Mapping[str, Precision]] = {
    "tensorwise": Precision.FP8_TENSORWISE,
    "delayed": Precision.FP8_TENSORWISE,  # one scale a tensor as well, of the steps before
    "blockwise": Precision.FP8_BLOCKWISE,
    "mxfp8": Precision.MXFP8,
}
FP8_RECIPE: Final = "delayed"
"""What Megatron takes where --fp8-format comes without --fp8-recipe."""


def name_of(table: Mapping[str, Choice], choice: Choice) -> str:
    """Megatron's word for a choice: the first that means it."""
    return next(name for name, each in table.items() if each is choice)


def spoken_choice(choice: ContextKind | Dispatcher) -> str:
    """A choice as facts say it."""
    return choice.name.lower().replace("_", "-")
