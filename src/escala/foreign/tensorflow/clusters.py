"""TF_CONFIG: which hosts make a cluster, and which of them this is. Knows its shape, no rule.

It stands in a JSON file, in a variable of a shell script, or is written by a program from a dictionary.
"""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from escala.foreign.documents import Document, Syntax
from escala.foreign.facts import count_of
from escala.foreign.jsontext import read_json
from escala.foreign.places import Node, Place, at
from escala.foreign.shelltext import Word

NAME: Final = "TF_CONFIG"
OPEN: Final = re.compile(r"\$\{[^}]*\}|\$\w+|\$\([^)]*\)")
TRAINING: Final = ("chief", "worker")
"""Tasks that hold replicas; others are parameter servers and evaluators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One TF_CONFIG; `is_open` if a shell fills part of it in, `place` where it stands."""

    tree: Node
    place: Place
    is_open: bool = False

    @property
    def tasks(self) -> dict[str, list[str]]:
        """Addresses by kind of task, as far as they are lists of texts."""
        table = at(self.tree, "cluster")
        kinds = table.table if table is not None else {}
        return {kind: [str(each.scalar) for each in node.items] for kind, node in kinds.items()}

    @property
    def kind(self) -> str | None:
        """The kind of this task."""
        node = at(self.tree, "task", "type")
        return str(node.scalar) if node is not None else None

    @property
    def index(self) -> int | None:
        """The number of this task among its kind."""
        return count_of(at(self.tree, "task", "index"))

    @property
    def nodes(self) -> int:
        """Hosts that train; 0 where only a shell knows them."""
        addresses = [each for kind in TRAINING for each in self.tasks.get(kind, [])]
        return len(addresses) if all(":" in each for each in addresses) else 0


def clusters_of(document: Document) -> list[Cluster]:
    """All of them in a document."""
    if document.tree is not None and document.syntax is Syntax.JSON:
        named = document.tree.table.get(NAME, document.tree)
        return [Cluster(tree=named, place=named.entry)] if {"cluster", "task"} <= set(named.table) else []
    if document.script is not None and NAME in document.text:
        return list(_of_script(document))
    if document.code is not None and NAME in document.text:
        return list(_of_program(document, document.code))
    return []


def _of_script(document: Document) -> Iterator[Cluster]:
    assert document.script is not None
    words = [command.variables[NAME] for command in document.script.commands if NAME in command.variables]
    last = document.script.variables.get(NAME)
    for word in dict.fromkeys([*words, *([last] if last is not None else [])]):
        cluster = _parsed(word, document.file)
        if cluster is not None:
            yield cluster


def _parsed(word: Word, file: str) -> Cluster | None:
    """The value of a variable, 0 for what a shell fills in."""
    text, times = OPEN.subn("0", word.text)
    tree, _ = read_json(text, file, word.place.line)
    return None if tree is None or not tree.table else Cluster(tree=tree, place=word.place, is_open=times > 0)


def _of_program(document: Document, code: ast.Module) -> Iterator[Cluster]:
    """os.environ["TF_CONFIG"] = json.dumps({...}), where the dictionary is written out."""
    for node in ast.walk(code):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Subscript):
            continue
        key, value = node.targets[0].slice, node.value
        if not (isinstance(key, ast.Constant) and key.value == NAME):
            continue
        inside = value.args[0] if isinstance(value, ast.Call) and value.args else value
        try:
            given = ast.literal_eval(inside)
            text = given if isinstance(given, str) else json.dumps(given)
        except (ValueError, TypeError, RecursionError):
            continue
        tree, _ = read_json(text, document.file, document.first_line - 1 + node.lineno)
        start = document.lines.starts[min(node.lineno, len(document.lines.starts)) - 1]
        if tree is not None and tree.table:
            yield Cluster(tree=tree, place=document.lines.place(start))
