"""Number formats of a plan as PyTorch has them."""

from typing import Final

import torch

from escala.errors import InvalidInput
from escala.model.plan import Plan, Precision

AUTOCAST: Final = {Precision.FP16: torch.float16, Precision.BF16: torch.bfloat16}
"""Formats that products are computed in while weights stay fp32."""


def set_products(plan: Plan, device: torch.device) -> None:
    """Let fp32 products round their factors to TF32, or forbid it: a setting of the process."""
    is_tf32 = plan.precision is Precision.TF32
    if device.type != "cuda":
        if is_tf32:
            raise InvalidInput(f"TF32 products exist on cuda, not on {device.type}; use fp32 or bf16")
        return
    torch.set_float32_matmul_precision("high" if is_tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = is_tf32
