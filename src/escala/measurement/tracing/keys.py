"""The config.json that a network was read from, found again for what builds the real module."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from escala.catalog import networks
from escala.catalog.families import network_from_config
from escala.errors import InvalidInput, one_line
from escala.formats.files import read_keys
from escala.model.network import Network


def config_keys(network: Network) -> Mapping[str, Any]:
    """The keys of a network of the catalog, or of the file that it was read from, if that has not changed."""
    if network.name in networks.names() and networks.network(network.name) == network:
        return networks.config(network.name)
    file = Path(network.source)
    if not file.is_file():
        raise InvalidInput(
            f"the config.json of {one_line(network.name)} is needed to build its module, and "
            f"{one_line(network.source)} is no file; "
            "plan with a network of the catalog or with the path of a config.json"
        )
    keys = read_keys(file)
    if network_from_config(keys, network.name, network.source) != network:
        raise InvalidInput(f"{file} has changed since the plan was made; plan again")
    return keys
