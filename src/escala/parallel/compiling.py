"""torch.compile of the repeated blocks, one graph for all."""

from torch import nn

from escala.errors import InvalidInput
from escala.model.plan import Plan
from escala.parallel.parts import Parts


def compile_blocks(chunk: nn.Module, parts: Parts, plan: Plan) -> None:
    """Nothing where the plan asks for none."""
    if plan.compile:
        raise InvalidInput("compiling is not run yet")
