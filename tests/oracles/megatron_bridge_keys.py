"""Megatron-Bridge's fields, from the dataclasses of its wheel and of Megatron's, read and not run."""

import ast
import warnings
from functools import cache
from pathlib import Path

from escala.foreign.keys import Key, Section, Table
from oracles.unpacked import unpacked

VERSION = "0.6.2"
CORE = "0.19.2"
MODELS = ("Provider", "ProviderMixin", "Config")
"""How classes end that a model may be; a model of another family has other fields."""
SECTIONS = {
    "train": ("TrainingConfig",),
    "optimizer": ("OptimizerConfig",),
    "scheduler": ("SchedulerConfig",),
    "ddp": ("DistributedDataParallelConfig",),
}


def folders() -> tuple[Path, Path]:
    """Folders of the two packages."""
    bridge = unpacked(f"megatron-bridge=={VERSION}", "megatron-bridge") / "megatron/bridge"
    return bridge, unpacked(f"megatron-core=={CORE}", "megatron-bridge") / "megatron"


@cache
def classes() -> list[tuple[Path, ast.ClassDef]]:
    """All classes of files with dataclasses."""
    found: list[tuple[Path, ast.ClassDef]] = []
    for folder in folders():
        for file in sorted(folder.rglob("*.py")):
            text = file.read_text("utf-8")
            if "@dataclass" in text:
                with warnings.catch_warnings():  # of escapes in docstrings
                    warnings.simplefilter("ignore")
                    tree = ast.parse(text)
                found += [(file, node) for node in tree.body if isinstance(node, ast.ClassDef)]
    return found


def fields(node: ast.ClassDef) -> set[str]:
    """Names with a type in a class."""
    targets = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
    return {each.id for each in targets if isinstance(each, ast.Name) and not each.id.startswith("_")}


@cache
def table() -> Table:
    """Fields of the parts that people set; other parts are not looked at."""
    sections = {name: set[str]() for name in (*SECTIONS, "model")}
    for file, node in classes():
        if node.name.endswith(MODELS) and {"models", "transformer", "core"} & set(file.parts):
            sections["model"] |= fields(node)
        for name, wanted in SECTIONS.items():
            if node.name in wanted:
                sections[name] |= fields(node)
    return Table(
        tool="Megatron-Bridge",
        version=VERSION,
        source=f"megatron-bridge {VERSION} and megatron-core {CORE}, their dataclasses",
        sections={
            "": Section(keys={name: Key(section=name) for name in sections}, any=True),
            **{
                name: Section(keys={each: Key() for each in known}, strict=False)
                for name, known in sections.items()
            },
        },
    )
