"""Samples of `escala watch` as numbers of a run: power and memory of GPUs, and the usage of each node."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from escala.measurement.logs.samples import Gathered, What
from escala.measurement.logs.samples import Sample as Number
from escala.measurement.logs.source import Source, stamp_s
from escala.measurement.sampling.sample import SAMPLE_SCHEMA, GpuUse, Sample
from escala.measurement.sampling.totals import Totals
from escala.measurement.sampling.usage import GpuUsage, NodeUsage

ALIEN = f"lines that are no {SAMPLE_SCHEMA}"


def read_watched(source: Source, found: Gathered) -> None:
    """Keep the numbers of each GPU, and sum up the usage of each node."""
    totals = Totals()
    for sample in samples(source):
        totals.add(sample)
        for gpu in sample.gpus:
            for number in _numbers(sample, gpu):
                found.add(number)
    found.usage = totals.usage()


def samples(source: Source) -> Iterator[Sample]:
    """The samples of a file; other lines are left out."""
    for line in source.lines():
        try:
            sample = msgspec.json.decode(line, type=Sample)
        except (msgspec.DecodeError, RecursionError):
            source.leave(ALIEN)
            continue
        if sample.schema == SAMPLE_SCHEMA:
            yield sample
        else:
            source.leave(ALIEN)


def lane(node: str, gpu: GpuUse | GpuUsage) -> str:
    """The name of a GPU among those of all nodes; where ranks see one each, all have number 0."""
    return f"{node} gpu {gpu.index} {gpu.uuid.removeprefix('GPU-')[:8]}".strip()


def _numbers(sample: Sample, gpu: GpuUse) -> Iterator[Number]:
    at_s, name = stamp_s(sample.time), lane(sample.node, gpu)
    for what, value in ((What.POWER_W, gpu.power_w), (What.DEVICE_BYTES, gpu.used_bytes)):
        if value is not None:
            yield Number(what, value, None, name, at_s)


def count_once(files: Sequence[Gathered]) -> tuple[str, ...]:
    """Leave out what a second rank of the same node sampled at the same time, and say it."""
    seen: list[NodeUsage] = []
    twice = 0
    for file in files:
        kept = []
        for usage in file.usage:
            others = [each for each in seen if each.node == usage.node and _overlap(each, usage)]
            known = {lane(usage.node, gpu) for each in others for gpu in each.gpus}
            mine = tuple(gpu for gpu in usage.gpus if lane(usage.node, gpu) not in known)
            twice += len(usage.gpus) - len(mine)
            joules = usage.packages_energy_j if not others else None
            kept.append(replace(usage, gpus=mine, packages_energy_j=joules))
            for key in [(what, name) for what, name in file.series if name in known]:
                del file.series[key]
        seen += file.usage
        file.usage = tuple(kept)
    return (f"{twice} GPUs that two ranks sampled at once count once",) if twice else ()


def _overlap(one: NodeUsage, other: NodeUsage) -> bool:
    return one.began <= other.ended and other.began <= one.ended
