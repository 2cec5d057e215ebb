"""From options to a question: finds the network and the cluster that they name. Decides nothing."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from escala.cli.output import progressing, stdout_kept
from escala.errors import InvalidInput

if TYPE_CHECKING:
    from escala.model.cluster import Cluster
    from escala.model.network import Network
    from escala.planning.defaults import Question


def network_of(model: str, given: Mapping[str, Any]) -> "Network":
    """The network that a name or file means; of a function, that of its module, run without data."""
    from escala.formats.networks import find_network
    from escala.measurement.modules.request import names_function

    if not names_function(model):
        if given["shape"] is not None:
            raise InvalidInput("--shape goes with package.module:function; leave it out")
        return find_network(model)
    from escala.report.module_view import traced_network_of

    with stdout_kept(), progressing() as progress:
        return traced_network_of(model, given["seq"], given["shape"], progress)


def question_of(network: "Network", given: Mapping[str, Any], cluster: "Cluster") -> "Question":
    """The question that the options of `what_options` ask about a network on a cluster."""
    from escala.formats.expert_loads import expert_loads_of
    from escala.formats.lengths import lengths_of
    from escala.planning.defaults import Question

    return Question(
        network=network,
        cluster=cluster,
        engine=given["engine"],
        sequence_tokens=given["seq"],
        global_batch=given["global_batch"],
        total_tokens=given["tokens"],
        method=given["method"],
        lora_rank=given["lora_rank"],
        freeze=tuple(part for text in given["freeze"] for part in text.split(",")),
        images=given["images"],
        image_pixels=given["image"],
        adapter_width=given["adapter_width"],
        optimizer=given["optimizer"],
        precision=given["precision"],
        lengths=() if given["lengths"] is None else lengths_of(given["lengths"]),
        batching=given["batching"],
        expert_loads=None if given["expert_loads"] is None else expert_loads_of(given["expert_loads"]),
        predictions=given["predict"],
    )


def cluster_of(given: Mapping[str, Any], gpus: int | None) -> "Cluster":
    """The cluster that the options of `where_options` name, with price, country and PUE."""
    from datetime import UTC, datetime

    from escala.catalog.places import country_code, grid_carbon
    from escala.planning.defaults import Place, at_site

    country = given["country"]
    place = Place(
        carbon_kg_per_j=None if country is None else grid_carbon(country).value,
        country=None if country is None else country_code(country),
        pue=given["pue"],
        price_usd=given["price"],
        price_date=datetime.now(UTC).date().isoformat(),
    )
    return at_site(_machines(given, gpus), place)


def refuse_unknown(given: Mapping[str, Any]) -> None:
    """Refuse names of devices, links and countries that do not exist, also where nothing is asked of them."""
    from escala.catalog.accelerators import accelerator_name
    from escala.catalog.clusters import MOST_DEVICES
    from escala.catalog.links import network
    from escala.catalog.places import country_code

    if given["gpu"] is not None:
        accelerator_name(given["gpu"])
    if given["network"] is not None:
        network(given["network"], MOST_DEVICES)
    if given["country"] is not None:
        country_code(given["country"])


def _machines(given: Mapping[str, Any], gpus: int | None) -> "Cluster":
    from escala.catalog.clusters import cluster_for

    name, gpu = given["cluster"], given["gpu"]
    own = ("gpu", "gpus_per_node", "network")
    if name is not None:
        _refuse_both(given, own)
        return _named(name, gpus)
    if gpu is None:
        raise InvalidInput("no device is named; add --gpu NAME and --gpus N, or --cluster NAME (or a file)")
    assert gpus is not None
    return cluster_for(gpu, gpus, devices_per_node=given["gpus_per_node"], network=given["network"])


def machine_of(gpu: str | None, cluster: str | None) -> "Cluster | None":
    """The cluster of --cluster; None where a device or nothing is named."""
    if cluster is None:
        return None
    _refuse_both({"gpu": gpu}, ("gpu",))
    return _named(cluster, None)


def ranks_of(gpu: str | None, cluster: str | None, ranks: int) -> "Cluster | None":
    """So many devices of the machine that --gpu or --cluster names; None where nothing is named."""
    if gpu is None and cluster is None:
        return None
    given = {"gpu": gpu, "cluster": cluster, "gpus_per_node": None, "network": None}
    return _machines(given, ranks)


def _refuse_both(given: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        if given[name] is not None:
            option = name.replace("_", "-")
            raise InvalidInput(f"--{option} and --cluster both describe the machine; give one of them")


def _named(name: str, gpus: int | None) -> "Cluster":
    from pathlib import Path

    from escala.catalog.clusters import cluster
    from escala.formats.cluster_toml import read_cluster

    if not name.lower().endswith((".toml", ".json", ".yaml", ".yml")) and not Path(name).is_file():
        return cluster(name, gpus)
    found = read_cluster(name, gpus)
    if gpus is not None and gpus != found.devices:
        raise InvalidInput(
            f"{name} has {found.devices} devices and --gpus asks for {gpus}; change one of them"
        )
    return found
