"""One bench from request to record: identity, power, rounds, the slowest of all ranks. Prints nothing.

Without torch, NumPy multiplies and moves; what else torch would time is left out.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from escala.errors import InvalidInput
from escala.formats.bench_record import Bench, HostFacts
from escala.measurement.bench.collect import Setting, gathered, record
from escala.measurement.bench.device import NUMPY, Device, device_of, present_kind
from escala.measurement.bench.fio import fio_probes
from escala.measurement.bench.host import host_facts, load, usable_cores
from escala.measurement.bench.loader import decode_probe, worker_probes
from escala.measurement.bench.plain import plain_probes
from escala.measurement.bench.power import power
from escala.measurement.bench.probe import Probe
from escala.measurement.bench.ranks import Ranks, joined, left
from escala.measurement.bench.request import Request
from escala.measurement.bench.rounds import Progress, reason, run_rounds, stoppable
from escala.measurement.bench.storage import storage_probes
from escala.measurement.cores import own_cores

# Kept back from the budget: the rest of the probe that is under way, gathering, writing, leaving.
RESERVE_S: Final = 5.0
RESERVE_SHARE: Final = 0.25


def bench(request: Request, progress: Progress) -> Bench | None:
    """The record of this machine; None in every rank but the first."""
    host = host_facts()  # before torch is loaded, whose threads may be bound to one core each
    kind = present_kind(request.kind)
    with own_cores(os.environ) if kind == "cpu" else nullcontext():
        try:
            ranks = joined(kind)
        except RuntimeError as error:
            raise InvalidInput(f"the ranks did not meet ({reason(error)}); check the launch") from None
        try:
            return _measured(request, kind, host, ranks, progress)
        finally:
            left(ranks)


def _measured(request: Request, kind: str, host: HostFacts, ranks: Ranks, progress: Progress) -> Bench | None:
    before = load()
    device = device_of(kind, host, ranks.local_rank, ranks.local_size)
    setting = Setting(request=request, host=host, device=device, ranks=ranks, load=before)
    reserve_s = min(RESERVE_S, RESERVE_SHARE * request.budget_s)
    with stoppable() as stop, tempfile.TemporaryDirectory(dir=request.folder) as folder:
        counted = power(device, ranks)
        probes = _probes(device, host, ranks, Path(folder), request.budget_s)
        deadline_s = request.started_s + request.budget_s - reserve_s
        found = run_rounds(probes, ranks, deadline_s, stop, progress)
        everything = gathered(found, ranks)
    return record(setting, counted, found, everything, probes) if ranks.rank == 0 else None


def _probes(device: Device, host: HostFacts, ranks: Ranks, folder: Path, budget_s: float) -> Sequence[Probe]:
    """Every probe in the order of a round, the same in every rank; storage works in one rank of a node."""
    rests = ranks.local_rank > 0
    storage = [
        *storage_probes(folder, works=not rests),
        *fio_probes(folder, rests=rests),
        decode_probe(rests=rests),
    ]
    if device.library == NUMPY:
        return [*plain_probes(device), *storage]
    # a worker would hold the connections of a rank open
    workers = worker_probes(device.threads or usable_cores(host), rests=ranks.size > 1)
    return list(_torch_probes(device, ranks, [*storage, *workers], budget_s))


def _torch_probes(device: Device, ranks: Ranks, storage: Iterable[Probe], budget_s: float) -> Iterator[Probe]:
    from escala.measurement.bench.distributed import distributed_probes
    from escala.measurement.bench.memory import stream_probes, transfer_probes
    from escala.measurement.bench.network import network_probes, overlap_probes
    from escala.measurement.bench.operations import operation_probes
    from escala.measurement.bench.products import attention_probes, product_probes
    from escala.measurement.bench.step import launch_probe, step_probes

    yield from product_probes(device)
    yield from stream_probes(device)  # with products, what a cluster needs at least
    yield from attention_probes(device)
    yield launch_probe(device)
    yield from distributed_probes(device, ranks)
    yield from network_probes(device, ranks, budget_s)  # no plan for several ranks without it
    yield from operation_probes(device)
    yield from transfer_probes(device)
    yield from storage
    yield from overlap_probes(device, ranks)
    yield from step_probes(device)  # its first optimizer loads more of torch, for seconds
