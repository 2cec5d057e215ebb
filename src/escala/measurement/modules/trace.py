"""A module run without data in each number format and in several batches, and the network that it then is.

Here, and nowhere else in planning, a person's own code runs.
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from escala.errors import InvalidInput
from escala.measurement.job.fault import UserFault, user_code
from escala.measurement.modules.given import Given, batch_for, given_of, run, tokens_of
from escala.measurement.modules.growth import (
    FEW,
    MORE,
    MOST,
    footprint_of,
    line_of,
    products_of,
    refuse_unsteady,
)
from escala.measurement.modules.observe import OUTSIDE, Observer, Seen
from escala.measurement.modules.request import ModuleRequest
from escala.measurement.tracing.private import fake_tensors, materialize, real_tensors
from escala.model.network import Block, Embedding, Network, Stack, StackRole
from escala.model.traced import FORMATS
from escala.model.traces import Attended, Footprint, Product, Traced
from escala.parallel.parts import parts_of

Told = Callable[[str], None]
"""Takes what is being done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubModule:
    """One module inside: its name and class, parameters, and of one sample FLOP forward and bytes kept."""

    name: str
    kind: str
    parameters: int
    flop: float
    kept_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedModule:
    """The network of a module, what is in it, and what has to be said of it.

    `format` is the number format of FLOP and kept bytes of `modules`, `flop` and `backward_flop` are those
    of one sample, `refused` says for a format why the module does not run in it.
    """

    network: Network
    modules: tuple[SubModule, ...]
    format: str
    flop: float
    backward_flop: float
    refused: dict[str, str]
    notes: tuple[str, ...]


def trace(request: ModuleRequest, progress: Told) -> TracedModule:
    """Build the module of a function and run it without data."""
    progress("building the module")
    with _unheard(), fake_tensors():
        given = _built(request)
        materialize(given.module)
        return _Trace(given, progress).result()


def _built(request: ModuleRequest) -> Given:
    """The module with tensors without data; on the meta device where building it reads one that is small."""
    try:
        return given_of(request)
    except UserFault as fault:
        with real_tensors(), torch.device("meta"):
            try:
                return given_of(request)
            except UserFault:
                raise fault from None


