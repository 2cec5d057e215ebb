"""Recompute of blocks in backward: activations thrown away after forward."""

from torch import nn

from escala.errors import InvalidInput
from escala.model.plan import Plan
from escala.parallel.parts import Parts


def recompute_blocks(chunk: nn.Module, parts: Parts, plan: Plan) -> None:
    """Nothing where the plan asks for none."""
    if plan.recompute:
        raise InvalidInput("recompute is not run yet")
