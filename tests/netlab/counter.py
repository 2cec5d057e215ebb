"""Counts what steps of TP and of SP send and launch: `counter.py OUT.json` as one rank of a launch."""

import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch.distributed as dist
from torch.distributed.tensor import DTensor, _api, _redistribute
from torch.utils._python_dispatch import TorchDispatchMode

from escala.measurement.bench.distributed import split_maps
from netlab.cases import Shape, cases
from netlab.worker import tensor

PREFIX: Final = "_c10d_functional::"
MESSAGES: Final = ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor")
CONVERSIONS: Final = (_api._FromTorchTensor, _api._ToTorchTensor, _redistribute.Redistribute)
WARM_CALLS: Final = 2


class Counts(TorchDispatchMode):
    """Messages by operation and whole payload, operations on distributed tensors and their conversions."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: Counter[str] = Counter()
        self.launches = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(each, DTensor) for each in types):
            self.launches += 1
            return NotImplemented
        if any(each.__name__ == "AsyncCollectiveTensor" for each in types):
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix(PREFIX)
        if name in MESSAGES:
            self.sent[f"{name} of {max(args[0].nbytes, result.nbytes)}"] += 1
        return result

    def watch_conversions(self) -> None:
        """Count conversions from now on, whether they are dispatched or not."""
        for owner in CONVERSIONS:
            for way in ("forward", "backward"):
                setattr(owner, way, staticmethod(self._seen(getattr(owner, way))))

    def _seen(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            self.launches += 1
            return method(*args, **named)

        return call

    def of(self, work: Callable[[], object]) -> dict[str, Any]:
        """What one call of `work` does, once it is warm."""
        for _ in range(WARM_CALLS):
            work()
        self.sent.clear()
        self.launches = 0
        with self:
            work()
        return {"sent": dict(self.sent), "launches": self.launches}


def main(out: Path) -> None:
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    counts = Counts()
    counts.watch_conversions()
    found = {"maps": counts.of(split_maps(dist.get_rank()))}
    for case in cases(dist.get_world_size(), ("tp", "sp")):
        for layers in (3, 4):
            shape = Shape(**{**case.shape, "layers": layers})
            found[f"{case.way} {layers}"] = counts.of(tensor(case.as_keys(), shape))
    if dist.get_rank() == 0:
        out.write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
