"""What else escala writes, by schema: where a file of another kind is named, which verb takes it."""

from collections.abc import Mapping
from typing import Final

from escala.errors import InvalidInput, one_line

# Kind of the schema -> what the file is, and what to do with FILE.
KINDS: Final = {
    "escala/plan-file": "a plan that `escala plan` wrote; see it with `escala explain FILE`",
    "escala/run": "the record of a run; set it beside its plan with `escala verify FILE plan.json`",
    "escala/verified-run": "a run with its plan; learn from it with `escala calibrate FILE`",
    "escala/bench": "the measurement of a machine; plan on it with --cluster FILE",
    "escala/profile": "the profile of a step; learn from it with `escala calibrate FILE:plan.json`",
    "escala/calibration": "what was learned from own runs; plan with it by --calibration FILE",
    "escala/cluster": "the description of a cluster; plan on it with --cluster FILE",
    "escala/scenario": "a federated scenario; judge it with `escala federate assess FILE`",
    "escala/network": "the description of a network; plan it with `escala plan FILE`",
    "escala/traced-network": "the network of a traced module; plan it with `escala plan FILE`",
}


def refuse_other(keys: Mapping[str, object], origin: str, wanted: str) -> None:
    """Refuse a file that escala wrote for something else, with the verb that takes it."""
    schema = keys.get("schema")
    kind = schema.partition("@")[0] if isinstance(schema, str) else ""
    said = KINDS.get(kind)
    if said is not None and kind != wanted.partition("@")[0]:
        raise InvalidInput(f"{origin} is {said.replace('FILE', one_line(origin))}")
