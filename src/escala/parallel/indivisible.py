"""What of a module its tensor and expert ranks cannot share, each reason in words. Changes nothing."""

from collections.abc import Iterator
from typing import Any

from torch import nn

from escala.model.plan import Dispatcher, Plan
from escala.parallel.parts import Parts
from escala.parallel.words import DIVIDING, LINEAR, PIECES, Word, counts, is_experts, worded


def tensor_reasons(module: nn.Module, parts: Parts, plan: Plan) -> Iterator[str]:
    """Why tensor ranks cannot share a module; none at degree 1."""
    if plan.tp == 1:
        return
    name = type(module).__name__
    if not parts.tensor:
        yield f"nothing says how {name} is split over tensor ranks; set tp to 1, or give it a tensor_plan"
    unknown = {word: pattern for pattern, word in parts.tensor.items() if word not in set(Word)}
    for word, pattern in unknown.items():
        yield f"the tensor plan of {name} says '{word}' for {pattern}, which is not run here; set tp to 1"
    if parts.tensor and not unknown:
        yield from _ends(module, parts)
        yield from _sizes(module, parts, plan.tp)
        yield from _wordless(module, parts)


def _ends(module: nn.Module, parts: Parts) -> Iterator[str]:
    found = [word for _, _, word in worded(module, parts.tensor)]
    for word in (Word.EMBEDDING, Word.LAST_NORM, Word.HEAD):
        if found.count(word) != 1:
            yield (
                f"{type(module).__name__} has {found.count(word)} parts for '{word}' in its tensor plan, "
                "and tensor ranks need one; set tp to 1"
            )


def _sizes(module: nn.Module, parts: Parts, ranks: int) -> Iterator[str]:
    known = dict(module.named_modules())
    for name, each, word in worded(module, parts.tensor):
        if not _is_splittable(each, word):
            yield f"{name} is {type(each).__name__}, which tensor ranks do not split as '{word}'; set tp to 1"
        elif word in (*DIVIDING, Word.ROWWISE):
            unit = getattr(known[name.rpartition(".")[0]], "head_dim", 1)
            size, rest = divmod(_divided_size(each, word), unit)
            if rest or size % ranks:
                what = f"heads of {unit}" if unit > 1 else "columns" if word in DIVIDING else "rows"
                yield f"{name} has {size} {what}, which tp={ranks} does not divide; choose tp that does"
    for each, attribute in counts(module, parts.tensor):
        count = getattr(each, attribute)
        if count % ranks:
            yield f"{attribute}={count} of {type(each).__name__} is not divided by tp={ranks}; choose another"


def _is_splittable(module: Any, word: str) -> bool:
    if word in (Word.EMBEDDING, Word.POSITIONS):
        return isinstance(module, nn.Embedding) and module.max_norm is None and not module.sparse
    return word in (Word.ALIKE, Word.LAST_NORM, Word.EXPERTS) or type(module).__name__ in LINEAR


def _divided_size(linear: Any, word: str) -> int:
    """Outputs of a map that is divided by them, of one piece if it is packed; inputs of the other kind."""
    is_transposed = type(linear).__name__ != "Linear"
    axis = int((word == Word.ROWWISE) != is_transposed)
    return int(linear.weight.shape[axis]) // (PIECES if word == Word.FUSED else 1)


def _wordless(module: nn.Module, parts: Parts) -> Iterator[str]:
    """Weights inside a divided part that no word is said of: how they meet the part is not known."""
    said = {name: word for name, _, word in worded(module, parts.tensor)}
    dividing = {name.rpartition(".")[0] for name, word in said.items() if word in DIVIDING}
    for name, each in module.named_modules():
        inside = any(name.startswith(f"{part}.") for part in dividing)
        if inside and name not in said and any(True for _ in each.parameters(recurse=False)):
            yield f"{name} stands among split weights, and the tensor plan has no word for it; set tp to 1"


def expert_reasons(module: nn.Module, parts: Parts, plan: Plan) -> Iterator[str]:
    """Why expert ranks cannot share a module's experts; none at degree 1."""
    if plan.ep * plan.etp == 1:
        return
    stacks = [each for each in module.modules() if is_experts(each)]
    ranks = plan.dp * plan.cp * plan.tp
    if not stacks:
        yield f"{type(module).__name__} has no stacked experts to deal out; set ep and etp to 1"
    if plan.etp not in (1, plan.tp):
        yield f"etp={plan.etp} is neither 1 nor tp={plan.tp}; choose one of both"
    if ranks % (plan.ep * plan.etp):
        yield f"ep x etp = {plan.ep * plan.etp} does not divide dp x cp x tp = {ranks}; choose others"
    if plan.ep > 1 and plan.tp > 1 and plan.etp == 1 and not plan.sp:
        yield "tensor ranks would send the same tokens to experts twice; set sp to true, or etp to tp"
    if plan.dispatcher is Dispatcher.FUSED and plan.ep > 1:
        yield "fused dispatch is planned only; choose all_to_all or all_gather"
    for stack in stacks:
        yield from _stack_reasons(stack, plan)


def _stack_reasons(stack: Any, plan: Plan) -> Iterator[str]:
    experts, width = len(stack.gate_up_proj), stack.down_proj.shape[-1]
    if experts % plan.ep:
        yield f"{experts} experts cannot be dealt to {plan.ep} ranks; choose ep that divides {experts}"
    if width % plan.etp:
        yield f"experts of width {width} cannot be split over {plan.etp} ranks; set etp to 1"
    odd = {
        "biases": getattr(stack, "has_bias", False),
        "transposed matrices": getattr(stack, "is_transposed", False),
        "gate and up columns that alternate": not getattr(stack, "is_concatenated", True),
        "norms": getattr(stack, "has_post_expert_norm", False),
    }
    for what, is_there in odd.items():
        if is_there:
            yield f"experts with {what} ({type(stack).__name__}) are not run here; set ep and etp to 1"
