"""A bench.json as a cluster: measured rates in place of the catalog's. Reads; times nothing, writes nothing.

A device that the catalog knows keeps its peaks and gets the measured shares of them; of another device the
measured rates are the peaks. A link is what point to point reached, and collectives are shares of it.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from escala.catalog.accelerators import accelerator, accelerator_entries
from escala.catalog.clusters import MOST_DEVICES
from escala.catalog.loader import find
from escala.catalog.places import NODE_POWER_RATIO, site
from escala.errors import InvalidInput, spoken
from escala.formats.bench_gaps import unmeasured
from escala.formats.bench_links import links_of, words
from escala.formats.bench_operations import large_flop_per_s, operations_of
from escala.formats.bench_record import BENCH_SCHEMA, FINGERPRINT_SCHEMA, NETWORK, Bench
from escala.model.cluster import Accelerator, Cluster, DeviceGroup, Host, Place
from escala.units import show_si

FAMILY: Final = BENCH_SCHEMA.partition("@")[0]
PLAIN: Final = "timed with NumPy, not with PyTorch"
LIBRARIES: Final = ("torch",)
PINNED: Final = "host to device, pinned"
# Words of a driver's name for a device that no name of the catalog has.
_DECORATION: Final = re.compile(r"\b(NVIDIA|Tesla|AMD|Instinct|HBM\d\w*)\b")
_LEAST_SHARE: Final = 0.01


def is_bench(keys: Mapping[str, object]) -> bool:
    """Whether the keys of a file are a bench.json, of whatever version."""
    return str(keys.get("schema", "")).partition("@")[0] == FAMILY


def bench_of(keys: Mapping[str, object], origin: str = "bench.json") -> Bench:
    """The record that the keys hold; another version, a fingerprint of another schema or a gap is refused."""
    mark = keys.get("fingerprint")
    inner = mark.get("schema") if isinstance(mark, Mapping) else None
    for what, given, known in (
        ("schema", keys.get("schema"), BENCH_SCHEMA),
        ("fingerprint.schema", inner, FINGERPRINT_SCHEMA),
    ):
        if given != known:
            raise InvalidInput(f"{origin}: {what} is {spoken(given)}; this escala reads '{known}'")
    try:
        found = msgspec.convert(dict(keys), Bench)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{origin} is no whole bench file ({error}); measure again") from None
    _refuse_broken(found, origin)
    return found


def bench_cluster(bench: Bench, origin: str = "bench.json", gpus: int | None = None) -> Cluster:
    """The measured machine, or `gpus` devices of it; more than were measured only over a measured network."""
    devices = bench.ranks if gpus is None else gpus
    _refuse_unmeasured(bench, origin, devices)
    device, said = _device(bench, origin)
    links = links_of(bench, origin)
    file = f"{Path(origin).name}, {bench.date[:10]}"
    plain = [PLAIN] if bench.backend == "numpy" else []
    told = [*said, *plain, *(words(link) for link in links if bench.lines)]
    return Cluster(
        name=f"{devices} x {device.name}",
        groups=(_group(device, devices, bench.ranks_per_node),),
        links=links,
        host=_host(bench),
        site=site(node_power_ratio=NODE_POWER_RATIO),
        source=file,
        place=_place(bench),
        backend=bench.backend,
        measured=(f"measured ({file}): {told[0]}", *told[1:]),
        unmeasured=unmeasured(bench, known_device(bench.device.name)),
    )


def known_device(driver_name: str) -> Accelerator | None:
    """The device of the catalog that a driver's name means; None where the catalog lacks it."""
    name = find(_DECORATION.sub("", driver_name).strip(), accelerator_entries())
    return None if name is None else accelerator(name)


def _refuse_broken(bench: Bench, origin: str) -> None:
    """Counts and rates that no machine has."""
    if not 1 <= bench.ranks_per_node <= bench.ranks <= MOST_DEVICES:
        said = f"{bench.ranks} ranks, {bench.ranks_per_node} in a node"
        raise InvalidInput(f"{origin} has {said}, which cannot be; measure again")
    for each in bench.timed:
        for rate in (each.best_s, each.usual_s, each.flop_per_s, each.bytes_per_s):
            if rate is not None and not 0 < rate < math.inf:
                raise InvalidInput(
                    f"{origin}: '{each.name}' has {rate:g}, not a number above 0; measure again"
                )
    if not 0 < bench.device.memory_bytes < math.inf or any(line.ranks < 2 for line in bench.lines):
        raise InvalidInput(f"{origin} has a device without memory or a link of one rank; measure again")


