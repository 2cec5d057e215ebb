"""Files from outside: bounded, UTF-8, objects with keys. Knows no format's keys; reads, never writes.

Whatever is wrong with a file is one InvalidInput: missing, not allowed, too large, wrong encoding, broken.
"""

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import yaml

from escala.errors import InvalidInput

MOST_BYTES: Final = 20_000_000
UTF8_BOM: Final = b"\xef\xbb\xbf"
UTF16_BOMS: Final = (b"\xff\xfe", b"\xfe\xff")


def read_keys(file: Path) -> Mapping[str, object]:
    """The keys of a TOML, YAML or JSON file, by its ending; JSON when the ending is another."""
    text = utf8(read_bytes(file), str(file))
    kind, parse = _PARSERS.get(file.suffix.lower(), _PARSERS[".json"])
    try:
        keys = parse(text)
    except (
        msgspec.DecodeError,
        tomllib.TOMLDecodeError,
        yaml.YAMLError,
        RecursionError,
        ValueError,
    ) as error:
        raise InvalidInput(f"{file} is not {kind} ({reason(error)}); correct it there") from None
    if not isinstance(keys, dict) or not all(isinstance(key, str) for key in keys):
        raise InvalidInput(f"{file} holds {_called(keys)}, not an object with named keys; check the path")
    return keys


def read_bytes(file: Path) -> bytes:
    """The bytes of a file of at most 20 MB."""
    try:
        if file.is_dir():
            raise InvalidInput(f"{file} is a folder; name a file in it")
        if file.stat().st_size > MOST_BYTES:
            raise InvalidInput(f"{file} is larger than 20 MB; name a description, not the weights")
        return file.read_bytes()
    except FileNotFoundError:
        raise InvalidInput(f"{file} does not exist; check the path") from None
    except PermissionError:
        raise InvalidInput(f"{file} may not be read by this user; change its permissions") from None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{file} cannot be read ({reason(error)}); check the path") from None


def utf8(content: bytes, name: str) -> str:
    """The text of UTF-8 bytes, with or without byte order mark; other encodings are refused."""
    if content.startswith(UTF16_BOMS):
        raise InvalidInput(f"{name} is encoded in UTF-16; save it as UTF-8")
    try:
        return content.removeprefix(UTF8_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name} is not UTF-8 at byte {error.start}; save it as UTF-8") from None


def reason(error: Exception) -> str:
    """The first line of what a library says, for the parentheses of a message."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error).strip().partition("\n")[0]


def _called(value: object) -> str:
    return "keys that are no text" if isinstance(value, dict) else f"one {type(value).__name__}"


_PARSERS: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    ".json": ("JSON", msgspec.json.decode),
    ".toml": ("TOML", tomllib.loads),
    ".yaml": ("YAML", yaml.safe_load),
    ".yml": ("YAML", yaml.safe_load),
}
