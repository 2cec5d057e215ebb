"""Counts what steps of TP and of SP send and launch: `counter.py OUT.json` as one rank of a launch.

Twice: under the styles of torch.distributed.tensor.parallel ("tp 4": of four layers), and as escala itself
splits a module ("own tp 4").
"""

import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, _api, _redistribute
from torch.utils._python_dispatch import TorchDispatchMode

from escala.catalog.families import network_from_config
from escala.measurement.bench.distributed import split_maps
from escala.parallel.batch import Batch
from escala.parallel.mesh import mesh_of
from escala.parallel.nets.decoder import Decoder
from escala.parallel.optimizers import optimizer_of
from escala.parallel.parallelize import parallelize
from escala.parallel.step import Step
from netlab.cases import Case, Shape, cases
from netlab.worker import batch, tensor

PREFIXES: Final = ("_c10d_functional::", "c10d::")
MESSAGES: Final = {
    "all_reduce": "all_reduce",
    "allreduce_": "all_reduce",
    "all_gather_into_tensor": "all_gather_into_tensor",
    "reduce_scatter_tensor": "reduce_scatter_tensor",
}
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
        name = func._schema.name
        for prefix in PREFIXES:
            name = name.removeprefix(prefix)
        if name in MESSAGES:
            self.sent[f"{MESSAGES[name]} of {max(payload_bytes(args[0]), payload_bytes(result))}"] += 1
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


def payload_bytes(given: Any) -> int:
    """Bytes of a tensor, or of those of a list."""
    if isinstance(given, torch.Tensor):
        return given.nbytes
    return sum(payload_bytes(each) for each in given) if isinstance(given, list | tuple) else 0


def own(case: Case, shape: Shape) -> Callable[[], object]:
    """A step as escala takes it under the plan of a case."""
    network = network_from_config(shape.config(), "decoder", "a test")
    parallel = parallelize(Decoder(network), case.plan, mesh_of(case.plan, torch.device("cpu")))
    step = Step(parallel, optimizer_of(parallel, rate=1e-4))
    inputs, targets = batch(case.as_keys(), shape)
    return lambda: step(Batch(inputs=inputs, targets=targets))


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
            found[f"own {case.way} {layers}"] = counts.of(own(case, shape))
    if dist.get_rank() == 0:
        out.write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
