"""What a command seems to wait for, as far as samples can show it. Knows no step and no reason behind a wait.

The limits are assumptions: a resource counts as full from 90 % of what it can give, as a mean over the run.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from escala.measurement.sampling.usage import Level, NodeUsage
from escala.units import digits, percent, show_si

FULL: Final = 0.9
BUSY: Final = 0.8
"""GPUs that are busy for less of the time wait for something."""
FULL_LINK: Final = 0.7
"""Of the speed that the driver says; protocols take the rest."""
NEAR_LIMIT: Final = 0.95
NOTABLE: Final = 0.05
ONE_CORE: Final = (0.85, 1.15)
LOOPBACK: Final = "lo"
BY_CHOICE: Final = ("set clocks", "sync boost", "display clocks")
"""Reasons for a lower clock that somebody chose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that the samples show: a resource, whether the run waits for it or only uses it, numbers."""

    resource: str
    is_wait: bool
    text: str


def findings(usage: NodeUsage) -> tuple[Finding, ...]:
    """Everything that the samples of a node show, waits first."""
    found = [each for look in LOOKS for each in look(usage)]
    return tuple(sorted(found, key=lambda each: not each.is_wait))


def _gpus(usage: NodeUsage) -> Iterator[Finding]:
    shares = [each.busy_share.mean for each in usage.gpus if each.busy_share is not None]
    if not shares:
        return
    mean = sum(shares) / len(shares)
    least = f", the least busy {percent(min(shares))}" if len(shares) > 1 else ""
    if mean >= BUSY:
        text = f"GPUs were busy {percent(mean)} of the time{least}: some kernel ran, however small"
        yield Finding(resource="GPU", is_wait=True, text=text)
    else:
        text = f"GPUs were idle {percent(1 - mean)} of the time{least}: they wait for something else"
        yield Finding(resource="GPU idle", is_wait=True, text=text)


def _clocks(usage: NodeUsage) -> Iterator[Finding]:
    for gpu in usage.gpus:
        for each in gpu.held_back:
            if each.share >= NOTABLE and each.reason not in BY_CHOICE:
                text = f"GPU {gpu.index} was held back {percent(each.share)} of the time by {each.reason}"
                yield Finding(resource="GPU clock", is_wait=True, text=text)


def _cores(usage: NodeUsage) -> Iterator[Finding]:
    cores, mean = usage.usable_cores, _mean(usage.busy_cores)
    if mean >= FULL * cores:
        text = f"the command kept {digits(mean)} of {cores} cores busy: CPU-bound"
        yield Finding(resource="CPU", is_wait=True, text=text)
    elif _mean(usage.machine_busy_cores) >= FULL * usage.cores:
        text = (
            f"the machine's {usage.cores} cores were full, {digits(mean)} of them with the command: "
            "others took the rest"
        )
        yield Finding(resource="CPU", is_wait=True, text=text)
    elif ONE_CORE[0] <= mean <= ONE_CORE[1] and not usage.gpus:
        text = f"one of {cores} cores was busy, as of a program with one thread: CPU-bound"
        yield Finding(resource="CPU", is_wait=True, text=text)
    throttled = usage.throttled_share or 0.0
    if throttled >= NOTABLE:
        text = f"the container's processor quota held it back {percent(throttled)} of the time"
        yield Finding(resource="CPU quota", is_wait=True, text=text)
    if _mean(usage.stolen_cores) >= NOTABLE * usage.cores:
        text = f"the hypervisor gave {digits(_mean(usage.stolen_cores))} of {usage.cores} cores to others"
        yield Finding(resource="CPU stolen", is_wait=True, text=text)


def _disk(usage: NodeUsage) -> Iterator[Finding]:
    waiting = _mean(usage.waiting_cores)
    if waiting >= NOTABLE * usage.cores:
        text = f"{digits(waiting)} of {usage.cores} cores had nothing to do but wait for a disk"
        yield Finding(resource="disk", is_wait=True, text=text)


def _network(usage: NodeUsage) -> Iterator[Finding]:
    for each in usage.interfaces:
        for way, level in (("received", each.received_bytes_per_s), ("sent", each.sent_bytes_per_s)):
            link = each.link_bytes_per_s
            if link and _mean(level) >= FULL_LINK * link and each.name != LOOPBACK:
                text = f"{each.name} {way} {show_si(_mean(level), 'B/s')} of {show_si(link, 'B/s')}"
                yield Finding(resource="network", is_wait=True, text=text)


def _memory(usage: NodeUsage) -> Iterator[Finding]:
    limit, held = usage.container_limit_bytes, usage.container_used_bytes
    machine = (usage.machine_used_bytes, usage.machine_memory_bytes, "the machine's memory")
    for level, most, name in ((held, limit, "the container's limit of memory"), machine):
        if level is not None and most and level.peak >= NEAR_LIMIT * most:
            text = f"{percent(level.peak / most)} of {name} was in use"
            yield Finding(resource="memory", is_wait=False, text=text)


def _mean(level: Level | None) -> float:
    return 0.0 if level is None else level.mean


LOOKS: Final[tuple[Callable[[NodeUsage], Iterator[Finding]], ...]] = (
    *(_gpus, _clocks, _cores, _disk, _network, _memory),
)
