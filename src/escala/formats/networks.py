"""A network from whatever a person gives: a catalogue name, a file, a folder, or hf:owner/name."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from escala.catalog import networks as catalog
from escala.errors import InvalidInput, one_line
from escala.formats.files import read_keys
from escala.formats.hf import FILE_NAME, read_network
from escala.formats.hub import config_file, from_hub
from escala.formats.network_keys import SCHEMA
from escala.formats.network_toml import network_from_description
from escala.formats.other_files import refuse_other
from escala.formats.traced_json import SCHEMA as TRACED_SCHEMA
from escala.formats.traced_json import traced_network
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
    if ":" in given:
        raise InvalidInput(
            f"{one_line(given)} names a function, which is not run here; "
            "`escala trace` writes its network to a file"
        )
    return catalog.network(given)


def find_config(given: str) -> Mapping[str, object]:
    """The keys of the config.json that a name or path means, for software that builds the model itself."""
    if given.startswith(HUB_PREFIX):
        return read_keys(Path(config_file(given.removeprefix(HUB_PREFIX))))
    path = Path(given)
    if path.is_dir():
        return read_keys(path / FILE_NAME)
    if not given.lower().endswith(ENDINGS) and not path.exists():
        return catalog.config(given)
    keys = read_keys(path)
    refuse_other(keys, given, SCHEMA)
    if path.suffix.lower() != ".json" or "network" in keys:
        raise InvalidInput(f"{given} describes a network in escala's own words; give its config.json")
    return keys


def _from_file(path: Path) -> Network:
    if os.path.isdir(path) or path.name == FILE_NAME:
        return read_network(path)
    keys = read_keys(path)
    if str(keys.get("schema")).partition("@")[0] == TRACED_SCHEMA.partition("@")[0]:
        return traced_network(keys, str(path))
    refuse_other(keys, str(path), SCHEMA)
    is_description = path.suffix.lower() != ".json" or "network" in keys
    return network_from_description(keys, str(path)) if is_description else read_network(path)
