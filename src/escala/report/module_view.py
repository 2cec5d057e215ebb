"""A traced module as a document: its units, its modules, what it does not run in. Counts nothing itself."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Final

from escala.errors import InvalidInput
from escala.formats.traced_json import write_traced
from escala.measurement.bench.rounds import Progress
from escala.measurement.job.request import require_torch
from escala.measurement.modules.request import ModuleRequest, names_function, shape_of
from escala.model.network import Block, Network
from escala.model.parameters import block_parameters, network_parameters
from escala.model.traced import FORMATS, traced_part

if TYPE_CHECKING:
    from escala.measurement.modules.trace import SubModule, TracedModule

SCHEMA: Final = "escala/trace@1"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitView:
    """Equal blocks, or what is outside them: of each FLOP forward and bytes kept for one sample."""

    name: str
    count: int
    parameters: int
    launches: int
    flop: float
    kept_bytes: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubModuleView:
    """A module inside, or `count` equal ones beside each other; numbers are those of one of them."""

    name: str
    kind: str
    count: int
    parameters: int
    flop: float
    kept_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleView:
    """The document of `escala trace --json`: numbers of one sample.

    `flop` and the bytes of `modules` were found in `format`; `refused` says of a number format why the module
    does not run in it.
    """

    schema: str
    target: str
    source: str
    parameters: int
    sequence_tokens: int | None
    format: str
    flop: float
    backward_flop: float
    units: tuple[UnitView, ...]
    modules: tuple[SubModuleView, ...]
    refused: dict[str, str]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModule:
    """The document with its network."""

    view: ModuleView
    network: Network


def traced_module(target: str, tokens: int | None, shape: str | None, progress: Progress) -> FoundModule:
    """Run the module of a function without data."""
    found = _traced(target, tokens, shape, progress)
    stack = found.network.main
    units = [_unit(block, stack.count(kind), stack.hidden) for kind, block in enumerate(stack.blocks)]
    outside = [] if stack.outside is None else [_unit(stack.outside, 1, stack.hidden)]
    view = ModuleView(
        schema=SCHEMA,
        target=target,
        source=found.network.source,
        parameters=network_parameters(found.network).total,
        sequence_tokens=found.network.traced_tokens,
        format=found.format,
        flop=found.flop,
        backward_flop=found.backward_flop,
        units=(*units, *outside),
        modules=tuple(_alike(found.modules)),
        refused=found.refused,
        notes=found.notes,
    )
    return FoundModule(view=view, network=found.network)


def traced_network_of(target: str, tokens: int | None, shape: str | None, progress: Progress) -> Network:
    """The network of the module that a function makes."""
    return _traced(target, tokens, shape, progress).network


def trace_module(target: str, *, sequence_tokens: int | None = None, shape: str | None = None) -> Network:
    """The network of the module that package.module:function makes, which is run without data.

    `sequence_tokens` or `shape` ("3,224,224") say what a sample is, where the function gives no inputs.
    """
    return _traced(target, sequence_tokens, shape, lambda what, left_s: None).network


def save_module(found: FoundModule, path: str) -> None:
    """Write the network to a file that `escala plan` takes."""
    write_traced(found.network, Path(path))


def _traced(target: str, tokens: int | None, shape: str | None, progress: Progress) -> "TracedModule":
    if not names_function(target):
        raise InvalidInput(
            f"'{target[:80]}' names no function; write package.module:function or FILE.py:function"
        )
    request = ModuleRequest(target=target, tokens=tokens, shape=shape_of(shape))
    require_torch()
    from escala.measurement.modules.trace import trace  # loads torch

    return trace(request, lambda what: progress(what, nan))


def _unit(block: Block, count: int, hidden: int) -> UnitView:
    part = traced_part(block)
    assert part is not None
    seen = {name: getattr(part, name) for name in FORMATS}
    return UnitView(
        name=block.name,
        count=count,
        parameters=block_parameters(block, hidden).total,
        launches=part.launches,
        flop=part.flop,
        kept_bytes={name: each.kept_bytes for name, each in seen.items() if each is not None},
    )


def _alike(modules: Iterable["SubModule"]) -> Iterator[SubModuleView]:
    """Modules in order; those of lists that are equal stand once, with * for their numbers."""
    places = [
        (_pattern(each.name), each.kind, each.parameters, each.flop, each.kept_bytes) for each in modules
    ]
    for (name, kind, parameters, flop, kept_bytes), count in Counter(
        each for each in places if each[0]
    ).items():
        yield SubModuleView(
            name=name, kind=kind, count=count, parameters=parameters, flop=flop, kept_bytes=kept_bytes
        )


def _pattern(name: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in name.split("."))
