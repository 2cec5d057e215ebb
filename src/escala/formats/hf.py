"""A network from a Hugging Face config.json. Knows where the file is; runs no code of a model.

The families themselves are in `catalog.families`, which the catalogue shares.
"""

import os
from pathlib import Path
from typing import Final

from escala.catalog.families import network_from_config
from escala.formats.files import read_keys
from escala.model.network import Network

FILE_NAME: Final = "config.json"

__all__ = ["network_from_config", "read_network"]


def read_network(path: str | Path) -> Network:
    """The network of a config.json, or of the one in a folder; its name is that of the file or folder.

    Raises InvalidInput for whatever is wrong with the file, its keys or their values.
    """
    given = Path(path)
    file = given / FILE_NAME if os.path.isdir(given) else given
    name = file.absolute().parent.name if file.name == FILE_NAME else file.stem
    return network_from_config(read_keys(file), name or str(file), str(file))
