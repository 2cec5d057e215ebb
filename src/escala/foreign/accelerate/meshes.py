"""Whether the degrees of an Accelerate file make up its processes, and go with its kind of parallelism."""

from collections.abc import Iterator
from math import prod
from typing import Final

from escala.foreign.accelerate.options import Options
from escala.foreign.findings import Finding, finding
from escala.foreign.jobs import Job

PREFIX: Final = "parallelism_config_"
DEGREES: Final = ("dp_replicate", "dp_shard", "tp", "cp", "sp")
MEGATRON: Final = ("megatron_lm_tp_degree", "megatron_lm_pp_degree")
MEGATRON_CONTEXT: Final = 2


def findings(job: Job, options: Options) -> Iterator[Finding]:
    """All of them."""
    yield from _machines(job, options)
    if options.kind == "MEGATRON_LM":
        yield from _megatron(job, options)
    sizes = {name: options.count(f"{PREFIX}{name}_size") for name in DEGREES}
    if any(size is not None for size in sizes.values()):
        yield from _mesh(job, options, {name: size or 1 for name, size in sizes.items()})


def _is_fsdp2(options: Options) -> bool:
    """Whether FSDP2 may run: it is said, or no kind is."""
    return options.kind is None or (options.kind == "FSDP" and options.fsdp_version == 2)


def _machines(job: Job, options: Options) -> Iterator[Finding]:
    """num_processes is the number of processes of all machines."""
    node, processes = options.get("num_processes"), options.count("num_processes")
    machines = options.count("num_machines") or 1
    if node is None or processes in (None, -1):
        if options.kind not in (None, "NO") and job.count("devices") in (None, -1):
            yield finding("accelerate-no-processes", node or options.at)
        return
    assert processes is not None
    yield from _visible(options, processes // max(machines, 1))
    if processes > 0 and processes % machines:
        yield finding("accelerate-processes-divide", node, processes=processes, machines=machines)
    elif machines > 1 and processes == machines and (job.count("devices_per_node") or 1) > 1:
        yield finding("accelerate-processes-global", node, processes=processes, machines=machines)
    elif machines > 1 and processes in (4, 8, 16) and processes // machines < 4:
        yield finding(
            "accelerate-processes-few",
            node,
            processes=processes,
            machines=machines,
            each=processes // machines,
        )


def _visible(options: Options, processes: int) -> Iterator[Finding]:
    """Devices that each machine may use, against its processes."""
    node, given = options.get("gpu_ids"), options.text("gpu_ids")
    if node is None or given is None or given.lower() == "all":
        return
    devices = len([each for each in given.split(",") if each.strip()])
    if devices < processes:
        yield finding("accelerate-gpu-ids", node, given=given, devices=devices, processes=processes)


def _mesh(job: Job, options: Options, sizes: dict[str, int]) -> Iterator[Finding]:
    named = {name: node for name in DEGREES if (node := options.get(f"{PREFIX}{name}_size")) is not None}
    first = next(iter(named.values()))
    if sizes["cp"] > 1 and sizes["sp"] > 1:
        yield finding("accelerate-context-and-sequence", named["sp"])
        return
    if sizes["sp"] > 1 and options.kind not in ("DEEPSPEED", None):
        yield finding("accelerate-sequence-deepspeed", named["sp"], kind=options.kind)
    if sizes["cp"] > 1 and not _is_fsdp2(options):
        yield finding("accelerate-context-fsdp2", named["cp"])
    if (sizes["tp"] > 1 or sizes["cp"] > 1) and sizes["dp_replicate"] > 1 and sizes["dp_shard"] == 1:
        yield finding("accelerate-replicate-only", named["dp_replicate"])
    elif options.kind == "FSDP" and options.fsdp_version == 2 and sizes["dp_shard"] == 1 and sizes["cp"] == 1:
        yield finding("accelerate-nothing-to-shard", named.get("dp_shard", first))
    if options.kind == "FSDP" and options.fsdp_version != 2:
        yield finding("accelerate-mesh-fsdp1", first)
    devices, product = job.sure("devices"), prod(sizes.values())
    if devices is not None and product != devices and sizes["sp"] == 1:
        text = " × ".join(f"{name} {size}" for name, size in sizes.items() if size > 1) or "1"
        yield finding("accelerate-mesh-product", first, text=text, product=product, devices=devices)


def _megatron(job: Job, options: Options) -> Iterator[Finding]:
    degrees = [options.count(name) or 1 for name in MEGATRON]
    context = options.count("megatron_lm_context_parallel_size") or MEGATRON_CONTEXT
    devices, inside = job.sure("devices"), prod(degrees) * context
    node = options.get(MEGATRON[0]) or options.get(MEGATRON[1]) or options.at
    if devices is not None and devices % inside:
        yield finding(
            "accelerate-megatron-product",
            node,
            tp=degrees[0],
            pp=degrees[1],
            cp=context,
            inside=inside,
            devices=devices,
        )
