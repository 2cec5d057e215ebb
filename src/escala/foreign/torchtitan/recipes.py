"""Configuration functions of Python files as settings: what they start from, and what they set. Runs none.

A function is followed line by line: `c = llama3_8b()`, `c.section.key = value`, `c.section = Config(...)`,
`return Trainer.Config(...)`. What stands under a condition is not followed.
"""

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from escala.foreign.places import Node, Place
from escala.foreign.pythontext import Python, dotted
from escala.foreign.torchtitan.meaning import POLICIES
from escala.foreign.torchtitan.sizes import shipped

SECTIONS: Final = {
    "training": ("TrainingConfig",),
    "parallelism": ("ParallelismConfig",),
    "compile": ("CompileConfig",),
    "comm": ("CommConfig",),
    "debug": ("DebugConfig",),
    "activation_checkpoint": tuple(POLICIES),
}
"""Sections whose keys are checked, with their classes, which know no other keys; those of others may."""
REGISTRY: Final = "model_registry"
MODELS: Final = "torchtitan.models."
DEEPEST: Final = 20


@dataclass(slots=True, eq=False)
class Draft:
    """A configuration as far as it was followed: values by name, and what is written of each section."""

    place: Place
    values: dict[str, Node] = field(default_factory=dict)
    sections: dict[str, dict[str, Node]] = field(default_factory=dict)
    is_own: bool = False
    """Whether its class is not torchtitan's, so that it may have other sections."""

    def copy(self) -> "Draft":
        """Another one with the same settings."""
        sections = {name: dict(keys) for name, keys in self.sections.items()}
        return Draft(self.place, dict(self.values), sections, self.is_own)

    def tree(self) -> Node:
        """What is written, as a table of sections."""
        tables = {
            name: Node(value=dict(keys), place=self.place)
            for name, keys in self.sections.items()
            if name in SECTIONS or not self.is_own
        }
        return Node(value=dict(tables), place=self.place)


@dataclass(frozen=True, slots=True, eq=False)
class Spec:
    """What model_registry(...) gives: settings of the model."""

    values: dict[str, Node]


Bound = Draft | Spec | ast.expr


def drafts(python: Python) -> dict[str, Draft]:
    """The configuration that each function of a file gives back, in the order of the file."""
    assert python.document.code is not None
    reader = _Reader(python)
    found = {name: reader.function(name, 0) for name in reader.functions}
    return {name: draft for name, draft in found.items() if draft is not None}


