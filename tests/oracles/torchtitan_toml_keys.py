"""The keys of torchtitan 0.2.2, the last version with TOML, from its own dataclasses."""

import dataclasses
from importlib.metadata import version
from typing import get_type_hints

from escala.foreign.keys import Key, Section, Table


def table() -> Table:
    """All keys, sections by their dotted names."""
    from torchtitan.config.job_config import JobConfig

    sections: dict[str, Section] = {}
    _add(JobConfig, "", sections)
    return Table(
        tool="torchtitan",
        version=version("torchtitan"),
        source=f"torchtitan {version('torchtitan')} config/manager.py, _dict_to_dataclass",
        sections=sections,
    )


def _add(given: type, name: str, sections: dict[str, Section]) -> None:
    hints = get_type_hints(given)
    keys: dict[str, Key] = {}
    for each in dataclasses.fields(given):
        inner = f"{name}.{each.name}" if name else each.name
        is_section = dataclasses.is_dataclass(hints[each.name])
        keys[each.name] = Key(section=inner if is_section else "")
        if is_section:
            _add(hints[each.name], inner, sections)
    sections[name] = Section(keys=keys)
