"""Fields of dataclasses as sections of a table of keys."""

import enum
import types
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from escala.foreign.keys import Key, Section

NAMES: dict[object, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    dict: "object",
    list: "array",
    tuple: "array",
}


def section_of(
    kind: type, *, strict: bool = True, without: frozenset[str] = frozenset(), nested: Mapping[str, str] = {}
) -> Section:
    """The fields that one gives, with what they take; `nested` are the sections of those that are tables."""
    hints = get_type_hints(kind)
    keys = {
        field.name: key_of(hints[field.name], nested.get(field.name, ""))
        for field in fields(kind)
        if field.init and not field.name.startswith("_") and field.name not in without
    }
    return Section(keys=keys, strict=strict)


def key_of(hint: object, section: str = "") -> Key:
    """What a type takes; nothing is said of types that no file can write."""
    kinds: list[str] = []
    plain: list[str] = []
    choices: list[Any] = []
    for each in options(hint):
        if each is type(None):
            continue
        if get_origin(each) is Literal:
            choices += list(get_args(each))
            kinds += [NAMES[type(value)] for value in get_args(each)]
        elif isinstance(each, type) and issubclass(each, enum.Enum):
            values = [item.value for item in each]
            choices += values
            kinds += [NAMES.get(type(value), "any") for value in values]
        else:
            plain.append(NAMES.get(get_origin(each) or each, "any"))
    both = {*kinds, *plain}
    if "any" in both or not both:
        return Key(section=section)
    if plain == ["boolean"]:
        choices += [True, False]
    is_closed = bool(kinds) and plain in ([], ["boolean"])
    return Key(
        types=tuple(sorted(both)), choices=tuple(dict.fromkeys(choices)) if is_closed else (), section=section
    )


def options(hint: object) -> tuple[Any, ...]:
    """The alternatives of a union, or the type alone."""
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(each for part in get_args(hint) for each in options(part))
    return (hint,)
