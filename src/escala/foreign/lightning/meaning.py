"""What Lightning's names mean in the field's words, for reading and for writing. Knows no file."""

from dataclasses import dataclass
from typing import Final

from escala.model.plan import Precision

PRECISIONS: Final = {
    "16-mixed": Precision.FP16,
    "16-true": Precision.FP16,
    "bf16-mixed": Precision.BF16,
    "bf16-true": Precision.BF16,
    "32-true": Precision.FP32,
    "transformer-engine": Precision.FP8_TENSORWISE,
    "transformer-engine-float16": Precision.FP8_TENSORWISE,
}
"""Of all names those that escala has too; 64-true it has not."""
SHORT: Final = {"16": "16-mixed", "bf16": "bf16-mixed", "32": "32-true", "64": "64-true"}
"""Names of before 2.0 that it still takes."""
NAMES: Final = (*PRECISIONS, "64-true")
WRITTEN: Final = {Precision.BF16: "bf16-mixed", Precision.FP16: "16-mixed", Precision.FP32: "32-true"}
TRUE: Final = {"16-true": "fp16", "bf16-true": "bf16"}
"""Names that store weights in that format too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """What a strategy shards: the stage, whether weights are freed after forward, whether nodes replicate."""

    zero: int
    reshard: bool = False
    is_hybrid: bool = False


SHARDINGS: Final = {
    "FULL_SHARD": Sharding(zero=3, reshard=True),
    "SHARD_GRAD_OP": Sharding(zero=3),
    "HYBRID_SHARD": Sharding(zero=3, reshard=True, is_hybrid=True),
    "_HYBRID_SHARD_ZERO2": Sharding(zero=3, is_hybrid=True),
    "NO_SHARD": Sharding(zero=0),
}
"""sharding_strategy of FSDPStrategy."""
STRATEGIES: Final = (
    *(
        f"ddp{start}{unused}"
        for start in ("", "_spawn", "_fork", "_notebook")
        for unused in ("", "_find_unused_parameters_false", "_find_unused_parameters_true")
    ),
    "fsdp",
    "fsdp_cpu_offload",
    "deepspeed",
    "deepspeed_stage_1",
    "deepspeed_stage_2",
    "deepspeed_stage_2_offload",
    "deepspeed_stage_3",
    "deepspeed_stage_3_offload",
    "deepspeed_stage_3_offload_nvme",
    "xla",
    "xla_debug",
    "single_xla",
    "single_device",
    "single_tpu",
    "auto",
)
"""Names of the registry, and auto."""
GONE: Final = {
    "dp": "ddp",
    "ddp2": "ddp",
    "ddp_sharded": "fsdp",
    "ddp_sharded_spawn": "fsdp",
    "ddp_fully_sharded": "fsdp",
    "fsdp_native": "fsdp",
    "fsdp_native_full_shard_offload": "fsdp_cpu_offload",
    "tpu_spawn": "xla",
    "horovod": "ddp",
    "bagua": "ddp",
    "hivemind": "ddp",
    "colossalai": "deepspeed_stage_3",
    "hpu_parallel": "ddp",
}
"""Names of 1.x that 2.0 removed, with what does most of the same."""
