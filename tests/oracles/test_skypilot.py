"""SkyPilot itself as judge: its schema, and tasks as it loads them."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from escala.foreign.keys import table
from escala.foreign.skypilot import writing
from foreign.plans import ORDERS
from foreign.round import written
from oracles.needed import needed

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
VALID = Path(__file__).parents[1] / "foreign/valid"


@pytest.fixture(scope="module")
def sky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """SkyPilot with a home of its own and nothing sent anywhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("SKYPILOT_DISABLE_USAGE_COLLECTION", "1")
        yield needed("skypilot", "sky")


def test_the_table_of_keys_is_the_schema(sky: Any) -> None:
    from oracles import skypilot_keys

    assert sky.__version__ == "0.14.1"
    assert skypilot_keys.table() == table("skypilot")


@pytest.mark.parametrize("plan", ORDERS)
def test_every_plan_is_loaded_as_it_was_meant(sky: Any, plan: str, tmp_path: Path) -> None:
    order = replace(ORDERS[plan], launch="torchrun t.py")
    [path] = written(writing, order, tmp_path)

    task = loaded(sky, Path(path))

    [resources] = task.resources
    name = writing.NAMES[order.problem.accelerator.name]
    assert (task.num_nodes, resources.accelerators) == (order.nodes, {name: order.devices_per_node})
    assert "torchrun t.py" in task.run


@pytest.mark.parametrize("path", sorted(VALID.glob("skypilot-*.yaml")), ids=lambda path: path.name)
def test_valid_tasks_are_valid(sky: Any, path: Path) -> None:
    assert loaded(sky, path).num_nodes >= 1


def loaded(sky: Any, path: Path) -> Any:
    """The task, loaded in its own folder, where its workdir is."""
    before = os.getcwd()
    os.chdir(path.parent)
    try:
        return sky.Task.from_yaml(str(path))
    finally:
        os.chdir(before)


def test_skypilot_refuses_what_escala_finds(sky: Any, tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text("num_node: 2\nrun: true\n")

    with pytest.raises(ValueError, match="num_nodes"):
        loaded(sky, tmp_path / "task.yaml")
