"""Whether a measured cluster is this very machine. Compares what can be read without a driver; runs no work.

A plan may be made anywhere for a machine that was measured elsewhere, which is then said. What runs here, or
judges what runs here, has to be measured here.
"""

from importlib.metadata import PackageNotFoundError, version

from escala.errors import InvalidInput
from escala.measurement.bench.host import host_facts
from escala.model.cluster import Cluster, Place

BENCH_AGAIN = "measure this one with `escala bench`"


def machine_differences(place: Place) -> tuple[str, ...]:
    """What of the processor differs here, in words; nothing when it is the same kind of machine."""
    here, found = host_facts(), []
    if place.processor != here.processor:
        found.append(f"measured on {place.processor}, here is {here.processor}")
    if place.cores != here.cores:
        found.append(f"measured with {_cores(place.cores)}, here {here.cores}")
    return tuple(found)


def software_differences(place: Place) -> tuple[str, ...]:
    """Libraries of another version than those that were timed, in words; one that is missing here as well."""
    return tuple(
        f"timed with {name} {known}, here is {_version(name) or 'none'}"
        for name, known in place.software
        if _version(name) != known
    )


def refuse_elsewhere(cluster: Cluster) -> None:
    """Refuse a cluster that was measured on another machine, for work that runs on this one."""
    place = cluster.place
    if place is not None and (differences := machine_differences(place)):
        raise InvalidInput(f"{cluster.source} is of another machine: {'; '.join(differences)}; {BENCH_AGAIN}")


def _cores(count: int) -> str:
    return f"{count} core{'s' * (count != 1)}"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