@contextmanager
def _unheard() -> Iterator[None]:
    """What PyTorch tells of operations without data is told by the error of the run."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


class _Trace:
    def __init__(self, given: Given, progress: Told) -> None:
        self.given, self.module, self.progress = given, given.module, progress
        self.notes: list[str] = []
        self.blocks = self._blocks()
        self.refused: dict[str, str] = {}
        self.first: Observer | None = None
        self.second: Observer | None = None
        self.format = ""
        self.ratios: dict[int, float] = {}
        self.work: dict[int, tuple[tuple[Product, ...], tuple[Attended, ...]]] = {}
        self.footprints: dict[str, dict[int, Footprint]] = {}

    def result(self) -> TracedModule:
        """All formats, the first that runs with backward and a proof of its growth."""
        self.module.train()
        error: Exception | None = None
        for name in FORMATS:
            _set_weights(self.module, torch.bfloat16 if name == "bf16" else torch.float32)
            try:
                self._in_format(name)
            except (UserFault, InvalidInput) as fault:
                self.refused[name], error = str(fault), error or fault
        if self.first is None:
            assert error is not None
            raise error
        return self._concluded(self.first)

    def _in_format(self, name: str) -> None:
        is_first = self.first is None
        few, more = self._run(name, FEW, has_backward=is_first), self._run(name, MORE)
        if is_first:
            refuse_unsteady(few.units, more.units, self._run(name, MOST).units)
            self.ratios = {unit: _ratio(each) for unit, each in few.units.items()}
            self.work = {unit: products_of(each, more.units[unit]) for unit, each in few.units.items()}
            self.first, self.second, self.format = few, more, name
        self.footprints[name] = {
            unit: footprint_of(each, more.units[unit], self.ratios.get(unit, 0.0))
            for unit, each in few.units.items()
        }

    def _run(self, name: str, samples: int, *, has_backward: bool = False) -> Observer:
        self.progress(f"running {samples} samples without data in {name}")
        batch = batch_for(self.given, samples)
        watch = Observer(self.module, self.blocks)
        with watch.watching():
            # mkldnn hides the products of an LSTM in one kernel; without it they run one by one
            is_cast = torch.autocast("cpu", torch.bfloat16, enabled=name == "autocast")
            with is_cast, torch.backends.mkldnn.flags(enabled=False):
                loss, output = run(self.given, _cast(batch) if name == "bf16" else batch)
            watch.keep(output)
            if has_backward:
                watch.is_backward = True
                with user_code(f"{self.given.request.target}, run backward without data,"):
                    loss.backward()
        watch.settle()
        for each in self.module.parameters():
            each.grad = None
        return watch

    def _blocks(self) -> tuple[str, ...]:
        """The repeated blocks, as training finds them; where nothing repeats, the children with weights."""
        if self.given.blocks:
            return parts_of(self.module, self.given.blocks).blocks
        try:
            return parts_of(self.module).blocks
        except InvalidInput:
            units = tuple(_units(self.module, "")) or ("",)
            self.notes.append(
                "no block repeats: its children are the units of sharding and recompute; escala train needs "
                "their names"
            )
            return units

    def _concluded(self, first: Observer) -> TracedModule:
        parts = [self._part(place) for place in range(len(self.blocks))]
        outside = self._part(OUTSIDE)
        batch = batch_for(self.given, FEW)
        network = self._network(parts, outside, first, tokens_of(batch))
        every = first.units.values()
        return TracedModule(
            network=network,
            modules=tuple(self._modules(first, self.second or first)),
            format=self.format,
            flop=sum(each.flop for each in every) / FEW,
            backward_flop=sum(each.backward_flop for each in every) / FEW,
            refused=self.refused,
            notes=tuple(self.notes),
        )

    def _part(self, unit: int) -> Traced:
        """The numbers of a unit in all formats that ran."""
        assert self.first is not None
        own = self._owned(unit)
        products, attended = self.work.get(unit, ((), ()))
        none = Footprint(kept_bytes=0.0)
        fp32, autocast, bf16 = (
            self.footprints[name].get(unit, none) if name in self.footprints else None for name in FORMATS
        )
        return Traced(
            parameters=sum(each.numel() for each in own),
            tensors=len(own),
            launches=self.first.units[unit].launches,
            products=products,
            attended=attended,
            fp32=fp32,
            autocast=autocast,
            bf16=bf16,
        )

    def _owned(self, unit: int) -> list[nn.Parameter]:
        """Parameters of a unit, each once and in the first unit that has it."""
        found: dict[int, list[nn.Parameter]] = {}
        taken: set[nn.Parameter] = set()
        for place, name in (*enumerate(self.blocks), (OUTSIDE, "")):
            own = [each for each in self.module.get_submodule(name).parameters() if each not in taken]
            taken.update(own)
            found[place] = own
        return found[unit]

    def _network(self, parts: list[Traced], outside: Traced, first: Observer, tokens: int | None) -> Network:
        kinds = list(dict.fromkeys(parts))
        classes = [type(self.module.get_submodule(name)).__name__ for name in self.blocks]
        width = next((seen.width for unit, seen in sorted(first.units.items()) if unit != OUTSIDE), 1)
        table = self._table() if tokens is not None else None
        vocab = 0 if table is None else table.weight.numel()
        stack = Stack(
            role=StackRole.MODULE,
            hidden=max(width, 1),
            blocks=tuple(Block(name=classes[parts.index(each)], parts=(each,), norms=0) for each in kinds),
            pattern=tuple(kinds.index(each) for each in parts),
            tokens=None if tokens is not None else 1,
            embedding=None
            if table is None
            else Embedding(vocab=table.num_embeddings, width=table.embedding_dim),
            final_norm_weights=0,
            outside=_outer(outside, vocab),
        )
        target = self.given.request.target
        return Network(
            name=target.rpartition(":")[2],
            family="module",
            stacks=(stack,),
            source=f"{target}, run without data on torch {torch.__version__}",
            max_tokens=tokens,
            stored_bits=32.0,
            wrapped_class=classes[0] if len(set(classes)) == 1 else None,
            traced_tokens=tokens,
        )

    def _table(self) -> nn.Embedding | None:
        """The table of the vocabulary: the largest outside the blocks."""
        own = set(self._owned(OUTSIDE))
        tables = [
            each for each in self.module.modules() if isinstance(each, nn.Embedding) and each.weight in own
        ]
        return max(tables, key=lambda each: each.num_embeddings, default=None)

    def _modules(self, first: Observer, second: Observer) -> Iterator[SubModule]:
        for name, each in self.module.named_modules():
            yield SubModule(
                name=name,
                kind=type(each).__name__,
                parameters=sum(p.numel() for p in each.parameters()),
                flop=first.flop[name] / FEW,
                kept_bytes=line_of(first.kept[name], second.kept[name])[0],
            )


def _outer(outside: Traced, vocab: int) -> Block:
    """What lies outside the blocks, without the table that the embedding counts."""
    return Block(name="outside", parts=(replace(outside, parameters=outside.parameters - vocab),), norms=0)


def _units(module: nn.Module, prefix: str) -> Iterator[str]:
    """Names of the children with weights; lists and tables of modules are looked into."""
    for name, child in module.named_children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield from _units(child, f"{prefix}{name}.")
        elif any(True for _ in child.parameters()):
            yield f"{prefix}{name}"


def _ratio(seen: Seen) -> float:
    return seen.backward_moved_bytes / seen.moved_bytes if seen.moved_bytes else 0.0


def _set_weights(module: nn.Module, dtype: torch.dtype) -> None:
    """All weights of a floating format in this one; shared ones stay shared."""
    made: dict[int, nn.Parameter] = {}
    for each in module.modules():
        for name, weight in list(each._parameters.items()):
            if weight is not None and weight.dtype.is_floating_point and weight.dtype != dtype:
                own = made.get(id(weight))
                made[id(weight)] = own = nn.Parameter(weight.detach().to(dtype)) if own is None else own
                setattr(each, name, own)  # recurrent layers list their weights a second time


def _cast(batch: Any) -> Any:
    """The inputs in 16 bit, as FSDP2 passes them on."""

    def cast(each: Any) -> Any:
        is_number = isinstance(each, torch.Tensor) and each.dtype.is_floating_point
        return each.to(torch.bfloat16) if is_number else each

    return tree_map(cast, batch)
