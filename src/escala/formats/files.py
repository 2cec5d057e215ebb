"""Objects with keys from TOML, YAML and JSON files. Knows no format's keys; reads, never writes."""

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import yaml

from escala.errors import InvalidInput, spoken
from escala.inputs import read_text, reason


def read_keys(file: Path) -> Mapping[str, object]:
    """The keys of a TOML, YAML or JSON file, by its ending; JSON when the ending is another."""
    text = read_text(file)
    kind, parse = _PARSERS.get(file.suffix.lower(), _PARSERS[".json"])
    if kind == "JSON" and not text.strip():
        raise InvalidInput(f"{file} is empty; check the path, or write it again")
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


def _called(value: object) -> str:
    return "keys that are no text" if isinstance(value, dict) else spoken(value)


_PARSERS: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    ".json": ("JSON", msgspec.json.decode),
    ".toml": ("TOML", tomllib.loads),
    ".yaml": ("YAML", yaml.safe_load),
    ".yml": ("YAML", yaml.safe_load),
}
