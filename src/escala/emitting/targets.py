"""The targets for which plans are written, found by the names of their modules. Knows no target."""

from collections.abc import Iterator, Mapping
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
    found = [cast(Writer, import_module(name)) for name in _modules()]
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


def _modules() -> Iterator[str]:
    """Full names of the modules that write a target."""
    for folder in iter_modules(foreign.__path__, "escala.foreign."):
        if folder.ispkg:
            for module in iter_modules(import_module(folder.name).__path__, f"{folder.name}."):
                last = module.name.rpartition(".")[2]
                if last == WRITING or last.startswith(f"{WRITING}_"):
                    yield module.name
