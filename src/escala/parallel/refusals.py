"""What compositions cannot be run, and why: said before a module is changed."""

from torch import nn

from escala.model.plan import Plan
from escala.parallel.parts import Parts


def refuse_impossible(module: nn.Module, parts: Parts, plan: Plan) -> None:
    """Raise for a plan that this module cannot be run under."""
