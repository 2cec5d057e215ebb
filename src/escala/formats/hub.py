"""A network by its id on the Hugging Face hub. Downloads config.json only; needs the extra `hf`."""

import logging
from dataclasses import replace

from escala.errors import InvalidInput, MissingExtra, one_line
from escala.formats.hf import FILE_NAME, read_network
from escala.model.network import Network

INSTALL = "pip install 'escala[hf]'"
LONGEST = 300


def from_hub(name: str) -> Network:
    """The network of a hub repository such as "Qwen/Qwen3-8B", from the local cache where it is there."""
    source = f"config.json, huggingface.co/{name}"
    return replace(read_network(config_file(name)), name=name.rpartition("/")[2], source=source)


def config_file(name: str) -> str:
    """The config.json of a hub repository, in the local cache."""
    if not name.strip("/ "):
        raise InvalidInput("'hf:' names no repository; give its id as in hf:Qwen/Qwen3-8B")
    try:
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError:
        raise MissingExtra(f"reading '{name}' from the hub needs huggingface_hub: {INSTALL}") from None
    # beside these, the hub's error derives from that of its HTTP library, which a lost connection raises
    faults = (*HfHubHTTPError.__bases__, OSError, ValueError)
    try:
        return _fetched(name)
    except faults as error:
        said = one_line(str(error).strip().partition("\n")[0], LONGEST)
        raise InvalidInput(
            f"config.json of '{name}' cannot be fetched from the hub ({said}); check the id, the"
            " connection and your token, or download the file and give its path"
        ) from None


def _fetched(name: str) -> str:
    """The file; one that is not in the cache is first asked for once, since a download retries for long."""
    import huggingface_hub as hub

    logging.getLogger(hub.__name__).setLevel(logging.ERROR)
    if not isinstance(hub.try_to_load_from_cache(name, FILE_NAME), str):
        hub.get_hf_file_metadata(hub.hf_hub_url(name, FILE_NAME))
    return str(hub.hf_hub_download(name, FILE_NAME))
