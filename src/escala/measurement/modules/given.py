"""What a person's function returned: a module, what goes into it, its loss, its blocks. Runs their code."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves, tree_map

from escala.errors import InvalidInput, one_line
from escala.measurement.job.fault import UserFault, user_code
from escala.measurement.job.huggingface import HEADS, IMAGE, batch_of
from escala.measurement.job.request import Sizes
from escala.measurement.job.target import imported
from escala.measurement.modules.request import CONTRACT, ModuleRequest, names_in
from escala.measurement.tracing.packing import never_packed
from escala.measurement.tracing.private import DeviceMismatch

LEFT_OUT: Final = "say what goes in: return (module, inputs), or give --seq TOKENS, or --shape 3,224,224"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A module; its inputs as an example, or a function of the samples of a batch; its loss; its blocks."""

    request: ModuleRequest
    module: nn.Module
    inputs: Any = None
    loss: Callable[[Any, Any], Any] | None = None
    blocks: tuple[str, ...] = ()


def given_of(request: ModuleRequest) -> Given:
    """Call the function of a target; its tensors are made in whatever mode is on."""
    function = imported(request.target, CONTRACT)
    with user_code(request.target):
        returned: Any = function()
    never_packed()
    module, *rest = returned if isinstance(returned, tuple) and returned else (returned,)
    names = names_in(rest) or ()
    rest = rest[1:] if names else rest
    if not isinstance(module, nn.Module) or len(rest) > 3:
        raise InvalidInput(f"{request.target} returned {_shape(returned)}; {CONTRACT}")
    if len(rest) == 3:  # what escala profile takes: model, optimizer, batches, loss
        with user_code(f"{request.target}, while its first batch was drawn,"):
            rest = [next(iter(rest[1])), rest[2]]
    given = Given(
        request=request,
        module=module,
        inputs=rest[0] if rest else None,
        loss=rest[1] if len(rest) > 1 else None,
        blocks=names,
    )
    _refuse_lazy(given)
    _refuse_frozen(given)
    return given


def batch_for(given: Given, samples: int) -> Any:
    """What goes into the module for so many samples."""
    if given.inputs is not None:
        batch = _resized(given, samples)
        _refuse_other(given, batch)
        return batch
    request, config = given.request, getattr(given.module, "config", None)
    if request.shape is not None:
        return torch.zeros((samples, *request.shape))
    kind = next((kind for end, kind in HEADS.items() if type(given.module).__name__.endswith(end)), None)
    if kind is not None and config is not None:
        config.use_cache = False
        if kind != IMAGE and request.tokens is None:
            raise InvalidInput(f"{request.target} returned a language model alone; give --seq TOKENS")
        sizes = Sizes(micro_batch=samples, sequence_tokens=request.tokens, precision="fp32")
        return batch_of(kind, config, sizes, torch.device("cpu"))
    if request.tokens is not None:
        return torch.zeros((samples, request.tokens), dtype=torch.long)
    raise InvalidInput(f"{request.target} returned a module alone; {LEFT_OUT}")


def _refuse_other(given: Given, batch: Any) -> None:
    """Raise where --seq or --shape say something else than the inputs of the function."""
    request, tokens = given.request, tokens_of(batch)
    if request.shape is None and request.tokens in (None, tokens):
        return
    option = "--shape" if request.tokens is None else f"--seq {request.tokens:,}"
    goes_in = "inputs of its own" if tokens is None else f"rows of {tokens:,} tokens"
    raise InvalidInput(f"{option}: {request.target} returns {goes_in}; leave it out, or change the function")


def tokens_of(batch: Any) -> int | None:
    """Tokens of a sample where a batch is rows of whole numbers; None for everything else."""
    first = next((each for each in tree_leaves(batch) if isinstance(each, torch.Tensor)), None)
    is_text = first is not None and first.dim() == 2 and not first.dtype.is_floating_point
    return int(first.shape[1]) if is_text and first is not None else None


