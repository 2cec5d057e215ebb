"""MaxText's settings, from the classes and the base.yml of its wheel, which is read and not run.

Its own reader needs JAX for Python 3.12; it forbids keys that are no field of MaxTextConfig.
"""

import ast
from pathlib import Path

import yaml

from escala.foreign.keys import Key, Section, Table
from oracles.unpacked import unpacked

VERSION = "0.2.5"
TYPES = {"int": ("integer",), "float": ("number",), "bool": ("boolean",)}


def folder() -> Path:
    """The folder of settings in the wheel."""
    return unpacked(f"maxtext=={VERSION}", "maxtext") / "maxtext/configs"


def table() -> Table:
    """All settings by name: fields of the classes that MaxTextConfig is made of, and keys of base.yml."""
    module = ast.parse(folder().joinpath("types.py").read_text("utf-8"))
    classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    enums = {name: _members(node) for name, node in classes.items() if _is_enum(node)}
    keys: dict[str, Key] = {name: Key() for name in base()}
    for name in _bases(classes, "MaxTextConfig"):
        for field in classes[name].body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                keys[field.target.id] = _key(ast.unparse(field.annotation), enums)
    return Table(
        tool="MaxText",
        version=VERSION,
        source=f"maxtext {VERSION} configs/types.py and configs/base.yml",
        sections={"": Section(keys=keys)},
    )


def base() -> dict[str, object]:
    """What base.yml says."""
    content: dict[str, object] = yaml.safe_load(folder().joinpath("base.yml").read_text("utf-8"))
    return content


def models() -> set[str]:
    """Names that model_name takes: files of the folder of models."""
    return {file.stem for file in folder().joinpath("models").glob("*.yml")}


def _bases(classes: dict[str, ast.ClassDef], name: str) -> list[str]:
    """A class and all classes of the module that it is made of."""
    given = [base.id for base in classes[name].bases if isinstance(base, ast.Name) and base.id in classes]
    return [name, *(each for base in given for each in _bases(classes, base))]


def _is_enum(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "Enum" for base in node.bases)


def _members(node: ast.ClassDef) -> tuple[str, ...]:
    values = [each.value for each in node.body if isinstance(each, ast.Assign)]
    return tuple(str(each.value) for each in values if isinstance(each, ast.Constant))


def _key(annotation: str, enums: dict[str, tuple[str, ...]]) -> Key:
    parts = [part.strip() for part in annotation.split("|") if part.strip() != "None"]
    if len(parts) == 1 and parts[0] in enums:
        return Key(types=("string",), choices=enums[parts[0]])
    return Key(types=TYPES[parts[0]]) if len(parts) == 1 and parts[0] in TYPES else Key()