def _refuse_unmeasured(bench: Bench, origin: str, devices: int) -> None:
    has_network = any(line.level == NETWORK for line in bench.lines)
    if devices > 1 and not bench.lines:
        raise InvalidInput(
            f"{origin} holds no network, so it cannot describe {devices:,} devices;"
            " measure them with `torchrun` or --ranks, or plan with --gpus 1"
        )
    if devices > bench.ranks and not has_network:
        raise InvalidInput(
            f"{origin} measured {bench.ranks:,} devices of one node and holds no network for {devices:,};"
            " run the bench on several nodes, or ask for fewer"
        )


def _device(bench: Bench, origin: str) -> tuple[Accelerator, list[str]]:
    """The device with what was measured of it, and that in words."""
    rates = {
        name: rate
        for name in ("fp32", "tf32", "fp16", "bf16")
        if (rate := large_flop_per_s(bench, "gemm", name))
    }
    moved = max((each.usual_bytes_per_s or 0.0 for each in bench.timed if each.part == "memory"), default=0.0)
    if "fp32" not in rates or not moved:
        raise InvalidInput(
            f"{origin} holds no fp32 matrix product or no memory speed; measure again with a larger --budget"
        )
    known = known_device(bench.device.name)
    device = _unknown(bench, rates, moved) if known is None else _known(bench, known, rates, moved)
    said = [f"{name} products {show_si(rate, 'FLOP/s')}" for name, rate in rates.items()]
    if device.operations is not None:
        said.append("attention, convolutions, passes, launches and AdamW as timed")
    return device, [*said, f"memory {show_si(moved, 'B/s')}"]


def _known(bench: Bench, device: Accelerator, rates: Mapping[str, float], moved: float) -> Accelerator:
    """A device of the catalog: its peaks, the measured shares of them, the memory that the driver showed."""
    peaks = {name: getattr(device, f"{name}_flop_per_s") for name in rates}
    shares = {name: _share(rate / peaks[name]) for name, rate in rates.items() if peaks[name]}
    half = shares.get("bf16", shares.get("fp16", device.gemm_efficiency))
    return replace(
        device,
        memory_bytes=bench.device.memory_bytes,
        gemm_efficiency=half,
        fp32_efficiency=shares["fp32"],
        tf32_efficiency=_share(shares["tf32"] / half) if "tf32" in shares else device.tf32_efficiency,
        memory_efficiency=_share(moved / device.memory_bytes_per_s),
        power_w=bench.device.power_cap_w or device.power_w,
    )


def _unknown(bench: Bench, rates: Mapping[str, float], moved: float) -> Accelerator:
    """A device that the catalog lacks: what it reached is its peak, so utilisation is a share of that."""
    # a processor mostly trains in fp32, and its 16-bit attention may be a slow substitute
    order = ("fp32", "bf16") if bench.device.kind == "cpu" else ("bf16", "fp16", "fp32")
    shares = (attention / rates[name] for name in order if (attention := _attention(bench, rates, name)))
    share = next(shares, None)
    return Accelerator(
        name=bench.device.name,
        vendor="measured",
        architecture=bench.device.kind,
        memory_bytes=bench.device.memory_bytes,
        memory_bytes_per_s=moved,
        fp32_flop_per_s=rates["fp32"],
        tf32_flop_per_s=rates.get("tf32"),
        fp16_flop_per_s=rates.get("fp16"),
        bf16_flop_per_s=rates.get("bf16"),
        fp8_flop_per_s=None,
        fp4_flop_per_s=None,
        power_w=bench.device.power_cap_w,
        gemm_efficiency=1.0,
        fp8_efficiency=1.0,
        fp32_efficiency=1.0,
        tf32_efficiency=1.0,
        memory_efficiency=1.0,
        flash2_efficiency=None if share is None else _share(share),
        flash3_efficiency=None,
        operations=operations_of(bench),
    )


def _attention(bench: Bench, rates: Mapping[str, float], name: str) -> float | None:
    """Rate of attention in a format whose products were timed too."""
    return large_flop_per_s(bench, "attention", name) if name in rates else None


def _share(ratio: float) -> float:
    """A share between a hundredth and one: clocks above the data sheet's do not raise a peak."""
    return min(max(ratio, _LEAST_SHARE), 1.0)


def _place(bench: Bench) -> Place:
    software = ((name, bench.versions[name]) for name in LIBRARIES if name in bench.versions)
    return Place(
        fingerprint=bench.fingerprint.hash,
        processor=bench.host.processor,
        cores=bench.host.cores,
        software=tuple(software),
    )


def _group(device: Accelerator, devices: int, per_node: int) -> DeviceGroup:
    return DeviceGroup(accelerator=device, devices=devices, devices_per_node=min(devices, per_node))


def _host(bench: Bench) -> Host:
    pinned = next((each.bytes_per_s for each in bench.timed if each.name == PINNED), None)
    memory = [bench.host.memory_bytes, bench.host.container_memory_bytes]
    usable = min((each for each in memory if each is not None), default=None)
    return Host(memory_bytes=usable, pcie_bytes_per_s=pinned, cores=bench.host.cores, is_pcie_measured=True)
