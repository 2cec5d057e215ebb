"""A network from a Hugging Face config.json. Knows files and how they can be wrong; runs no code of a model.

The families themselves are in `catalog.families`. Whatever is wrong with a file is one InvalidInput.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from escala.catalog.families import network_from_config
from escala.errors import InvalidInput
from escala.model.network import Network

MOST_BYTES: Final = 20_000_000
UTF8_BOM: Final = b"\xef\xbb\xbf"
UTF16_BOMS: Final = (b"\xff\xfe", b"\xfe\xff")
FILE_NAME: Final = "config.json"

__all__ = ["decode", "network_from_config", "read_bytes", "read_network"]


def read_network(path: str | Path) -> Network:
    """The network of a config.json, or of the one in a folder; its name is that of the file or folder."""
    given = Path(path)
    file = given / FILE_NAME if given.is_dir() else given
    config = decode(read_bytes(file), str(file))
    return network_from_config(config, _name(file), str(file))


def read_bytes(file: Path) -> bytes:
    """The bytes of a file of at most 20 MB; anything that cannot be read is refused by its reason."""
    try:
        if file.is_dir():
            raise InvalidInput(f"{file} is a folder; name a file in it")
        if file.stat().st_size > MOST_BYTES:
            raise InvalidInput(f"{file} is larger than 20 MB; name the config, not the weights")
        return file.read_bytes()
    except FileNotFoundError:
        raise InvalidInput(f"{file} does not exist; name a config.json or a folder that holds one") from None
    except PermissionError:
        raise InvalidInput(f"{file} may not be read by this user; change its permissions") from None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{file} cannot be read ({_reason(error)}); name a config.json") from None


def decode(content: bytes, name: str) -> Mapping[str, object]:
    """The keys of a JSON object in UTF-8, with or without byte order mark."""
    text = utf8(content, name)
    try:
        decoded = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"{name} is not JSON ({_reason(error)}); save it as a JSON object") from None
    if not isinstance(decoded, dict):
        kind = type(decoded).__name__
        raise InvalidInput(f"{name} holds a JSON {kind}, not an object with keys; name a config.json")
    return decoded


def utf8(content: bytes, name: str) -> str:
    """The text of UTF-8 bytes without byte order mark; UTF-16 and other encodings are refused."""
    if content.startswith(UTF16_BOMS):
        raise InvalidInput(f"{name} is encoded in UTF-16; save it as UTF-8")
    try:
        return content.removeprefix(UTF8_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name} is not UTF-8 (byte {error.start}); save it as UTF-8") from None


def _name(file: Path) -> str:
    return file.resolve().parent.name if file.name == FILE_NAME else file.stem


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return "nested too deeply" if isinstance(error, RecursionError) else str(error).splitlines()[0]
