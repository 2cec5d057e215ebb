"""A network from whatever a person gives: a catalogue name, a file, a folder, or hf:owner/name."""

import os
from pathlib import Path
from typing import Final

from escala.catalog import networks as catalog
from escala.formats.files import read_keys
from escala.formats.hf import FILE_NAME, read_network
from escala.formats.hub import from_hub
from escala.formats.network_toml import network_from_description
from escala.model.network import Network

HUB_PREFIX: Final = "hf:"
ENDINGS: Final = (".json", ".toml", ".yaml", ".yml")


def find_network(given: str) -> Network:
    """The network that a name or path means; nothing is fetched unless the prefix hf: asks for it."""
    if given.startswith(HUB_PREFIX):
        return from_hub(given.removeprefix(HUB_PREFIX))
    path = Path(given)
    if given.lower().endswith(ENDINGS) or (given and os.path.exists(given)):
        return _from_file(path)
    return catalog.network(given)


def _from_file(path: Path) -> Network:
    if os.path.isdir(path) or path.name == FILE_NAME:
        return read_network(path)
    keys = read_keys(path)
    is_description = path.suffix.lower() != ".json" or "network" in keys
    return network_from_description(keys, str(path)) if is_description else read_network(path)
