"""The commands of the tutorial and of the README run as they stand."""

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(?P<kind>.*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(name: str) -> list[tuple[str, str]]:
    return [(found["kind"], found["text"]) for found in BLOCK.finditer((ROOT / name).read_text())]


def commands(text: str) -> list[list[str]]:
    return [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("escala ")]


@pytest.mark.parametrize("name", ["docs/tutorial.md", "README.md"])
def test_commands_of_the_text_run_in_order(run, tmp_path: Path, name: str):
    for kind, text in blocks(name):
        if kind.startswith("toml"):
            (tmp_path / ("escala.toml" if kind == "toml settings" else "cluster.toml")).write_text(text)
        for arguments in commands(text):
            assert run(*arguments).code == (1 if kind == "sh no" else 0), arguments
