"""Rules whose condition is data: which keys and facts together are wrong. Knows no tool.

`when` of a rule names keys, dotted paths or `fact.NAME`, each with a condition; all have to hold. A list is
of values that the key may have, "absent" among them if it may be missing; "set" and "unset" ask whether it
is there and is not false, empty or null; ">1" and "<1" compare numbers.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from escala.errors import spoken
from escala.foreign.findings import Finding, Rule, finding, rules_of
from escala.foreign.jobs import Job
from escala.foreign.places import Node, Scalar, at

NOTHING: Final = (None, False, "", "no", "none")
ABSENT: Final = "absent"


def conditional(group: str, job: Job, node: Node, defaults: Mapping[str, Scalar]) -> Iterator[Finding]:
    """What the rules of a group find in a table of keys; `defaults` are values of keys that are missing."""
    for rule in rules_of(group).values():
        if rule.when and _holds(rule, job, node, defaults):
            where = _found(node, rule.at) or node
            given = {name: spoken(_value(name, job, node, defaults)) for name in rule.when}
            words: dict[str, Any] = {name.replace(".", "_"): value for name, value in given.items()}
            yield finding(rule.name, where, **words)


def _holds(rule: Rule, job: Job, node: Node, defaults: Mapping[str, Scalar]) -> bool:
    return all(is_met(_value(name, job, node, defaults), wanted) for name, wanted in rule.when.items())


def _value(name: str, job: Job, node: Node, defaults: Mapping[str, Scalar]) -> object:
    """A scalar, a list or table (which count as set), or None."""
    if name.startswith("fact."):
        return job.value(name.removeprefix("fact."))
    given = _found(node, name)
    if given is None:
        return defaults.get(name)
    return given.value


def _found(node: Node, name: str) -> Node | None:
    return at(node, *name.split(".")) if name else None


def is_met(value: object, wanted: object) -> bool:
    """Whether a value meets one condition."""
    if wanted == "set":
        return value not in NOTHING and value not in ([], {})
    if wanted == "unset":
        return value in NOTHING or value in ([], {})
    if isinstance(wanted, str) and wanted[:1] in "<>":
        return _is_number(value) and _compares(float(value), wanted)  # type: ignore[arg-type]  # a number
    assert isinstance(wanted, list), wanted
    if value is None:
        return ABSENT in wanted
    return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in wanted)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _compares(value: float, wanted: str) -> bool:
    bound = float(wanted[1:])
    return value > bound if wanted[0] == ">" else value < bound
