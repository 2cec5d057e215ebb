"""What compositions cannot be run, and why: said before a module is changed."""

from torch import nn

from escala.errors import InvalidInput
from escala.model.plan import Plan
from escala.parallel.indivisible import expert_reasons, tensor_reasons
from escala.parallel.parts import Parts


def refuse_impossible(module: nn.Module, parts: Parts, plan: Plan) -> None:
    """Raise for a plan that this module cannot be run under."""
    for reasons in (tensor_reasons(module, parts, plan), expert_reasons(module, parts, plan)):
        for reason in reasons:
            raise InvalidInput(f"the plan cannot be run: {reason}")
