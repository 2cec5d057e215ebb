"""Classes of modules of every model of transformers, read from its source without importing it."""

import ast
import re
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from escala.foreign.modules import Family, Modules
from oracles.needed import needed

EXPERTS: Final = re.compile(r".*(SparseMoeBlock|SparseMoEBlock|MoE|MoEBlock)$")


def table() -> Modules:
    """The table of the installed version."""
    needed("transformers")
    spec = find_spec("transformers")
    origin = spec.origin if spec is not None else None
    assert origin is not None
    folder = Path(origin).parent / "models"
    families = dict(each for model in sorted(folder.iterdir()) if model.is_dir() for each in _model(model))
    source = f"transformers {version('transformers')}: _no_split_modules and classes of experts"
    return Modules(source=source, families=families)


def _model(folder: Path) -> Iterator[tuple[str, Family]]:
    """The families of a folder: each model type of its configurations, all with the folder's classes."""
    types = sorted({each for file in folder.glob("configuration_*.py") for each in _types(_tree(file))})
    trees = [_tree(file) for file in sorted(folder.glob("modeling_*.py"))]
    blocks = tuple(sorted({each for tree in trees for each in _blocks(tree)}))
    experts = tuple(sorted({each for tree in trees for each in _experts(tree)}))
    if blocks:
        for name in types:
            yield name, Family(blocks=blocks, experts=experts)


def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


def _assigned(tree: ast.Module, name: str) -> Iterator[ast.expr]:
    """What classes set a name to."""
    for owner in tree.body:
        for node in owner.body if isinstance(owner, ast.ClassDef) else ():
            targets = node.targets if isinstance(node, ast.Assign) else ()
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                assert isinstance(node, ast.Assign)
                yield node.value


def _types(tree: ast.Module) -> Iterator[str]:
    for value in _assigned(tree, "model_type"):
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.value


def _blocks(tree: ast.Module) -> Iterator[str]:
    for value in _assigned(tree, "_no_split_modules"):
        for item in value.elts if isinstance(value, ast.List | ast.Tuple | ast.Set) else ():
            if isinstance(item, ast.Constant) and isinstance(item.value, str):
                yield item.value


def _experts(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and EXPERTS.fullmatch(node.name):
            yield node.name
