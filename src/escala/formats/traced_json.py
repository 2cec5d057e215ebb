"""The network of a module that was run without data, as a file: plans are made of it without PyTorch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from escala.errors import InvalidInput, unknown
from escala.formats.record_keys import keys_of, record_of
from escala.model.network import Network
from escala.wholefile import write_whole

SCHEMA: Final = "escala/traced-network@1"
KEYS: Final = ("schema", "network")


def write_traced(network: Network, path: Path) -> None:
    """Write a traced network; the file appears whole or not at all."""
    document = {"schema": SCHEMA, "network": keys_of(network)}
    write_whole(path, msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")


def traced_network(keys: Mapping[str, object], where: str) -> Network:
    """The network that the keys of such a file hold."""
    if keys.get("schema") != SCHEMA:
        raise InvalidInput(f"{where}: schema is {keys.get('schema')!r}; this version reads '{SCHEMA}'")
    for key in keys:
        if key not in KEYS:
            raise unknown("key", str(key), KEYS, f"it stands at the top level of {where}")
    network = record_of(Network, keys.get("network"), f"{where}: network")
    if not network.is_traced or not network.layers:
        raise InvalidInput(f"{where}: network was not traced, or has no layers; write it with `escala trace`")
    return network
