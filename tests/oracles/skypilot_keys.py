"""Keys of SkyPilot's tasks, from the schema by which it checks them."""

from typing import Any

from escala.foreign.keys import Gone, Key, Section, Table
from oracles.needed import needed

PLACES = {
    name: Gone(to="infra: cloud/region/zone", deprecated="0.14", why="one key says all three")
    for name in ("cloud", "region", "zone")
}


def table() -> Table:
    """A task and its resources; what begins with _ is SkyPilot's own."""
    schemas = needed("skypilot", "sky.utils.schemas")
    task, resources = schemas.get_task_schema(), schemas.get_resources_schema()
    inner = _section(resources, gone=PLACES, nested={"any_of": "resources", "ordered": "resources"})
    return Table(
        tool="SkyPilot",
        version="0.14.1",
        source="skypilot 0.14.1 sky/utils/schemas.py",
        sections={"": _section(task, nested={"resources": "resources"}), "resources": inner},
    )


def _section(
    schema: dict[str, Any], *, nested: dict[str, str], gone: dict[str, Gone] | None = None
) -> Section:
    keys = {
        name: Key(types=_types(each), section=nested.get(name, ""))
        for name, each in sorted(schema["properties"].items())
        if not name.startswith("_") and name not in (gone or {})
    }
    return Section(keys=keys, gone=gone or {}, strict=True)


def _types(schema: dict[str, Any]) -> tuple[str, ...]:
    """The types of a value, where the schema says all of them."""
    several = schema.get("anyOf", [schema])
    found = [each.get("type") for each in several]
    if not all(isinstance(each, str) for each in found):
        return ()
    return tuple(dict.fromkeys(found))
