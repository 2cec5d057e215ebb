"""Arguments of Lightning's Trainer and of its strategy, from a call or from YAML. Judges nothing."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from escala.foreign.documents import Document
from escala.foreign.facts import count_of, is_open
from escala.foreign.places import Node, at
from escala.foreign.pythontext import Python, calls, dotted, imported

PACKAGES: Final = ("lightning", "pytorch_lightning", "lightning_fabric", "litgpt")
CALLED: Final = ("Trainer", "pl.Trainer", "L.Trainer", "lightning.Trainer", "pytorch_lightning.Trainer")
KNOWN: Final = frozenset(
    ("accelerator", "devices", "num_nodes", "strategy", "precision", "max_epochs", "max_steps", "callbacks")
)
OPTIMIZERS: Final = ("Adam", "AdamW", "SGD", "FusedAdam", "DeepSpeedCPUAdam", "AdamW8bit", "PagedAdamW8bit")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Settings:
    """Arguments of the Trainer with those of its strategy, and of what is beside them in the file.

    `strategy` is the name of the strategy or of its class, `options` what the class is given. `beside` has
    what other calls of the file say: batch_size, max_length, lr, optimizer.
    """

    trainer: Node
    strategy: str
    options: Node
    beside: Mapping[str, Node]

    def node(self, name: str) -> Node | None:
        """An argument of the Trainer."""
        return self.trainer.table.get(name)

    def option(self, name: str) -> Node | None:
        """An argument of the strategy."""
        return self.options.table.get(name)

    def text(self, name: str) -> str:
        """An argument of the Trainer that is a text or a number, as text."""
        node = self.node(name)
        return "" if node is None or node.scalar is None else str(node.scalar)

    @property
    def nodes(self) -> int | None:
        """Number of nodes; None where it is open."""
        node = self.node("num_nodes")
        return 1 if node is None else count_of(node)

    @property
    def devices(self) -> int | None:
        """Devices of each node; None where the machine decides or it is open."""
        node = self.node("devices")
        if node is None:
            return None
        if node.items:
            return len(node.items)
        given = node.scalar
        if isinstance(given, str) and "," in given:
            return len([each for each in given.split(",") if each.strip()])
        count = count_of(node)
        return count if count is not None and count > 0 else None


def of_document(document: Document) -> Settings | None:
    """The last Trainer of a Python file, or the trainer block of a YAML file; None where there is none."""
    if document.code is not None:
        return _of_code(document) if imported(document.code, *PACKAGES) else None
    trainer = at(document.tree, "trainer")
    if document.tree is None or trainer is None or not KNOWN & frozenset(trainer.table):
        return None
    given = trainer.table.get("strategy")
    options = at(given, "init_args")
    empty = Node(value={}, place=trainer.place)
    return Settings(
        trainer=trainer,
        strategy=_last(_text(at(given, "class_path")) or _text(given)),
        options=options or empty,
        beside=dict(_of_yaml(document.tree)),
    )


def _of_yaml(tree: Node) -> Iterator[tuple[str, Node]]:
    for section, keys in (
        ("data", ("batch_size", "max_length")),
        ("model", ("lr", "learning_rate", "max_length")),
    ):
        for key in keys:
            node = at(tree, section, "init_args", key) or at(tree, section, key)
            if node is not None:
                yield "lr" if key == "learning_rate" else key, node
    rate = at(tree, "optimizer", "init_args", "lr")
    if rate is not None:
        yield "lr", rate


def _of_code(document: Document) -> Settings | None:
    python = Python(document)
    assert document.code is not None
    found = [(name, call) for name, call in calls(document.code) if name in CALLED]
    if not found:
        return None
    call = found[-1][1]
    values = {
        target.id: each.value
        for each in ast.walk(document.code)
        if isinstance(each, ast.Assign)
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    given = next((each for each in call.keywords if each.arg == "strategy"), None)
    strategy: ast.expr | None = given.value if given is not None else None
    if isinstance(strategy, ast.Name):
        strategy = values.get(strategy.id, strategy)
    place = python.place(call)
    options = python.keywords(strategy) if isinstance(strategy, ast.Call) else {}
    name = dotted(strategy.func) if isinstance(strategy, ast.Call) else ""
    text = strategy.value if isinstance(strategy, ast.Constant) and isinstance(strategy.value, str) else ""
    return Settings(
        trainer=Node(value=dict(python.keywords(call)), place=place),
        strategy=_last(name) or text,
        options=Node(value=dict(options), place=python.place(strategy) if strategy is not None else place),
        beside=dict(_beside(python)),
    )


def _beside(python: Python) -> Iterator[tuple[str, Node]]:
    """What other calls say; of several the first counts."""
    assert python.document.code is not None
    seen: set[str] = set()
    for name, call in calls(python.document.code):
        last = name.rpartition(".")[2]
        keywords = python.keywords(call)
        found = {
            "batch_size": keywords.get("batch_size") if last == "DataLoader" else None,
            "max_length": keywords.get("max_length"),
            "lr": keywords.get("lr") if last in OPTIMIZERS else None,
            "optimizer": Node(value=last, place=python.place(call)) if last in OPTIMIZERS else None,
            "model": _first(python, call) if last in ("from_pretrained", "from_config") else None,
            "compile": _done(python, call) if last == "compile" and name != "re.compile" else None,
            "recompute": _done(python, call) if last == "gradient_checkpointing_enable" else None,
        }
        for key, node in found.items():
            if node is not None and key not in seen and not is_open(node.scalar):
                seen.add(key)
                yield key, node


def _first(python: Python, call: ast.Call) -> Node | None:
    return python.node(call.args[0]) if call.args else None


def _done(python: Python, call: ast.Call) -> Node:
    return Node(value=True, place=python.place(call))


def _text(node: Node | None) -> str:
    return node.scalar if node is not None and isinstance(node.scalar, str) else ""


def _last(name: str) -> str:
    return name.rpartition(".")[2]
