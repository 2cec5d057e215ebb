"""What happens while a step is traced: where in the step, bytes at their most, collectives, FLOP.

A moment begins at a mark (forward or backward of a layer, the ends, the optimizer step) and lasts until the
next.
"""

from collections import Counter
from typing import Any, Final

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from escala.measurement.tracing import private
from escala.measurement.tracing.jobs import BACKWARD, END, FORWARD, Collective, Moment, Traced

GATHERED: Final = "_c10d_functional::all_gather_into_tensor"
OPERATIONS: Final = {
    "c10d::_allgather_base_": ("all-gather", 0, 2),
    "c10d::_reduce_scatter_base_": ("reduce-scatter", 1, 2),
    "c10d::allreduce_": ("all-reduce", 0, 1),
    "c10d::broadcast_": ("broadcast", 0, 1),
    GATHERED: ("all-gather", 0, 2),
    "_c10d_functional::reduce_scatter_tensor": ("reduce-scatter", 0, 3),
    "_c10d_functional::all_reduce": ("all-reduce", 0, 2),
    "_c10d_functional::all_reduce_": ("all-reduce", 0, 2),
    "_c10d_functional::all_to_all_single": ("all-to-all", 0, 3),
}
"""Operation of PyTorch: its name, and which arguments are the payload and the group."""

Mark = tuple[str, int, str]
Key = tuple[str, str, int | None]


class Watch(TorchDispatchMode):  # type: ignore[misc] # torch has no types where it is not installed
    """Watches one rank; `axes` names the groups of ranks, `micro_batch` is the one that runs."""

    def __init__(self, axes: dict[str, str]) -> None:
        super().__init__()
        self.micro_batch: int | None = None
        self.is_backward = False
        self._axes = axes
        self._mode = private.fake_mode()
        self._mark: Mark = ("", 0, "")
        self.forget()

    def forget(self) -> None:
        """Begin anew, after a step that only made the optimizer state."""
        self._held: dict[Mark, dict[Any, int]] = {}
        self._counts: Counter[Key] = Counter()
        self._payloads: Counter[Key] = Counter()
        self._flop: Counter[int] = Counter()

    def mark(self, kind: str, chunk: int = 0, place: str = "") -> None:
        """Begin a moment; the same one comes again with every micro-batch."""
        self._mark = (kind, chunk, place)

    def seen(self, snapshot: dict[Any, int]) -> None:
        """Keep what is held when most is."""
        best = self._held.get(self._mark)
        if best is None or private.total_bytes(snapshot) > private.total_bytes(best):
            self._held[self._mark] = dict(snapshot)

    def follow(self, chunk: int, layers: nn.ModuleList) -> None:
        """Mark forward and backward of every layer of a chunk; recomputing belongs to backward."""
        for place, layer in enumerate(layers):
            after = str(place + 1) if place + 1 < len(layers) else END
            layer.register_forward_pre_hook(lambda *_, at=str(place): self._enter(chunk, at))
            layer.register_forward_hook(
                lambda _module, _given, out, at=str(place), then=after: self._leave(chunk, at, then, out)
            )

    def _enter(self, chunk: int, place: str) -> None:
        if not self.is_backward:
            self.mark(FORWARD, chunk, place)

    def _leave(self, chunk: int, place: str, after: str, output: Any) -> None:
        if self.is_backward:
            return
        stream = output[0] if isinstance(output, tuple) else output
        stream.register_hook(lambda _: self.mark(BACKWARD, chunk, place))
        self.mark(FORWARD, chunk, after)

    def result(self) -> Traced:
        """What was seen since the last `forget`."""
        return Traced(
            moments=tuple(
                Moment(kind=kind, chunk=chunk, place=place, held_bytes=private.by_kind(held))
                for (kind, chunk, place), held in self._held.items()
            ),
            collectives=tuple(
                Collective(
                    operation=key[0],
                    axis=key[1],
                    micro_batch=key[2],
                    count=count,
                    payload_bytes=self._payloads[key],
                )
                for key, count in self._counts.items()
            ),
            flop=dict(self._flop),
        )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation and note it, unless it works on the tensors of all ranks together."""
        if not private.is_own(types):
            return NotImplemented
        named = kwargs or {}
        result = func(*args, **named)
        if private.fake_mode() is not self._mode:
            return result
        name = func._schema.name
        if name in OPERATIONS:
            self._count(OPERATIONS[name], args, result if name == GATHERED else None)
        elif self.micro_batch is not None:
            self._flop[self.micro_batch] += private.flop_of(func, args, named, result)
        return result

    def _count(self, operation: tuple[str, int, int], args: tuple[Any, ...], gathered: Any) -> None:
        name, payload_at, group_at = operation
        payload = args[payload_at] if gathered is None else gathered
        tensors = [payload] if isinstance(payload, torch.Tensor) else payload
        key = (name, self._axes[private.group_name(args[group_at])], self.micro_batch)
        self._counts[key] += 1
        self._payloads[key] += sum(each.nbytes for each in tensors)
