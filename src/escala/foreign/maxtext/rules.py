"""When MaxText's settings are wrong, alone or beside their job. The words are in data/rules/maxtext.toml."""

from collections.abc import Iterator
from typing import Final

from escala.foreign.facts import count_of
from escala.foreign.findings import Finding, finding
from escala.foreign.jobs import Job
from escala.foreign.maxtext.mesh import axes, axis, devices_of, samples_of
from escala.foreign.maxtext.names import AXES, FREE, LEVELS
from escala.foreign.places import Node

SLOW: Final = ("tensor", "tensor_sequence", "sequence", "autoregressive")
"""Axes that base.yml itself never recommends between slices."""


def rules_of(job: Job, tree: Node) -> Iterator[Finding]:
    """All findings of these settings."""
    for level in LEVELS:
        free = [name for name in AXES if axis(tree, level, name) == -1]
        if len(free) > 1:
            key = f"{level}_{next(name for name in free if name != FREE[level])}_parallelism"
            yield finding("maxtext-axes-left-over", tree.table[key], level=level, names=" and ".join(free))
    planned, devices = devices_of(tree), job.sure("devices")
    inner = devices_of(tree, ("ici",))
    is_wrong = planned != devices if planned else inner and devices and devices % inner
    planned = planned or inner
    if planned and devices and is_wrong:
        place = next(node for name, node in tree.table.items() if name.endswith("_parallelism"))
        yield finding("maxtext-devices", place, product=planned, devices=devices)
    samples = samples_of(tree)
    if samples is not None and not samples.is_integer():
        node = tree.table["per_device_batch_size"]
        yield finding("maxtext-samples", node, samples=f"{samples:g}", each=node.scalar)
    for name in SLOW:
        outer = tree.table.get(f"dcn_{name}_parallelism")
        if outer is not None and (count_of(outer) or 1) > 1:
            yield finding("maxtext-slow-axis", outer, key=f"dcn_{name}_parallelism")
    yield from _pipeline(tree)
    yield from _experts(tree)


def _pipeline(tree: Node) -> Iterator[Finding]:
    stages, layers = axes(tree, ("pipeline",)) or 1, count_of(tree.table.get("base_num_decoder_layers"))
    if stages == 1:
        return
    each = count_of(tree.table.get("num_layers_per_pipeline_stage")) or 1
    used = count_of(tree.table.get("pipeline_parallel_layers"))
    layers = used if used is not None and used > 0 else layers
    if layers and layers % (stages * each):
        key = "num_layers_per_pipeline_stage"
        place = tree.table.get(key) or tree.table["base_num_decoder_layers"]
        yield finding("maxtext-pipeline-layers", place, layers=layers, stages=stages, each=each)
    parts = tree.table.get("num_pipeline_microbatches")
    count = count_of(parts)
    if parts is not None and count and count > 0 and count % stages:
        yield finding("maxtext-pipeline-micro-batches", parts, count=count, stages=stages)


def _experts(tree: Node) -> Iterator[Finding]:
    ep, experts = axes(tree, ("expert",)), count_of(tree.table.get("num_experts"))
    if ep and experts and ep > 1 and experts % ep:
        yield finding("maxtext-experts", tree.table["num_experts"], experts=experts, ep=ep)
