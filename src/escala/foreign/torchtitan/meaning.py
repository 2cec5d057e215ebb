"""What torchtitan's names mean in the field's words, for reading and for writing. Knows no file."""

from typing import Final

from escala.model.plan import Dispatcher, Precision, Recompute, Schedule

MODES: Final = {"none": Recompute.NONE, "selective": Recompute.SELECTIVE, "full": Recompute.FULL}
POLICIES: Final = {"SelectiveAC": "selective", "FullAC": "full", "MemoryBudgetAC": "memory_budget"}
"""Classes of 0.3 by the mode that older files call them."""

SCHEDULES: Final = {
    "GPipe": Schedule.GPIPE,
    "1F1B": Schedule.ONE_F_ONE_B,
    "Interleaved1F1B": Schedule.INTERLEAVED,
    "ZBVZeroBubble": Schedule.ZERO_BUBBLE_V,
}
"""Those that escala has too."""
ALL_SCHEDULES: Final = (*SCHEDULES, "LoopedBFS", "InterleavedZeroBubble", "DualPipeV")
SINGLE: Final = frozenset(("GPipe", "1F1B"))
"""Schedules with one stage on each rank; the others have two or more."""
ROUNDS: Final = frozenset(("Interleaved1F1B", "InterleavedZeroBubble"))
"""Schedules whose micro-batches have to fill whole rounds."""
SPLIT_BACKWARD: Final = frozenset(("InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"))

RESHARDS: Final = {"always": True, "never": False}
DTYPES: Final = {"bfloat16": Precision.BF16, "float32": Precision.FP32}
CONVERTERS: Final = {
    "Float8LinearConverter": Precision.FP8_ROWWISE,
    "MXFP8LinearConverter": Precision.MXFP8,
    "NVFP4LinearConverter": Precision.NVFP4,
}
"""Classes of 0.3 with the format that they mean by default."""
OLD_CONVERTERS: Final = {
    "float8": Precision.FP8_TENSORWISE,
    "quantize.linear.float8": Precision.FP8_TENSORWISE,
    "mx": Precision.MXFP8,
    "quantize.linear.mx": Precision.MXFP8,
}
RECIPES: Final = {
    "tensorwise": Precision.FP8_TENSORWISE,
    "rowwise": Precision.FP8_ROWWISE,
    "rowwise_with_gw_hp": Precision.FP8_ROWWISE,
}
BACKENDS: Final = {
    "standard": Dispatcher.ALL_TO_ALL,
    "deepep": Dispatcher.FUSED,
    "hybridep": Dispatcher.FUSED,
    "minimal_async_ep": Dispatcher.FUSED,
}


def word(choice: Recompute | Schedule | Dispatcher) -> str:
    """A choice of a plan in the words of facts."""
    return {"one-f-one-b": "1f1b"}.get(spelt := choice.name.lower().replace("_", "-"), spelt)
