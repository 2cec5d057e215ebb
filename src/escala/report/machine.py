"""What nobody said of the machine, in the open: node, network between nodes, power. Decides nothing."""

from collections.abc import Mapping
from typing import Any, Final

from escala.catalog.places import WORLD_PUE, operator_pue, pue_entries
from escala.measurement.bench.place import machine_differences, software_differences
from escala.model.cluster import Cluster, Link
from escala.planning.defaults import Assumed
from escala.units import show_si

BITS: Final = 8


def assumed_machine(cluster: Cluster, given: Mapping[str, Any], *, has_energy: bool) -> tuple[Assumed, ...]:
    """The rows for a machine that options describe: `given` holds them by name, None where not given."""
    rows: list[Assumed] = _elsewhere(cluster)
    if given["cluster"] is None:
        rows += _nodes(cluster)
        rows += [] if given["network"] is not None else _network(cluster)
    return (*rows, *(_energy(cluster, given) if has_energy else ()))


def _elsewhere(cluster: Cluster) -> list[Assumed]:
    """That another machine, or other software, was measured than there is here; a plan may be for it."""
    if cluster.place is None:
        return []
    machine, software = machine_differences(cluster.place), software_differences(cluster.place)
    if not (machine or software):
        return []
    what = "the machine of the bench, not this one" if machine else "the software of the bench, not of here"
    reason = "; ".join((*machine, *software))
    return [Assumed(name="measured", value=what, reason=reason, option="escala bench")]


def _nodes(cluster: Cluster) -> list[Assumed]:
    """Node size and the links inside, where more than one device makes them matter."""
    inside = [link for link in cluster.links[:-1] if link in cluster.crossed_links]
    if not inside:
        return []
    size = f"{cluster.devices_per_node} device{'s' * (cluster.devices_per_node > 1)} each"
    value = ", ".join([size, *(_joins(link, cluster) for link in inside)])
    return [Assumed(name="nodes", value=value, reason=cluster.source, option="--cluster")]


def _joins(link: Link, cluster: Cluster) -> str:
    beyond = link.domain_devices != cluster.devices_per_node
    whom = f"joins {link.domain_devices}" if beyond else "inside"
    return f"{link.name} {whom} ({show_si(link.bytes_per_s, 'B/s')} a device)"


def _network(cluster: Cluster) -> list[Assumed]:
    outer = cluster.links[-1]
    if outer not in cluster.crossed_links or cluster.nodes == 1:
        return []
    value = f"{show_si(outer.bytes_per_s * BITS, 'b/s')} a device between nodes ({outer.name})"
    return [Assumed(name="network", value=value, reason="usual for this node", option="--network")]


def _energy(cluster: Cluster, given: Mapping[str, Any]) -> list[Assumed]:
    """PUE and node power, unless the PUE was given or belongs to a known operator."""
    site = cluster.site
    draws = f"a node draws {site.node_power_ratio:g} × its devices"
    if given["pue"] is not None:
        usual = Assumed(name="energy", value=draws, reason="usual for this node", option="--cluster")
        return [usual] if given["cluster"] is None else []
    if site.pue != operator_pue(WORLD_PUE).value:
        return []
    average = f"the PUE is the {pue_entries()[WORLD_PUE].text('name')}"
    return [Assumed(name="energy", value=f"PUE {site.pue:g}, {draws}", reason=average, option="--pue")]
