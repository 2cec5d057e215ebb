"""Records to plain keys and back, without loss. Knows how dataclasses nest, no record in particular.

Every key is checked: one that a record does not have is refused with near names, a missing one takes the
record's default, numbers must be finite and not negative. A layer's part carries its kind in "part".
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from escala.catalog.loader import shown
from escala.errors import InvalidInput, spoken, unknown
from escala.model.network import Attention, Convolution, Experts, FeedForward, Linear, Mixer
from escala.model.traces import Traced

Record = TypeVar("Record")
PARTS: Final[dict[str, type[Any]]] = {
    "attention": Attention,
    "mixer": Mixer,
    "feed-forward": FeedForward,
    "experts": Experts,
    "convolution": Convolution,
    "linear": Linear,
    "traced": Traced,
}
MOST: Final = 1e30
KINDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object with keys",
}


def keys_of(value: Any) -> Any:
    """A record as dicts, lists and plain values."""
    if is_dataclass(value):
        tag = [("part", name) for name, kind in PARTS.items() if type(value) is kind]
        return dict(tag) | {field.name: keys_of(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [keys_of(each) for each in value]
    return msgspec.to_builtins(value)


def record_of(kind: type[Record], given: object, where: str) -> Record:
    """The record that the keys hold; `where` names the place in messages."""
    table = table_of(given, where)
    hints, known = get_type_hints(kind), {field.name: field for field in fields(kind)}  # type: ignore[arg-type] # a dataclass
    values = {}
    for name, value in table.items():
        if name not in known:
            raise unknown("key", shown(str(name)), known, f"it stands in {where}; {choices(known)}")
        values[name] = _value(hints[name], value, f"{where}.{name}")
    for name, field in known.items():
        if name not in values and field.default is MISSING and field.default_factory is MISSING:
            raise InvalidInput(f"{where} lacks '{name}'; add it")
    return kind(**values)


def choices(known: Iterable[str]) -> str:
    """The end of a message about an unknown key."""
    return f"allowed are {', '.join(known)}"


def table_of(given: object, where: str) -> Mapping[str, Any]:
    """An object with keys, or a refusal."""
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{where} is {spoken(given)}; it has to be an object with keys")
    return given


def _value(hint: Any, given: Any, where: str) -> Any:
    inner = [each for each in get_args(hint) if each is not NoneType]
    if get_origin(hint) in (Union, UnionType) and any(is_dataclass(each) for each in inner):
        return None if given is None else _one_of(inner, given, where)
    if is_dataclass(hint):
        return record_of(hint, given, where)  # type: ignore[arg-type] # is_dataclass admits instances
    if get_origin(hint) is tuple and inner and _holds_records(inner[0]):
        return tuple(_value(inner[0], each, f"{where}[{i}]") for i, each in enumerate(_list(given, where)))
    return _plain(hint, given, where)


def _holds_records(hint: Any) -> bool:
    return is_dataclass(hint) or any(is_dataclass(each) for each in get_args(hint))


def _one_of(kinds: list[Any], given: Any, where: str) -> Any:
    """The only record of a union, or the part that the keys name."""
    if len(kinds) == 1:
        return record_of(kinds[0], given, where)
    table = dict(table_of(given, where))
    name = table.pop("part", None)
    if name not in PARTS:
        raise unknown("part", shown(str(name)), PARTS, f"it stands in {where}; choose {', '.join(PARTS)}")
    return record_of(PARTS[name], table, where)


def _list(given: Any, where: str) -> list[Any]:
    if not isinstance(given, list):
        raise InvalidInput(f"{where} is {spoken(given)}; it has to be a list")
    return given


def _plain(hint: Any, given: Any, where: str) -> Any:
    try:
        value = msgspec.convert(given, hint)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{where} is {spoken(given)}; {_wanted(str(error))}") from None
    for number in value if isinstance(value, tuple) else (value,):
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if is_number and not (math.isfinite(number) and 0 <= number <= MOST):
            raise InvalidInput(f"{where} is {number}; a number has to be finite and not negative")
    return value


def _wanted(said: str) -> str:
    """What the decoder expected, without words of Python."""
    expected = re.match(r"Expected `(?P<types>[^`]+)`", said)
    if expected is None:
        return f"{said[:1].lower()}{said[1:]}"
    names = [KINDS.get(each, each) for each in expected["types"].split(" | ")]
    return f"it has to be {' or '.join(names)}"
