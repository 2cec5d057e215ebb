"""`package.module:function` as the function that it names. Imports the module; calls nothing in it."""

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from escala.errors import InvalidInput, one_line, unknown
from escala.measurement.job.fault import user_code

SEPARATOR: Final = ":"
PYTHON: Final = ".py"
HUB: Final = "hf:"
CONTRACT: Final = "return (model, optimizer, batches, loss), or a function that runs one step"


def names_function(target: str) -> bool:
    """Whether a target is package.module:function, or file.py:function."""
    place, mark, function = target.rpartition(SEPARATOR)
    return bool(mark) and not target.startswith(HUB) and function.isidentifier() and bool(place)


def named(target: str) -> Any:
    """Whatever a target names in its module; modules of this folder are found."""
    place, _, name = target.rpartition(SEPARATOR)
    module = _module(place)
    found = getattr(module, name, None)
    if found is None:
        own = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_")]
        raise unknown("function", name, own, f"{place} has {', '.join(own[:8]) or 'none'}")
    return found


def imported(target: str, contract: str = CONTRACT) -> Callable[[], Any]:
    """The function of a target, which can be called without arguments; the contract says what it returns."""
    found = named(target)
    if not callable(found):
        raise InvalidInput(f"{target} is no function but {type(found).__name__}; name one: {contract}")
    _refuse_arguments(target, found, contract)
    function: Callable[[], Any] = found
    return function


def _module(place: str) -> ModuleType:
    folder, name = (Path(place).parent, Path(place).stem) if place.endswith(PYTHON) else (Path(), place)
    if place.endswith(PYTHON) and not Path(place).is_file():
        raise InvalidInput(f"{place} does not exist; check the path")
    path = str(folder.resolve())
    if path not in sys.path:
        sys.path.insert(0, path)
    importlib.invalidate_caches()
    with user_code(f"{place}, while it was imported,"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise _missing(place, name, error) from error


def _missing(place: str, name: str, error: ModuleNotFoundError) -> Exception:
    """The module itself is not there; or it is, and what it imports is not."""
    if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
        return InvalidInput(
            f"there is no module '{one_line(error.name)}' here or among what is installed;"
            f" give package.module:function as seen from {Path.cwd()}, or FILE.py:function"
        )
    return error


def _refuse_arguments(target: str, function: Callable[..., Any], contract: str) -> None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some builtins have no signature
        return
    needed = [
        each.name
        for each in parameters
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if needed:
        raise InvalidInput(
            f"{target} needs arguments ({', '.join(needed)}); name a function that needs none: {contract}"
        )
