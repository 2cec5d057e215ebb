"""The targets for which plans are written, found by the names of their modules. Knows no target."""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Final, cast

from escala import foreign
from escala.errors import unknown
from escala.foreign.orders import Writer

WRITING: Final = "writing"
SHORT: Final = {
    "kubernetes": "kubernetes-trainjob",
    "megatron-lm": "megatron",
    "megatron-core": "megatron",
    "sbatch": "slurm",
    "trainjob": "kubernetes-trainjob",
    "jobset": "kubernetes-jobset",
}
"""Other names under which people ask for a target."""


@cache
def writers() -> Mapping[str, Writer]:
    """Every target's writer by name, in the order of names."""
    folders = [each.name for each in iter_modules(foreign.__path__) if each.ispkg]
    return _by_name(writer for folder in folders for writer in writers_in(folder))


@cache
def writers_in(tool: str) -> tuple[Writer, ...]:
    """The writers of one tool's files, in the order of their targets' names."""
    package = f"{foreign.__name__}.{tool}"
    names = [each.name for each in iter_modules(import_module(package).__path__)]
    found = [name for name in names if name == WRITING or name.startswith(f"{WRITING}_")]
    return tuple(_by_name(cast(Writer, import_module(f"{package}.{name}")) for name in found).values())


def _by_name(found: Iterable[Writer]) -> dict[str, Writer]:
    return {each.TARGET.name: each for each in sorted(found, key=lambda each: each.TARGET.name)}


def writer_of(name: str) -> Writer:
    """The writer of a target; an unknown name is refused with near ones."""
    every = writers()
    known = SHORT.get(name, name)
    if known not in every:
        raise unknown("target", name, every, f"there are {', '.join(every)}")
    return every[known]


def wrappers() -> Mapping[str, Writer]:
    """The targets that can start the files of another target."""
    return {name: each for name, each in writers().items() if each.TARGET.wraps}


def wrapper_of(name: str) -> Writer:
    """The writer of a scheduler's files; what is none is refused with the names of those that are."""
    every, known = wrappers(), SHORT.get(name, name)
    if known not in every:
        raise unknown("scheduler", name, every, f"there are {', '.join(every)}")
    return every[known]
