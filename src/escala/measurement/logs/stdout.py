"""What trainers print on stdout: Megatron-LM, torchtitan, DeepSpeed. Written for their format strings.

Source: Megatron-LM core 0.14 megatron/training/training.py and utils.py (report_memory), arguments.py;
torchtitan 0.2 components/metrics.py and trainer.py; DeepSpeed 0.17 utils/timer.py and runtime/engine.py.
"""

import re
from itertools import count
from typing import Final

from escala.measurement.logs.samples import Sample, Samples, What
from escala.measurement.logs.source import Source, stamp_s
from escala.units import GIB, MIB

NUMBER: Final = r"(nan|inf|[-+]?[\d.,]+(?:e[-+]?\d+)?)"
PREFIX: Final = 200  # letters in which launchers and loggers put the rank
RANK: Final = re.compile(r"^\s*\[(?:rank|default|Rank )(\d+)\]|\[Rank (\d+)\]")
ITERATION: Final = re.compile(r"iteration +(\d{1,15})/ *\d+ \|")
ELAPSED: Final = re.compile(rf"elapsed time per iteration \(ms\): {NUMBER} *\|")
MEGATRON: Final = (
    (re.compile(rf"throughput per GPU \(TFLOP/s/GPU\): {NUMBER} *\|"), What.FLOP_PER_S_PER_DEVICE, 1e12),
    (re.compile(rf"global batch size: +{NUMBER} *\|"), What.GLOBAL_BATCH, 1.0),
    (re.compile(rf"power per GPU \(W/GPU\): {NUMBER} *\|"), What.POWER_W, 1.0),
)
MEGATRON_MEMORY: Final = re.compile(
    rf"memory \(MB\) \| allocated: {NUMBER} \| max allocated: {NUMBER} \| "
    rf"reserved: {NUMBER} \| max reserved: {NUMBER}"
)
MEGATRON_FACTS: Final = (
    (re.compile(r"using world size: (\d+)"), What.DEVICES),
    (re.compile(r"^\s*world_size \.+ (\d+)$"), What.DEVICES),
    (re.compile(r"^\s*seq_length \.+ (\d+)$"), What.SEQUENCE_TOKENS),
)
TITAN: Final = re.compile(r"step: *(\d{1,15})  ?.*loss: .*tps: ")
TITAN_FIELDS: Final = (
    (re.compile(r"tps: ([\d,]+)"), What.TOKENS_PER_S_PER_DEVICE, 1.0),
    (re.compile(r"tflops: ([\d,.]+)"), What.FLOP_PER_S_PER_DEVICE, 1e12),
    (re.compile(r"mfu: ([\d.]+)%"), What.MFU, 0.01),
    (re.compile(r"memory: *([\d.]+)GiB"), What.RESERVED_BYTES, GIB),
)
TITAN_FACTS: Final = (
    (re.compile(r"Trainer is initialized .*global batch size (\d+)"), What.GLOBAL_BATCH),
    (re.compile(r"Trainer is initialized .*sequence length (\d+)"), What.SEQUENCE_TOKENS),
)
TITAN_MESH: Final = re.compile(r"Building device mesh with parallelism: (.+)")
MESH_AXES: Final = re.compile(r"\b(?:pp|dp_replicate|dp_shard|cp|tp)=(\d+)")
DEEPSPEED: Final = re.compile(rf"time \(ms\) \| fwd: {NUMBER} \| bwd: {NUMBER} \|.* step: {NUMBER}")
DEEPSPEED_RATE: Final = re.compile(
    rf"global_step=(\d{{1,15}}), .*CurrSamplesPerSec={NUMBER}, .*MaxMemAllocated={NUMBER}GB"
)


def rank_of(line: str) -> str:
    """The rank that a launcher or the trainer put before the line; empty where there is none."""
    found = RANK.search(line, 0, PREFIX)
    return f"rank {found[1] or found[2]}" if found else ""


def megatron(source: Source) -> Samples:
    """Iteration lines (each a mean over the log interval), memory lines, world size and sequence length."""
    for line in source.lines():
        lane = rank_of(line)
        if found := ITERATION.search(line):
            yield from _iteration(source, line, int(found[1]), lane)
        elif found := MEGATRON_MEMORY.search(line):
            yield from _value(source, What.ALLOCATED_BYTES, found[2], MIB, None, lane)
            yield from _value(source, What.RESERVED_BYTES, found[4], MIB, None, lane)
        else:
            for pattern, what in MEGATRON_FACTS:
                if found := pattern.search(line):
                    yield Sample(what, float(found[1]))


def _iteration(source: Source, line: str, step: int, lane: str) -> Samples:
    elapsed, at_s = ELAPSED.search(line), stamp_s(line)
    if elapsed is None:
        source.leave("iteration lines without elapsed time")
        return
    yield from _value(source, What.STEP_S, elapsed[1], 1e-3, step, lane, at_s)
    for pattern, what, factor in MEGATRON:
        if found := pattern.search(line):
            yield from _value(source, what, found[1], factor, step, lane, at_s)


def torchtitan(source: Source) -> Samples:
    """Step lines (rates are means over the log interval), batch, sequence length and mesh."""
    for line in source.lines():
        lane = rank_of(line)
        if found := TITAN.search(line):
            yield from _titan_step(source, line, int(found[1]), lane)
        elif (found := TITAN_MESH.search(line)) and "=-" not in found[1]:  # -1 is what is left of the devices
            devices = 1.0
            for degree in MESH_AXES.findall(found[1]):
                devices *= float(degree)
            yield Sample(What.DEVICES, devices)
        else:
            for pattern, what in TITAN_FACTS:
                if found := pattern.search(line):
                    yield Sample(what, float(found[1]))


def _titan_step(source: Source, line: str, step: int, lane: str) -> Samples:
    at_s = stamp_s(line)
    if at_s is not None:
        yield Sample(What.CLOCK_S, at_s, step, lane, at_s)
    for pattern, what, factor in TITAN_FIELDS:
        if found := pattern.search(line):
            yield from _value(source, what, found[1].replace(",", ""), factor, step, lane, at_s)


def deepspeed(source: Source) -> Samples:
    """With wall_clock_breakdown each step is fwd + bwd + step; rate and memory where they are printed."""
    numbers = count(1)
    for line in source.lines():
        lane = rank_of(line)
        if found := DEEPSPEED.search(line):
            parts = [source.number(text) for text in found.groups()]
            if None not in parts:
                whole_ms = sum(part for part in parts if part is not None)
                yield Sample(What.STEP_S, whole_ms * 1e-3, next(numbers), lane, stamp_s(line))
        elif found := DEEPSPEED_RATE.search(line):
            step, at_s = int(found[1]), stamp_s(line)
            if at_s is not None:
                yield Sample(What.CLOCK_S, at_s, step, lane, at_s)
            yield from _value(source, What.SAMPLES_PER_S, found[2], 1.0, step, lane, at_s)
            if found[3] not in ("0.0", "0"):  # a device without a counter prints nothing else
                yield from _value(source, What.ALLOCATED_BYTES, found[3], GIB, step, lane, at_s)


def _value(
    source: Source,
    what: What,
    text: str,
    factor: float,
    step: int | None,
    lane: str,
    at_s: float | None = None,
) -> Samples:
    value = source.number(text)
    if value is not None:
        yield Sample(what, value * factor, step, lane, at_s)