def run(given: Given, batch: Any) -> tuple[torch.Tensor, Any]:
    """Forward: the loss, and the outputs that one would keep, where the module and the function know none."""
    try:
        with user_code(f"{given.request.target}, run forward without data,"):
            if given.loss is not None:
                return _checked(given, given.loss(given.module, batch)), None
            output = _called(given.module, batch)
    except UserFault as fault:
        raise _on_two_devices(given, fault) or fault from None
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor):
        return _checked(given, loss), None
    return _checked(given, _sum(output)), output


def _on_two_devices(given: Given, fault: UserFault) -> UserFault | None:
    """What to do where tensors lie on the meta device or a GPU; parameters and buffers were moved already."""
    if not isinstance(fault.__cause__, DeviceMismatch):
        return None
    said = str(fault.__cause__).strip().partition("\n")[0].partition(": ")[2] or str(fault.__cause__)
    return UserFault(
        f"{given.request.target} makes tensors on several devices ({one_line(said, 200)}); make all of them "
        'without a device: a trace holds no data, so torch.device("meta") and .cuda() save nothing'
    )


def _called(module: nn.Module, batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return module(**batch)
    return module(*batch) if isinstance(batch, tuple | list) else module(batch)


def _sum(output: Any) -> Any:
    """The sum of all that an output is made of; None where nothing of it needs a gradient."""
    parts = [each for each in tree_leaves(output) if isinstance(each, torch.Tensor) and each.requires_grad]
    return sum((each.sum() for each in parts[1:]), parts[0].sum()) if parts else None


def _checked(given: Given, loss: Any) -> torch.Tensor:
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
        what = (
            f"a {type(loss).__name__}" if not isinstance(loss, torch.Tensor) else f"shape {tuple(loss.shape)}"
        )
        raise InvalidInput(
            f"{given.request.target}: no loss to train with ({what}); let the module return tensors that "
            "need a gradient, or return (module, inputs, loss) with loss(module, inputs), a scalar"
        )
    return loss


def _resized(given: Given, samples: int) -> Any:
    """The inputs for so many samples: made by their function, or the example with other first sizes."""
    if callable(given.inputs) and not isinstance(given.inputs, torch.Tensor):
        with user_code(f"{given.request.target}, while its inputs were made,"):
            return given.inputs(samples)
    tensors = [each for each in tree_leaves(given.inputs) if isinstance(each, torch.Tensor) and each.dim()]
    if not tensors:
        raise InvalidInput(f"{given.request.target}: the inputs hold no tensor with a batch; {LEFT_OUT}")
    batch = tensors[0].shape[0]

    def resized(each: Any) -> Any:
        if not isinstance(each, torch.Tensor) or not each.dim() or each.shape[0] != batch:
            return each
        return torch.zeros((samples, *each.shape[1:]), dtype=each.dtype)

    return tree_map(resized, given.inputs)


def _refuse_lazy(given: Given) -> None:
    lazy = [name for name, each in given.module.named_parameters() if is_lazy(each)]
    if lazy:
        raise InvalidInput(
            f"{given.request.target}: the size of {lazy[0]} is not known before a first run; call the module "
            "once on an example in the function"
        )


def _refuse_frozen(given: Given) -> None:
    frozen = sum(each.numel() for each in given.module.parameters() if not each.requires_grad)
    total = sum(each.numel() for each in given.module.parameters())
    if frozen or not total:
        what = f"{frozen:,} of {total:,} parameters are frozen" if total else "it has no parameters"
        raise InvalidInput(
            f"{given.request.target}: {what}; a traced module is planned with all of them trained"
        )


def _shape(returned: Any) -> str:
    kinds = ", ".join(type(each).__name__ for each in returned) if isinstance(returned, tuple) else ""
    return f"({one_line(kinds)})" if kinds else one_line(type(returned).__name__)
