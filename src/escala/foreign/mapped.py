"""Keys that are facts: which fact a key tells, and how its value is read. Knows no tool."""

from collections.abc import Callable, Iterator, Mapping

from escala.foreign.facts import Fact, Value, count_of, fact, is_open, truth_of
from escala.foreign.places import Node

Reader = Callable[[Node], Value | None]
Keys = Mapping[str, tuple[str, Reader]]


def facts_in(node: Node, keys: Keys) -> Iterator[Fact]:
    """The facts that keys of a table tell; of several keys for one fact the first."""
    told: set[str] = set()
    for key, (name, reader) in keys.items():
        each = node.table.get(key)
        value = None if each is None else reader(each)
        if each is not None and value is not None and name not in told:
            told.add(name)
            yield fact(name, value, each, key)


def positive(node: Node) -> int | None:
    """A whole number above zero."""
    count = count_of(node)
    return count if count is not None and count > 0 else None


def text_of(node: Node) -> str | None:
    """A text that is filled in here, not elsewhere."""
    given = node.scalar
    return given if isinstance(given, str) and given and not is_open(given) else None


def names_of(node: Node) -> tuple[str, ...] | None:
    """Names, in a list or in a text with commas."""
    if node.items:
        given = tuple(str(each.scalar) for each in node.items if isinstance(each.scalar, str))
    else:
        given = tuple(name.strip() for name in (text_of(node) or "").split(",") if name.strip())
    return given or None


def is_on(node: Node | None) -> bool:
    """Whether a value is there and says anything but no."""
    if node is None or node.value is None:
        return False
    if isinstance(node.value, list | dict):
        return bool(node.value)
    given = truth_of(node)
    return given if given is not None else bool(node.scalar)
