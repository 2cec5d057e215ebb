"""A network by its id on the Hugging Face hub. Downloads config.json only; needs the extra `hf`."""

from dataclasses import replace

from escala.errors import InvalidInput, MissingExtra
from escala.formats.hf import read_network
from escala.inputs import reason
from escala.model.network import Network

INSTALL = "pip install 'escala[hf]'"


def from_hub(name: str) -> Network:
    """The network of a hub repository such as "Qwen/Qwen3-8B", from the local cache where it is there."""
    source = f"config.json, huggingface.co/{name}"
    return replace(read_network(config_file(name)), name=name.rpartition("/")[2], source=source)


def config_file(name: str) -> str:
    """The config.json of a hub repository, in the local cache."""
    if not name.strip("/ "):
        raise InvalidInput("'hf:' names no repository; give its id as in hf:Qwen/Qwen3-8B")
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise MissingExtra(f"reading '{name}' from the hub needs huggingface_hub: {INSTALL}") from None
    try:
        # errors of the hub, of the connection and of the id are OSError or ValueError
        return str(hf_hub_download(name, "config.json"))
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"config.json of '{name}' cannot be fetched from the hub ({reason(error)}); check the id, the"
            " connection and your token, or download the file and give its path"
        ) from None
