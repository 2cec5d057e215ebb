"""Every target with every plan: written and read back whole, or refused with a reason; names do no harm."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from escala.emitting.targets import writer_of, writers
from escala.foreign.orders import OutFile, lacking, launch_line
from escala.foreign.shelltext import read_shell
from foreign.plans import ORDERS
from foreign.round import assert_written_or_refused

HOSTILE = 'it\'s "a" $(touch harm) `touch harm`; touch harm # {x} %s \\ & <b>'
LOST: dict[str, frozenset[str]] = {}
"""Facts that the files of a target cannot hold, as its page says."""


@pytest.mark.parametrize("target", writers())
def test_every_plan_comes_back_or_is_refused(target: str, tmp_path: Path) -> None:
    writer, lost = writer_of(target), LOST.get(target, frozenset())

    for name, order in ORDERS.items():
        assert_written_or_refused(writer, order, tmp_path / name, lost=lost)


@pytest.mark.parametrize("target", writers())
def test_some_plan_is_written(target: str) -> None:
    written = [name for name, order in ORDERS.items() if not lacking(writer_of(target).TARGET, order)]

    assert written != []


@pytest.mark.parametrize("target", writers())
def test_files_say_their_plan_and_how_to_launch(target: str) -> None:
    writer = writer_of(target)
    for order in ORDERS.values():
        if lacking(writer.TARGET, order):
            continue
        files = [each for each in writer.write(order) if not each.name.endswith(".json")]
        assert all(f"from plan {order.digest}" in each.text for each in files)
        assert all(launch_line(writer.TARGET, order) in each.text for each in files)
        assert all(each.text.endswith("\n") for each in files)


@pytest.mark.parametrize("target", writers())
def test_names_are_quoted_in_every_syntax(target: str) -> None:
    writer = writer_of(target)
    for order in ORDERS.values():
        if not lacking(writer.TARGET, order):
            for each in writer.write(replace(order, model=HOSTILE, data=HOSTILE)):
                assert_harmless(each)


def assert_harmless(file: OutFile) -> None:
    """No command of a script is the one in the name, and Python can be read."""
    if file.name.endswith(".py"):
        ast.parse(file.text)
    if file.name.endswith((".sh", ".sbatch")):
        script = read_shell(file.text, file.name)
        assert "touch" not in str(script)
