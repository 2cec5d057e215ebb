"""Calls in a Python text as tables of their keywords, each value at its place. Nothing is run.

Literals, names that are assigned once to something literal, sums of numbers, `**` of a literal dictionary and
calls with keywords are understood; everything else is a value that is open, like a variable of a shell.
"""

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from escala.foreign.documents import Document
from escala.foreign.places import MOST_NODES, Node, Place
from escala.foreign.pythontext import LARGEST, PythonText, chain, in_order

OPERATORS: Final[Mapping[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}
DEEPEST: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Called:
    """One call: its name without modules, what stands before the name, keywords, values without keyword."""

    name: str
    owner: str
    keywords: Node
    values: tuple[Node, ...]

    @property
    def first(self) -> Node | None:
        """The first value without keyword."""
        return self.values[0] if self.values else None


class Calls(PythonText):
    """The calls of a document in the order of the text."""

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        self.assigned = _assigned(self.tree)
        self.nodes = 0
        self.all = [self.called(each) for each in in_order(ast.walk(self.tree))]

    def named(self, *names: str) -> Iterator[Called]:
        """The calls of some names."""
        return (each for each in self.all if each.name in names)

    def called(self, call: ast.Call, depth: int = 0) -> Called:
        """One call with its values."""
        owner, _, name = _dotted(call.func).rpartition(".")
        values = tuple(self.node(each, None, depth + 1) for each in call.args)
        return Called(name=name, owner=owner, keywords=self.keywords(call, depth), values=values)

    def keywords(self, call: ast.Call, depth: int) -> Node:
        """Its keywords, those of a literal dictionary behind ** among them."""
        table: dict[str, Node] = {}
        for each in call.keywords:
            if each.arg is None:
                table |= self.node(each.value, None, depth + 1).table
            else:
                table[each.arg] = self.node(each.value, self.key(each), depth + 1)
        return Node(value=table, place=self.place(call))

    def node(self, given: ast.expr, key: Place | None, depth: int) -> Node:
        """The value of an expression, or what is written where only running it would tell."""
        place = self.place(given)
        self.nodes += 1
        if depth > DEEPEST or self.nodes > MOST_NODES:
            return Node(value=self.open(given), place=place, key=key)
        if isinstance(given, ast.Constant) and isinstance(given.value, str | int | float | bool | None):
            return Node(value=given.value, place=place, key=key)
        if isinstance(given, ast.List | ast.Tuple | ast.Set):
            return Node(value=[self.node(each, None, depth + 1) for each in given.elts], place=place, key=key)
        if isinstance(given, ast.Dict):
            return Node(value=self.dictionary(given, depth), place=place, key=key)
        if isinstance(given, ast.Name) and given.id in self.assigned:
            known = self.node(self.assigned[given.id], None, depth + 1)
            return Node(value=known.value, place=known.place, key=key)
        if isinstance(given, ast.Call) and given.keywords and not given.args:
            return Node(value=self.keywords(given, depth).value, place=place, key=key)
        if isinstance(given, ast.Attribute) and _dotted(given).startswith("torch."):
            return Node(value=_dotted(given), place=place, key=key)
        number = _number(given, self.assigned, 0)
        return Node(value=self.open(given) if number is None else number, place=place, key=key)

    def dictionary(self, given: ast.Dict, depth: int) -> dict[str, Node]:
        """The named values of a dictionary."""
        table: dict[str, Node] = {}
        for name, value in zip(given.keys, given.values, strict=True):
            if name is None:
                table |= self.node(value, None, depth + 1).table
            elif isinstance(name, ast.Constant) and isinstance(name.value, str):
                place = self.place(name)
                inner = self.lines.place(place.start + 1, place.end - 1)
                table[name.value] = self.node(value, inner, depth + 1)
        return table


def _assigned(code: ast.Module) -> dict[str, ast.expr]:
    """Names that are given a value exactly once."""
    values: dict[str, ast.expr] = {}
    times: dict[str, int] = {}
    for each in ast.walk(code):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            times[each.id] = times.get(each.id, 0) + 1
        if isinstance(each, ast.arg):
            times[each.arg] = times.get(each.arg, 0) + 2
        if isinstance(each, ast.Assign) and len(each.targets) == 1 and isinstance(each.targets[0], ast.Name):
            values[each.targets[0].id] = each.value
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.value is not None:
            values[each.target.id] = each.value
    return {name: value for name, value in values.items() if times.get(name) == 1}


def _dotted(given: ast.expr) -> str:
    """The name of what is called; of what is no name at its start, the attributes."""
    first, names = chain(given)
    return ".".join([first.id, *names] if isinstance(first, ast.Name) else names)


def _number(given: ast.expr, assigned: Mapping[str, ast.expr], depth: int) -> int | float | None:
    """The value of a sum of numbers and of names that stand for some."""
    if depth > DEEPEST:
        return None
    if isinstance(given, ast.Constant) and isinstance(given.value, int | float):
        return None if isinstance(given.value, bool) else given.value
    if isinstance(given, ast.Name) and given.id in assigned:
        return _number(assigned[given.id], assigned, depth + 1)
    if isinstance(given, ast.UnaryOp) and isinstance(given.op, ast.USub):
        value = _number(given.operand, assigned, depth + 1)
        return None if value is None else -value
    if isinstance(given, ast.BinOp) and type(given.op) in OPERATORS:
        left = _number(given.left, assigned, depth + 1)
        right = _number(given.right, assigned, depth + 1)
        if left is None or right is None or (isinstance(given.op, ast.Div | ast.FloorDiv) and right == 0):
            return None
        if max(abs(left), abs(right)) > LARGEST:
            return None
        value = OPERATORS[type(given.op)](left, right)
        return (
            int(value) if isinstance(left, int) and isinstance(right, int) and value == int(value) else value
        )
    return None
