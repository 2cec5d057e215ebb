"""NeMo AutoModel's own dataclasses beside the table of its keys, and the components that a recipe names."""

import ast

import pytest
import yaml

from escala.foreign.automodel import writing
from escala.foreign.keys import table
from escala.foreign.orders import lacking
from foreign.plans import ORDERS
from oracles import automodel_keys
from oracles.keys import written

pytestmark = pytest.mark.oracle
FOLDER = automodel_keys.folder()


def test_the_table_of_keys_is_what_the_dataclasses_have() -> None:
    assert written(automodel_keys.table()) == written(table("automodel"))


@pytest.mark.parametrize("name", ORDERS)
def test_every_component_that_is_written_is_there_and_takes_its_keys(name: str) -> None:
    if lacking(writing.TARGET, ORDERS[name]):
        pytest.skip("refused, with its reasons")
    [file] = writing.write(ORDERS[name])

    blocks = [each for each in blocks_of(yaml.safe_load(file.text)) if own(each)]

    assert blocks
    for block in blocks:
        assert set(block) - {"_target_"} <= parameters(str(block["_target_"])), block["_target_"]


def own(block: dict[str, object]) -> bool:
    """Whether a block is made by a module of the package; the model takes what transformers takes."""
    target = str(block.get("_target_", ""))
    return target.startswith("nemo_automodel.components")


def blocks_of(value: object) -> list[dict[str, object]]:
    if not isinstance(value, dict):
        return []
    return [value, *(each for inner in value.values() for each in blocks_of(inner))]


def parameters(target: str) -> set[str]:
    """Names that a class or function of the package takes."""
    module, _, name = target.rpartition(".")
    place = FOLDER.parent.joinpath(*module.split("."))
    path = place.with_suffix(".py") if place.with_suffix(".py").exists() else place / "__init__.py"
    tree = ast.parse(path.read_text("utf-8"))
    found = next((node for node in tree.body if getattr(node, "name", "") == name), None)
    if found is None:  # an __init__ that hands on what another module has
        [source] = [
            node.module
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and any(each.name == name for each in node.names)
        ]
        return parameters(f"{source}.{name}")
    assert isinstance(found, ast.ClassDef)
    fields = {
        each.target.id
        for each in found.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    made = [each for each in found.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    return fields | {argument.arg for each in made for argument in [*each.args.args, *each.args.kwonlyargs]}