class _Reader:
    """One pass over the functions of a file."""

    def __init__(self, python: Python) -> None:
        assert python.document.code is not None
        self.python, self.done = python, dict[str, Draft | None]()
        body = python.document.code.body
        self.functions = {each.name: each for each in body if isinstance(each, ast.FunctionDef)}
        self.imported = dict(_imported(python.document.code))

    def function(self, name: str, depth: int) -> Draft | None:
        """What a function gives back; None where that is no configuration."""
        if name not in self.done and depth < DEEPEST:
            self.done[name] = None
            self.done[name] = self.followed(self.functions[name], depth)
        found = self.done.get(name)
        return found.copy() if found else None

    def followed(self, function: ast.FunctionDef, depth: int) -> Draft | None:
        names: dict[str, Bound] = {}
        for statement in function.body:
            if isinstance(statement, ast.Return) and statement.value is not None:
                found = self.bound(statement.value, names, depth)
                return found if isinstance(found, Draft) else None
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                self.assign(statement.targets[0], statement.value, names, depth)
            elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
                self.assign(statement.target, statement.value, names, depth)
        return None

    def assign(self, target: ast.expr, value: ast.expr, names: dict[str, Bound], depth: int) -> None:
        if isinstance(target, ast.Name):
            names[target.id] = self.bound(value, names, depth)
        elif isinstance(target, ast.Attribute):
            root, *path = dotted(target).split(".")
            draft = names.get(root)
            if isinstance(draft, Draft):
                self.set(draft, tuple(path), value, self.python.key(target), names, depth)

    def bound(self, value: ast.expr, names: dict[str, Bound], depth: int) -> Bound:
        """What an expression stands for: a configuration, a model, or itself."""
        if isinstance(value, ast.Name):
            return names.get(value.id, value)
        if not isinstance(value, ast.Call):
            return value
        name = dotted(value.func)
        last = name.rpartition(".")[2]
        if name.endswith("Trainer.Config"):
            is_own = name.split(".")[-2:-1] != ["Trainer"]
            draft = Draft(self.python.place(value), is_own=is_own)
            self.fill(draft, value, names, depth)
            return draft
        if last == REGISTRY:
            return self.spec(value, name)
        if last in ("deepcopy", "copy", "replace") and value.args:
            return self.changed(value, names, depth)
        if name in self.functions:
            return self.function(name, depth + 1) or value
        origin = self.imported.get(name, ("", last))[1]
        return self.shipped(origin, value) if origin in shipped().recipes else value

    def changed(self, call: ast.Call, names: dict[str, Bound], depth: int) -> Bound:
        """deepcopy(c), or replace(c, section=...)."""
        given = self.bound(call.args[0], names, depth)
        if not isinstance(given, Draft):
            return call
        draft = given.copy()
        self.fill(draft, call, names, depth)
        return draft

    def fill(self, draft: Draft, call: ast.Call, names: dict[str, Bound], depth: int) -> None:
        for each in call.keywords:
            if each.arg:
                self.set(draft, (each.arg,), each.value, self.python.key(each), names, depth)

    def shipped(self, name: str, call: ast.Call) -> Draft:
        """A configuration that torchtitan ships; its settings have the place of the call."""
        place = self.python.place(call)
        recipe = shipped().recipes[name]
        return Draft(
            place,
            {key: setting(value, place) for key, value in recipe.settings.items()}
            | {"model.name": Node(value=recipe.module, place=place)},
        )

    def spec(self, call: ast.Call, name: str) -> Spec:
        """model_registry("8B", converters=[...])."""
        place = self.python.place(call)
        module = self.module(name)
        values = {"model.name": Node(value=module, place=place)} if module else {}
        named = {each.arg: each.value for each in call.keywords if each.arg}
        flavor = call.args[0] if call.args else named.get("flavor")
        if flavor is not None:
            values["model.flavor"] = self.python.node(flavor)
        for key in ("attn_backend", "moe_comm_backend"):
            if key in named:
                values[f"model.{key}"] = self.python.node(named[key])
        if "converters" in named:
            values |= self.converters(named["converters"])
        return Spec(values)

    def module(self, name: str) -> str:
        """The model module of a registry: torchtitan.models.NAME.model_registry, however it was imported."""
        root, _, rest = name.partition(".")
        whole = ".".join((*self.imported.get(root, ("", root)), rest))
        return whole.partition(MODELS)[2].partition(".")[0]

    def converters(self, given: ast.expr) -> dict[str, Node]:
        """Converters by their class, with what they say of the recipe and of adapters."""
        found: dict[str, Node] = {}
        classes: list[Node] = []
        for each in given.elts if isinstance(given, ast.List | ast.Tuple) else ():
            if isinstance(each, ast.Call):
                name = dotted(each.func).removesuffix(".Config").rpartition(".")[2]
                classes.append(Node(value=name, place=self.python.place(each)))
                keywords = self.python.keywords(each)
                found |= {
                    f"model.{meant}": keywords[key]
                    for key, meant in (("recipe_name", "float8_recipe"), ("rank", "lora_rank"))
                    if key in keywords
                }
        return found | {"model.converters": Node(value=classes, place=self.python.place(given))}

    def set(
        self,
        draft: Draft,
        path: tuple[str, ...],
        value: ast.expr,
        key: Place,
        names: dict[str, Bound],
        depth: int,
    ) -> None:
        """One setting, or a whole section."""
        given = self.bound(value, names, depth)
        if path == ("model_spec",):
            kept = {name: node for name, node in draft.values.items() if not name.startswith("model.")}
            draft.values = kept | (given.values if isinstance(given, Spec) else {})
        elif len(path) == 1 and isinstance(given, ast.expr):
            _forget(draft, path[0])
            self.section(draft, path[0], given, key)
        elif len(path) == 2 and isinstance(given, ast.expr):
            node = self.python.node(given, key)
            draft.values[".".join(path)] = node
            draft.sections.setdefault(path[0], {})[path[1]] = node

    def section(self, draft: Draft, name: str, given: ast.expr, key: Place) -> None:
        """A section that is given whole."""
        if not isinstance(given, ast.Call):
            node = self.python.node(given, key)
            is_none = name == "activation_checkpoint" and node.value is None
            draft.values[f"{name}.mode" if name == "activation_checkpoint" else name] = (
                Node(value="none", place=node.place, key=key) if is_none else node
            )
            return
        called = dotted(given.func)
        keywords = self.python.keywords(given)
        draft.values |= {f"{name}.{word}": node for word, node in keywords.items()}
        owner = called.removesuffix(".Config").rpartition(".")[2]
        if owner in SECTIONS.get(name, ()):
            draft.sections[name] = dict(keywords)
        if name == "activation_checkpoint":
            draft.values[f"{name}.mode"] = Node(
                value=POLICIES.get(owner, "${" + owner + "}"), place=self.python.place(given), key=key
            )
        elif name == "loss":
            draft.values["loss.kind"] = Node(value=owner, place=self.python.place(given), key=key)
        elif name == "optimizer":
            self.optimizer(draft, given, owner, key)

    def optimizer(self, draft: Draft, call: ast.Call, owner: str, key: Place) -> None:
        """default_adamw(lr=...), or the first group of OptimizersContainer.Config(param_groups=[...])."""
        if owner == "default_adamw":
            draft.values["optimizer.name"] = Node(value="AdamW", place=self.python.place(call), key=key)
            if call.args:
                draft.values["optimizer.lr"] = self.python.node(call.args[0], key)
            return
        groups = [each for each in ast.walk(call) if isinstance(each, ast.Call) and each is not call]
        if groups:
            keywords = self.python.keywords(groups[0])
            rate = keywords.get("optimizer_kwargs", Node(value=None, place=draft.place)).table.get("lr")
            found = {"optimizer.name": keywords.get("optimizer_name"), "optimizer.lr": rate}
            draft.values |= {name: node for name, node in found.items() if node is not None}


def setting(value: object, place: Place) -> Node:
    """A node of a setting that torchtitan ships."""
    if isinstance(value, list):
        return Node(value=[Node(value=each, place=place) for each in value], place=place)
    assert value is None or isinstance(value, str | int | float | bool)
    return Node(value=value, place=place)


def _forget(draft: Draft, section: str) -> None:
    for name in [each for each in draft.values if each.startswith(f"{section}.")]:
        del draft.values[name]
    draft.sections.pop(section, None)


def _imported(code: ast.Module) -> Iterable[tuple[str, tuple[str, str]]]:
    """Names that a file imports: from which module, and as what they are known there."""
    for each in ast.walk(code):
        if isinstance(each, ast.ImportFrom):
            for alias in each.names:
                yield alias.asname or alias.name, (each.module or "", alias.name)
        elif isinstance(each, ast.Import):
            for alias in each.names:
                yield alias.asname or alias.name.partition(".")[0], ("", alias.name)
