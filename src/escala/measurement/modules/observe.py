"""One run of a module without data, watched: work, bytes moved and kept, by module and by unit.

A unit is a repeated block, or what lies outside all of them. Counts what ran; knows nothing of plans.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from escala.measurement.modules.shapes import Sizes, sizes_of
from escala.measurement.modules.unknown import multiplies_nothing, unknown_work
from escala.measurement.tracing.private import CAST, flop_of

OUTSIDE: Final = -1
"""The unit of all that is in no repeated block."""


@dataclass(slots=True)
class Seen:
    """What one unit did: products and attention forward in order, FLOP, launches, bytes."""

    sizes: list[tuple[Sizes, str]] = field(default_factory=list)
    launches: int = 0
    backward_launches: int = 0
    flop: int = 0
    backward_flop: int = 0
    moved_bytes: int = 0
    backward_moved_bytes: int = 0
    kept_bytes: int = 0
    given_bytes: int = 0
    widest_bytes: int = 0
    width: int = 0


class Observer(TorchDispatchMode):  # type: ignore[misc] # torch has no types where it is not installed
    """Watches one run of a module whose repeated blocks have these names."""

    def __init__(self, module: nn.Module, blocks: tuple[str, ...]) -> None:
        super().__init__()
        self.units: dict[int, Seen] = defaultdict(Seen)
        self.flop: Counter[str] = Counter()
        self.kept: Counter[str] = Counter()
        self.is_backward = False
        self._unit = OUTSIDE
        self._path = [""]
        self._places = {name: place for place, name in enumerate(blocks)}
        self._weights = {_storage(each): each for each in (*module.parameters(), *module.buffers())}
        self._matrices = {_storage(each) for each in module.parameters() if each.dim() > 1}
        self._owners: dict[int, tuple[Any, int, tuple[str, ...]]] = {}
        self._given: dict[int, tuple[Any, set[int]]] = {}
        self._hooks = [hook for name, each in module.named_modules() for hook in self._followed(name, each)]

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, operations count and saved tensors are noted."""
        try:
            with self, torch.autograd.graph.saved_tensors_hooks(self._saved, _same):
                yield
        finally:
            for hook in self._hooks:
                hook.remove()

    def settle(self) -> None:
        """Give what several blocks were given, such as positions, to the outside: it is there only once."""
        for key, (storage, places) in self._given.items():
            if len(places) == 1:
                self.units[min(places)].given_bytes += storage.nbytes()
            elif key in self._owners:
                _, unit, path = self._owners[key]
                self._hold(unit, path, -storage.nbytes())
                self._hold(OUTSIDE, path[:1], storage.nbytes())

    def keep(self, held: Any) -> None:
        """Count what lives on beside saved tensors, such as the outputs of the module."""
        for each in tree_leaves(held):
            if isinstance(each, torch.Tensor):
                self._saved(each)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation and count it."""
        named = kwargs or {}
        result = func(*args, **named)
        if not func.is_view and func.namespace != "prim":  # views move nothing, prim asks for a device
            self._count(func, args, named, result)
        return result

    def _count(self, func: Any, args: tuple[Any, ...], named: dict[str, Any], result: Any) -> None:
        unit, flop = self.units[self._unit], flop_of(func, args, named, result)
        made = _tensors(result)
        if func is CAST and _storage(args[0]) in self._weights:
            self._weights[_storage(result)] = result  # a copy of a weight in 16 bit counts as a weight
            self._matrices |= {_storage(result)} if _storage(args[0]) in self._matrices else set()
        if not flop and sizes_of(func, args, named) is None:
            self._refuse_unknown(func, _tensors((args, named)))
        moved = 0 if flop else sum(each.nbytes for each in (*made, *_tensors((args, named))))
        if self.is_backward:
            unit.backward_launches += 1
            unit.backward_flop += flop
            unit.backward_moved_bytes += moved
            return
        unit.launches += 1
        unit.flop += flop
        unit.moved_bytes += moved
        unit.widest_bytes = max(unit.widest_bytes, max((each.nbytes for each in made), default=0))
        if flop:
            self._note(unit, func, args, named, flop)

    def _note(self, unit: Seen, func: Any, args: tuple[Any, ...], named: dict[str, Any], flop: int) -> None:
        for name in self._path:
            self.flop[name] += flop
        sizes = sizes_of(func, args, named)
        if sizes is None:
            raise unknown_work(func, self._path[-1], "whose products have sizes that are not known")
        unit.sizes.append((sizes, self._path[-1]))

    def _refuse_unknown(self, func: Any, given: list[torch.Tensor]) -> None:
        """Raise for an operation on a matrix of weights that may hold products."""
        if any(_storage(each) in self._matrices for each in given) and not multiplies_nothing(func):
            raise unknown_work(func, self._path[-1], "which takes weights and has no formula for its FLOP")

    def _saved(self, tensor: torch.Tensor) -> torch.Tensor:
        """Give a saved tensor to the unit that saved it first; weights and their copies belong to none."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._weights and key not in self._owners:
            # while the storage is held here, no other has its address
            self._owners[key] = storage, self._unit, tuple(self._path)
            self._hold(self._unit, tuple(self._path), storage.nbytes())
        return tensor

    def _hold(self, unit: int, path: tuple[str, ...], size_bytes: int) -> None:
        self.units[unit].kept_bytes += size_bytes
        for name in path:
            self.kept[name] += size_bytes

    def _followed(self, name: str, module: nn.Module) -> Iterator[Any]:
        place = self._places.get(name)
        yield module.register_forward_pre_hook(partial(self._enter, name, place), with_kwargs=True)
        yield module.register_forward_hook(partial(self._leave, place), always_call=True)

    def _enter(self, name: str, place: int | None, _module: Any, args: Any, named: Any) -> None:
        if self.is_backward:
            return
        self._path.append(name)
        if place is None:
            return
        self._unit, seen = place, self.units[place]
        for each in _tensors((args, named)):
            key = _storage(each)
            if key not in self._weights:
                self._given.setdefault(key, (each.untyped_storage(), set()))[1].add(place)
                seen.width = seen.width or (each.shape[-1] if each.dim() else 1)
            if each.requires_grad:
                each.register_hook(partial(self._left, place))

    def _leave(self, place: int | None, _module: Any, _args: Any, output: Any) -> None:
        if self.is_backward:
            return
        self._path.pop()
        if place is None:
            return
        self._unit = OUTSIDE
        for each in _tensors(output):
            if each.requires_grad:
                each.register_hook(partial(self._reached, place))

    def _reached(self, place: int, _gradient: Any) -> None:
        self._unit = place

    def _left(self, place: int, _gradient: Any) -> None:
        if self._unit == place:
            self._unit = OUTSIDE


def _tensors(values: Any) -> list[torch.Tensor]:
    return [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
