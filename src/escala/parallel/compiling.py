"""torch.compile of the repeated blocks: one graph for all that are alike. Keeps the names of all modules."""

from typing import Final

import torch
from torch import nn

from escala.model.plan import Compile, Plan
from escala.parallel.parts import Parts, blocks_of

MODES: Final = {
    Compile.DEFAULT: None,
    Compile.REDUCE_OVERHEAD: "reduce-overhead",
    Compile.MAX_AUTOTUNE: "max-autotune",
}


def compile_blocks(chunk: nn.Module, parts: Parts, plan: Plan) -> None:
    """Compile the forward of each block; hooks of the module stay outside the graph."""
    if plan.compile is Compile.OFF:
        return
    for block in blocks_of(chunk, parts):
        block.forward = torch.compile(block.forward, mode=MODES[plan.compile])
