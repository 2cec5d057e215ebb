"""Megatron-Bridge's own dataclasses and functions beside what escala knows and writes of them."""

import ast

import pytest

from escala.foreign.documents import Syntax, parsed
from escala.foreign.keys import table
from escala.foreign.megatron_bridge import writing
from escala.foreign.megatron_bridge.names import RECIPES
from escala.foreign.megatron_bridge.reading import _settings
from escala.foreign.orders import lacking
from foreign.megatron_bridge.test_megatron_bridge import OTHERS
from foreign.plans import ORDERS
from oracles import megatron_bridge_keys
from oracles.keys import written

pytestmark = pytest.mark.oracle
BRIDGE, _ = megatron_bridge_keys.folders()
OWN = {"dataset": "GPTDatasetConfig", "checkpoint": "CheckpointConfig", "tokenizer": "TokenizerConfig"}


def test_the_table_of_fields_is_what_the_dataclasses_have() -> None:
    assert written(megatron_bridge_keys.table()) == written(table("megatron_bridge"))


def test_every_recipe_of_precision_is_a_registered_function() -> None:
    tree = ast.parse((BRIDGE / "training/mixed_precision.py").read_text("utf-8"))

    assert set(RECIPES) <= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", {**ORDERS, **OTHERS})
def test_every_name_that_is_set_is_a_field(name: str) -> None:
    order = {**ORDERS, **OTHERS}[name]
    if lacking(writing.TARGET, order):
        pytest.skip("refused, with its reasons")
    code = parsed(writing.write(order)[0].text, "recipe.py", Syntax.PYTHON)[0].code
    assert code is not None
    known = megatron_bridge_keys.table().sections

    for section, target, _ in _settings(code):
        names = set(known[section].keys) if section in known else own(section)
        assert target.attr in names or not section, (section, target.attr)


def own(section: str) -> set[str]:
    """Fields of a part that the table does not hold, of the class and of those that it is made of."""
    found = set[str]()
    for _, node in megatron_bridge_keys.classes():
        if node.name.endswith((OWN.get(section, "LoRA"), "SFTDatasetConfig", "MegatronDatasetConfig")):
            found |= megatron_bridge_keys.fields(node)
    return found


@pytest.mark.parametrize("name", {**ORDERS, **OTHERS})
def test_every_function_that_is_imported_is_there(name: str) -> None:
    order = {**ORDERS, **OTHERS}[name]
    if lacking(writing.TARGET, order):
        pytest.skip("refused, with its reasons")
    tree = ast.parse(writing.write(order)[0].text)

    for each in tree.body:
        if isinstance(each, ast.ImportFrom) and str(each.module).startswith("megatron.bridge."):
            path = BRIDGE.joinpath(*str(each.module).split(".")[2:]).with_suffix(".py")
            names = {node.name for node in ast.parse(path.read_text("utf-8")).body if hasattr(node, "name")}
            assert {alias.name for alias in each.names} <= names
