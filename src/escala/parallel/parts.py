"""Where the repeated blocks of a module stand, what comes before and after them, what can be split.

All that the passes know of a module. Found in Hugging Face models and in our decoders; whoever brings another
module names its blocks.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from torch import nn

from escala.errors import InvalidInput
from escala.parallel.absent import Absent
from escala.parallel.words import tensor_plan

LEAST_BLOCKS: Final = 2
"""A list of one module repeats nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Names inside a module: its repeated blocks in order, and what only the first or last stage needs.

    `blocks` are units of sharding, recompute and compilation, and where stages may be cut. `tensor` says how
    the weights of a module can be split over tensor ranks, by pattern of its name (see `words.Word`).
    `takes_documents` is true of language models: they are called with positions and documents. `is_chain` is
    true of plain sequences whose parts are known from end to end.
    """

    blocks: tuple[str, ...]
    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    tensor: Mapping[str, str] = field(default_factory=dict)
    takes_documents: bool = False
    is_chain: bool = False


def parts_of(module: nn.Module, blocks: tuple[str, ...] | None = None) -> Parts:
    """Parts of a module that escala knows, or of any module whose block names are given."""
    named = _given(module, blocks) if blocks else _found(module)
    if getattr(module, "base_model_prefix", None) is None or getattr(module, "lm_head", None) is None:
        return _chained(module, Parts(blocks=named))
    return _language(module, named)


def is_chain(module: nn.Module) -> bool:
    """Whether a module runs its children in turn and does nothing else."""
    return type(module).forward is nn.Sequential.forward


def blocks_of(chunk: nn.Module, parts: Parts) -> list[nn.Module]:
    """The repeated blocks that a chunk holds, in order."""
    modules = (chunk.get_submodule(name) for name in parts.blocks)
    return [each for each in modules if not isinstance(each, Absent)]


def _chained(module: nn.Module, parts: Parts) -> Parts:
    """The parts of a chain with what comes before and after its blocks; of other modules as they are.

    Blocks that stand in chains inside the chain count one by one. Where other children stand between blocks,
    nobody knows with which of them these belong together, and the parts stay as they are.
    """
    units = tuple(_units(module, parts, "")) if is_chain(module) else ()
    places = [place for place, name in enumerate(units) if name in parts.blocks]
    if not places or units[places[0] : places[-1] + 1] != parts.blocks:
        return parts
    return replace(parts, first=units[: places[0]], last=units[places[-1] + 1 :], is_chain=True)


def _units(module: nn.Module, parts: Parts, prefix: str) -> Iterator[str]:
    """Names of what runs in turn, down to the blocks."""
    for name, child in module.named_children():
        place = f"{prefix}{name}"
        holds_blocks = any(each.startswith(f"{place}.") for each in parts.blocks)
        if holds_blocks and is_chain(child):
            yield from _units(child, parts, f"{place}.")
        else:
            yield place


def _given(module: nn.Module, blocks: tuple[str, ...]) -> tuple[str, ...]:
    known = dict(module.named_modules())
    for name in blocks:
        if name not in known:
            raise InvalidInput(f"the module has no part '{name}'; its parts are {', '.join(_near(known))}")
    listed = (known[name] for name in blocks)
    spread = (
        [f"{name}.{place}" for place in each._modules]
        if isinstance(each, nn.ModuleList | nn.Sequential)
        else [name]
        for name, each in zip(blocks, listed, strict=True)
    )
    return tuple(name for names in spread for name in names)


def _near(known: Mapping[str, nn.Module]) -> list[str]:
    return [name for name in known if name and name.count(".") < 2][:12]


def _found(module: nn.Module) -> tuple[str, ...]:
    """The outermost lists of modules of one class: layers of a decoder, blocks of all stages of a ResNet."""
    found = tuple(_lists(module, ""))
    if len(found) < LEAST_BLOCKS:
        raise InvalidInput(
            f"no repeated blocks were found in {type(module).__name__}; "
            "name them, for example blocks=('layers',)"
        )
    return found


def _lists(module: nn.Module, prefix: str) -> Iterator[str]:
    for name, child in module.named_children():
        place = f"{prefix}{name}"
        if isinstance(child, nn.ModuleList | nn.Sequential) and _repeats(child):
            yield from (f"{place}.{each}" for each in child._modules)
        else:
            yield from _lists(child, f"{place}.")


def _repeats(modules: Any) -> bool:
    kinds = {type(each) for each in modules}
    with_weights = [each for each in modules if any(True for _ in each.parameters())]
    is_nested = any(isinstance(each, nn.ModuleList) for each in modules.modules() if each is not modules)
    return (
        len(modules) >= LEAST_BLOCKS
        and len(kinds) == 1
        and len(with_weights) == len(modules)
        and not is_nested
    )


def _language(module: Any, blocks: tuple[str, ...]) -> Parts:
    """A causal language model of transformers, or one named like it: stack, then head."""
    prefix = module.base_model_prefix
    stack = getattr(module, prefix)
    heads = {name.split(".")[1] for name in blocks}
    rest = [name for name, child in stack.named_children() if name not in heads]
    first = [f"{prefix}.{name}" for name in rest if isinstance(getattr(stack, name), nn.Embedding)]
    norms = [f"{prefix}.{name}" for name in rest if _is_norm(getattr(stack, name))]
    last = (*norms, "lm_head")
    return Parts(
        blocks=blocks,
        first=tuple(first),
        last=last,
        tensor=tensor_plan(module, prefix, tuple(first), last),
        takes_documents=True,
    )


def _is_norm(module: nn.Module) -> bool:
    return isinstance(module, nn.LayerNorm | nn.RMSNorm) or type(module).__name__.endswith("Norm")
