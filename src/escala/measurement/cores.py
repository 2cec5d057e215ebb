"""A share of the node's cores for each rank that computes on them, so that two never meet on one.

Left to the scheduler, threads of ranks (of computing, of gloo, of autograd) move over all cores, and two that
compute meet on one while another idles. Where a launcher or a person has bound a rank already, or a container
grants less than its cores, nothing is done.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from escala.measurement.bench.host import host_facts, usable_cores


def share(cores: Sequence[int], local_rank: int, local_ranks: int) -> frozenset[int]:
    """Cores of a rank: as many neighbours as each can have; all of them where there are fewer than ranks."""
    each = len(cores) // local_ranks
    return frozenset(sorted(cores)[local_rank * each : (local_rank + 1) * each] if each else cores)


@contextmanager
def own_cores(environment: Mapping[str, str]) -> Iterator[None]:
    """This process and the threads that it starts on its share while this lasts."""
    place = environment.get("LOCAL_RANK", ""), environment.get("LOCAL_WORLD_SIZE", "")
    if not all(each.isdecimal() for each in place) or not is_free():
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, share(sorted(before), int(place[0]), max(1, int(place[1]))))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def is_free() -> bool:
    """Whether this process may be scheduled on all cores where its parent may, and no quota grants less."""
    if not hasattr(os, "sched_setaffinity"):
        return False
    host, parents = host_facts(), set[int]()
    with suppress(OSError):
        parents = os.sched_getaffinity(os.getppid())
    return os.sched_getaffinity(0) == parents and usable_cores(host) == host.cores
