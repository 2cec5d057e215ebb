"""What all ranks found as one record: the slowest rank of everything, fits, and what was skipped and why."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from escala import __version__
from escala.formats.bench_links import OPERATIONS
from escala.formats.bench_record import (
    BENCH_SCHEMA,
    NETWORK,
    NODE,
    Bench,
    HostFacts,
    LineFit,
    Overlap,
    Power,
    Timed,
)
from escala.measurement.bench.counters import NO_COUNTER
from escala.measurement.bench.device import NUMPY, Device, device_facts, versions
from escala.measurement.bench.fits import line_fit, overlap
from escala.measurement.bench.host import fingerprint
from escala.measurement.bench.probe import Probe
from escala.measurement.bench.ranks import Ranks
from escala.measurement.bench.request import INSTALL, Request
from escala.measurement.bench.rounds import INTERRUPTED, LOST, Found
from escala.measurement.bench.samples import slowest, timed
from escala.measurement.bench.shapes import OVERLAP

ALONE: Final = "one rank has nobody to talk to; use torchrun on every node, or --ranks N here"
WITHOUT_TORCH: Final = (
    "not installed, so NumPy multiplied and moved;"
    f" {INSTALL} adds attention, a training step, 16-bit formats, GPUs and links between ranks"
)
LEVELS: Final = (NODE, NETWORK)
Slow = Mapping[str, tuple[int, float, list[float]]]
"""For every name: the slowest rank, the best of the fastest rank, the samples of the slowest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What one rank was asked, and where it is."""

    request: Request
    host: HostFacts
    device: Device
    ranks: Ranks
    load: float | None


def gathered(found: Found, ranks: Ranks) -> Slow:
    """The samples of the slowest rank of everything, in every rank; its own where the others are lost."""
    alone = found.end == LOST
    bests = {name: min(samples) for name, samples in found.samples.items()}
    everyone = [bests] if alone else ranks.gather(bests)
    if not alone:
        for skips in ranks.gather(found.skips):
            found.skips.update({name: why for name, why in skips.items() if name not in found.skips})
    slow = slowest(everyone)
    mine = {name: found.samples[name] for name, rank in slow.items() if alone or rank == ranks.rank}
    samples: dict[str, list[float]] = {}
    for some in [mine] if alone else ranks.gather(mine):
        samples |= some
    fastest = {name: min(each[name] for each in everyone if name in each) for name in slow}
    return {name: (rank, fastest[name], samples[name]) for name, rank in slow.items()}


def record(setting: Setting, power: Power, found: Found, slow: Slow, probes: Sequence[Probe]) -> Bench:
    """The document of one bench."""
    device, host, ranks = setting.device, setting.host, setting.ranks
    facts, known = device_facts(device, host), versions(device)
    return Bench(
        schema=BENCH_SCHEMA,
        escala=__version__,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        fingerprint=fingerprint(facts, host, known, ranks.size),
        device=facts,
        host=host,
        versions=known,
        backend=device.library if device.library == NUMPY else ranks.backend,
        ranks=ranks.size,
        ranks_per_node=ranks.local_size,
        budget_s=setting.request.budget_s,
        elapsed_s=time.perf_counter() - setting.request.started_s,
        rounds=found.rounds,
        is_interrupted=found.end in (INTERRUPTED, LOST),
        load=setting.load,
        timed=_timed(found, slow),
        lines=lines(found, slow),
        overlaps=_overlaps(found, slow),
        power=power,
        skips=found.skips
        | _unreached(found, probes)
        | _absent(setting, power, facts.devices_in_node, probes),
    )


def lines(found: Found, slow: Slow) -> tuple[LineFit, ...]:
    """A line for every operation among as many ranks that was timed at two sizes or more, on every level."""
    points: dict[tuple[str, str, int], dict[float, list[float]]] = {}
    for subject in found.subjects.values():
        if subject.operation and subject.name in slow:
            of = points.setdefault((subject.level, subject.operation, subject.ranks), {})
            of[subject.payload_bytes or 0.0] = slow[subject.name][2]
    order = sorted(points, key=lambda key: (LEVELS.index(key[0]), -key[2], OPERATIONS.index(key[1])))
    fits = [line_fit(*key, points[key]) for key in order]
    return tuple(each for each in fits if each is not None)


def _timed(found: Found, slow: Slow) -> tuple[Timed, ...]:
    return tuple(
        timed(subject, slow[name][2], slow[name][0], slow[name][1])
        for name, subject in found.subjects.items()
        if name in slow
    )


def _overlaps(found: Found, slow: Slow) -> tuple[Overlap, ...]:
    shares = []
    for level in LEVELS:
        names = [f"{level} overlap, {what}" for what in OVERLAP]
        if all(name in slow for name in names):
            payload = found.subjects[names[-1]].payload_bytes or 0.0
            shares.append(overlap(level, payload, *(min(slow[name][2]) for name in names)))
    return tuple(shares)


def _unreached(found: Found, probes: Sequence[Probe]) -> dict[str, str]:
    """How many things of each part nobody got to before the end."""
    worked = [probe for probe in probes if not (probe.rests or probe.is_dear)]
    subjects = [subject for probe in worked for subject in probe.subjects]
    missing = [s.part for s in subjects if s.name not in found.samples and s.name not in found.skips]
    every = Counter(subject.part for subject in subjects)
    why = "the bench was interrupted" if found.end in (INTERRUPTED, LOST) else "the budget was spent"
    return {part: f"{count} of {every[part]} not reached: {why}" for part, count in Counter(missing).items()}


def _dear(probes: Sequence[Probe]) -> str:
    """How many messages were too large for the budget; empty when none was."""
    dear = [probe for probe in probes if probe.is_dear]
    return f"{len(dear)} not timed: one call would take over {dear[0].most_s:.2g} s" if dear else ""


def _absent(setting: Setting, power: Power, devices: int, probes: Sequence[Probe]) -> dict[str, str]:
    """Parts that this machine or this launch does not have."""
    parts = {subject.part for probe in probes if not probe.rests for subject in probe.subjects}
    others = devices - setting.ranks.local_size
    is_plain = setting.device.library == NUMPY
    reasons = {
        "PyTorch": WITHOUT_TORCH if is_plain else "",
        "network": "" if "network" in parts or is_plain else ALONE,
        "large messages": _dear(probes),
        "transfer": "" if "transfer" in parts else "host and device memory are one",
        "storage": "" if "storage" in parts else f"no room for 256 MiB in {setting.request.folder}",
        "loader workers": "timed with one rank only" if setting.ranks.size > 1 else "",
        "power": "no counter" if power == NO_COUNTER else "",
        "other devices": f"{others} not measured; use torchrun with a rank each" if others > 0 else "",
    }
    return {part: why for part, why in reasons.items() if why}
