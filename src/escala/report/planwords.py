"""The fields of a plan in words: what files and --fix write. Knows names and codes; judges no plan."""

from collections.abc import Mapping
from dataclasses import fields
from enum import IntEnum
from typing import Any, Final

from escala.catalog.loader import shown
from escala.errors import InvalidInput, spoken, unknown
from escala.model.plan import CHOICES, FLAGS, PLACEMENTS, Plan
from escala.planning.search import Objective
from escala.planning.space import ALONE

FIXABLE: Final = (
    "dp",
    "tp",
    "pp",
    "cp",
    "ep",
    "etp",
    "zero",
    "reshard",
    "shard",
    "placement",
    "micro_batch",
    "sp",
    "cp_kind",
    "schedule",
    "virtual_stages",
    "split",
    "recompute",
    "compile",
    "fused_loss",
    *ALONE,
)
"""Fields that the search chooses, and that a person may narrow."""
_FROM_ZERO: Final = ("zero", "recompute_layers", "stage_layers", "local_overlap_steps", "wide_layers")
MOST: Final = 1_000_000_000
MOST_FIXED: Final = 1_000_000
_SHORT: Final = {"one-f-one-b": "1f1b"}
_YES: Final = {"true": 1, "yes": 1, "on": 1, "1": 1, "false": 0, "no": 0, "off": 0, "0": 0}


def words(choice: type[IntEnum]) -> dict[str, int]:
    """The words of a choice with their codes: {'none': 0, 'gpipe': 1, '1f1b': 2, ...}."""
    plain = {member.name.lower().replace("_", "-"): int(member) for member in choice}
    return {_SHORT.get(word, word): code for word, code in plain.items()}


# What titles print and people write, beside the words themselves.
_ALSO: Final[dict[str, dict[str, str]]] = {
    "compile": {
        **dict.fromkeys(("true", "yes", "on", "1"), "default"),
        **dict.fromkeys(("false", "no", "0"), "off"),
    },
    "schedule": {"zero-bubble": "zero-bubble-v", "zb-v": "zero-bubble-v", "one-f-one-b": "1f1b"},
    "cp_kind": {"allgather": "all-gather"},
    "recompute": {"off": "none", "no": "none", "selective-recompute": "selective", "full-recompute": "full"},
}


def word(choice: IntEnum) -> str:
    """The word of one choice."""
    return next(name for name, code in words(type(choice)).items() if code == choice)


def plan_keys(plan: Plan) -> dict[str, Any]:
    """Every field of a plan by name: numbers, switches, and choices as words."""
    return {field.name: _plain(getattr(plan, field.name)) for field in fields(Plan)}


def _plain(value: Any) -> Any:
    if isinstance(value, IntEnum):
        return word(value)
    return list(value) if isinstance(value, tuple) else value


def plan_of(keys: Mapping[str, Any], where: str) -> Plan:
    """The plan that the keys name; what is left out takes the plan's default."""
    known = [field.name for field in fields(Plan)]
    values: dict[str, Any] = {}
    for name, given in keys.items():
        if name not in known:
            raise unknown(
                "key", shown(str(name)), known, f"it stands in {where}; allowed are {', '.join(known)}"
            )
        values[name] = _value(name, given, where)
    return Plan(**values)


def _value(name: str, given: Any, where: str) -> Any:
    if name in CHOICES:
        return CHOICES[name](_choice(name, given))
    if name == "placement":
        return PLACEMENTS[code_of(name, given)]
    if name in FLAGS:
        return _typed(name, given, bool, "true or false", where)
    if name == "stage_layers":
        layers = _typed(name, given, list, "a list of numbers of layers", where)
        return tuple(_whole(name, each, where) for each in layers)
    return _whole(name, given, where)


def _whole(name: str, given: Any, where: str) -> int:
    least = 0 if name in _FROM_ZERO else 1
    if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= MOST:
        raise InvalidInput(f"{where}: {name} is {spoken(given)}; give a whole number from {least:,}")
    return given


def _typed(name: str, given: Any, kind: type, wanted: str, where: str) -> Any:
    if not isinstance(given, kind):
        raise InvalidInput(f"{where}: {name} is {spoken(given)}; give {wanted}")
    return given


def code_of(name: str, given: object) -> int:
    """The code of one value of a field, written as a person writes it."""
    text = str(given).strip().lower()
    if name in CHOICES:
        return _choice(name, text)
    if name in FLAGS:
        return _flag(name, text)
    if name == "placement":
        return _among(name, text, {place: code for code, place in enumerate(PLACEMENTS)})
    least, most = 0 if name in _FROM_ZERO else 1, 3 if name == "zero" else MOST_FIXED
    if not text.isdecimal() or not text.isascii() or not least <= int(text[:20]) <= most:
        raise InvalidInput(
            f"{name}={shown(text)} is not allowed; give a whole number from {least} to {most:,}"
        )
    return int(text)


def _choice(name: str, given: object) -> int:
    text = "-".join(str(given).lower().replace("_", " ").replace("-", " ").split())
    return _among(name, _ALSO.get(name, {}).get(text, text), words(CHOICES[name]))


def allowed_values(name: str) -> str:
    """What a field may be fixed to, in words."""
    if name in CHOICES:
        return ", ".join(words(CHOICES[name]))
    if name in FLAGS:
        return "true, false"
    if name == "placement":
        return f"an order of the axes from the inside out, such as {PLACEMENTS[0]}"
    least = 0 if name in _FROM_ZERO else 1
    return "0, 1, 2, 3" if name == "zero" else f"whole numbers from {least}"


def text_of(name: str, code: int) -> str:
    """One value of a field as a person writes it: the inverse of `code_of`."""
    if name in CHOICES:
        return word(CHOICES[name](code))
    if name in FLAGS:
        return "true" if code else "false"
    return PLACEMENTS[code] if name == "placement" else str(code)


def _among(name: str, text: str, allowed: Mapping[str, int]) -> int:
    if text not in allowed:
        raise unknown(name, shown(text), allowed, f"choose {', '.join(allowed)}")
    return allowed[text]


def _flag(name: str, text: str) -> int:
    if text not in _YES:
        raise unknown(name, shown(text), (), "choose true or false")
    return _YES[text]


def narrowed(texts: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Values that fields may take, from 'tp=4,8,pp=2': a part without a name belongs to the name before."""
    fixed: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name = ""
        for part in text.split(","):
            key, equals, value = part.strip().partition("=")
            if not equals:
                key, value = name, key
            key = key.strip().lower().replace("-", "_")
            if key not in FIXABLE:
                raise _unfixable(key, text)
            name = key
            fixed[key] = (*fixed.get(key, ()), code_of(key, value))
    for key in ALONE:
        if len(fixed.get(key, ())) > 1:
            raise InvalidInput(f"--fix {key} takes one value for all plans; ask for the others apart")
    return fixed


def objective_of(name: str) -> Objective:
    """The objective of a name."""
    every = [str(each) for each in Objective]
    if name not in every:
        raise unknown("objective", shown(name), every, f"choose {', '.join(every)}")
    return Objective(name)


def _unfixable(key: str, text: str) -> InvalidInput:
    if not key:
        return InvalidInput(f"--fix '{shown(text)}' names no field; write for example --fix tp=4,8,pp=2")
    every = "; ".join(f"{names}: {values}" for values, names in _vocabulary().items())
    return unknown("field to fix", shown(key), FIXABLE, f"choose {every}")


def _vocabulary() -> dict[str, str]:
    """Allowed values, and the fields that take them."""
    found: dict[str, list[str]] = {}
    for name in FIXABLE:
        found.setdefault(allowed_values(name), []).append(name)
    return {values: " ".join(names) for values, names in found.items()}
