"""Values and calls of a Python text by its syntax tree, each with its place. Runs nothing, knows no tool.

What only running would tell is open: its value is the expression in ${ }, as in a template.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import add, floordiv, mul, pow, sub
from typing import Final

from escala.foreign.documents import Document
from escala.foreign.places import Node, Place

Number = int | float
OPERATORS: Final[Mapping[type[ast.operator], Callable[[Number, Number], Number]]] = {
    ast.Add: add,
    ast.Sub: sub,
    ast.Mult: mul,
    ast.FloorDiv: floordiv,
    ast.Pow: pow,
}
LARGEST: Final = 1e15
DEEPEST: Final = 50
LONGEST: Final = 200


class PythonText:
    """A Python document that could be parsed, and where the parts of its tree stand."""

    def __init__(self, document: Document) -> None:
        assert document.code is not None
        self.document, self.tree, self.lines = document, document.code, document.lines
        self.rows = [row.encode() for row in document.text.split("\n")]

    def offset(self, line: int, column: int) -> int:
        """The offset of a place that the syntax tree counts in lines and bytes."""
        start = self.lines.starts[min(line, len(self.rows)) - 1]
        row = self.rows[line - 1] if line <= len(self.rows) else b""
        return start + len(row[:column].decode(errors="ignore"))

    def place(self, node: ast.AST) -> Place:
        """The place of a part of the tree; the start of the text for what has none."""
        start = self.offset(getattr(node, "lineno", 1), getattr(node, "col_offset", 0))
        end = self.offset(getattr(node, "end_lineno", 1), getattr(node, "end_col_offset", 0))
        return self.lines.place(start, max(start, end))

    def key(self, node: ast.keyword | ast.Attribute) -> Place:
        """The place of the name of a keyword or attribute."""
        if isinstance(node, ast.keyword):
            start = self.place(node).start
            return self.lines.place(start, start + len(node.arg or ""))
        end = self.place(node).end
        return self.lines.place(end - len(node.attr), end)

    def open(self, expression: ast.expr) -> str:
        """The text of an expression that only running would tell."""
        place = self.place(expression)
        return f"${{{self.document.text[place.start : min(place.end, place.start + LONGEST)]}}}"


class Python(PythonText):
    """A Python document with the names that it gives values outside functions; the last one counts."""

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        self.numbers: dict[str, Number | None] = {}
        self.names: dict[str, ast.expr] = {}
        for each in self.tree.body:
            if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
                self.names[each.targets[0].id] = each.value
            elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.value:
                self.names[each.target.id] = each.value

    def node(self, expression: ast.expr, key: Place | None = None, depth: int = 0) -> Node:
        """The value of an expression; open where it is not written out."""
        place = self.place(expression)
        if depth > DEEPEST:
            return Node(value="${...}", place=place, key=key)
        if isinstance(expression, ast.List | ast.Tuple | ast.Set):
            items = [self.node(each, None, depth + 1) for each in expression.elts]
            return Node(value=items, place=place, key=key)
        if isinstance(expression, ast.Dict):
            named = {
                str(name.value): self.node(value, self.place(name), depth + 1)
                for name, value in zip(expression.keys, expression.values, strict=True)
                if isinstance(name, ast.Constant)
            }
            return Node(value=named, place=place, key=key)
        if isinstance(expression, ast.Name) and isinstance(self.names.get(expression.id), ast.Constant):
            return Node(value=self.scalar(self.names[expression.id]), place=place, key=key)
        return Node(value=self.scalar(expression), place=place, key=key)

    def scalar(self, expression: ast.expr) -> str | int | float | bool | None:
        """A constant, or a sum of constants; else the expression in ${ }."""
        if isinstance(expression, ast.Constant) and isinstance(
            expression.value, str | int | float | bool | None
        ):
            return expression.value
        number = self.number(expression)
        return self.open(expression) if number is None else number

    def number(self, expression: ast.expr, depth: int = 0) -> Number | None:
        """The value of arithmetic with known numbers."""
        if depth > DEEPEST:
            return None
        if isinstance(expression, ast.Constant):
            given = expression.value
            return given if isinstance(given, int | float) and not isinstance(given, bool) else None
        if isinstance(expression, ast.Name) and expression.id in self.names:
            return self.named(expression.id)
        if isinstance(expression, ast.UnaryOp) and isinstance(expression.op, ast.USub):
            inner = self.number(expression.operand, depth + 1)
            return None if inner is None else -inner
        if isinstance(expression, ast.BinOp) and type(expression.op) in OPERATORS:
            left = self.number(expression.left, depth + 1)
            right = self.number(expression.right, depth + 1)
            if left is None or right is None or max(abs(left), abs(right)) > LARGEST:
                return None
            return _calculated(OPERATORS[type(expression.op)], left, right)
        return None

    def named(self, name: str) -> Number | None:
        """The number that a name stands for; each is calculated once, one of itself has none."""
        if name not in self.numbers:
            self.numbers[name] = None
            self.numbers[name] = self.number(self.names[name])
        return self.numbers[name]

    def keywords(self, call: ast.Call) -> dict[str, Node]:
        """The named arguments of a call."""
        return {each.arg: self.node(each.value, self.key(each)) for each in call.keywords if each.arg}


def _calculated(operator: Callable[[Number, Number], Number], left: Number, right: Number) -> Number | None:
    if operator is pow and (abs(right) > 60 or abs(left) > 1000 or right < 0):
        return None
    try:
        value = operator(left, right)
    except (ArithmeticError, ValueError):
        return None
    return value if isinstance(value, int | float) and abs(value) < LARGEST else None


def chain(expression: ast.AST) -> tuple[ast.AST, list[str]]:
    """What a row of attributes begins with, and their names: a and [b, c] of a.b.c."""
    names: list[str] = []
    while isinstance(expression, ast.Attribute):
        names.append(expression.attr)
        expression = expression.value
    return expression, names[::-1]


def dotted(expression: ast.expr) -> str:
    """The name of what is called or read: a.b.c; empty where it is no name."""
    first, names = chain(expression)
    return ".".join((first.id, *names)) if isinstance(first, ast.Name) else ""


def in_order(nodes: Iterable[ast.AST]) -> list[ast.Call]:
    """The calls among some nodes in the order of the text."""
    found = [each for each in nodes if isinstance(each, ast.Call)]
    return sorted(found, key=lambda call: (call.lineno, call.col_offset))


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Every call in a tree with the name of what is called, in the order of the text."""
    return ((dotted(each.func), each) for each in in_order(ast.walk(tree)))


def imported(code: ast.Module, *packages: str) -> bool:
    """Whether a text imports one of the packages, or a part of it."""
    for each in ast.walk(code):
        modules = (
            [alias.name for alias in each.names]
            if isinstance(each, ast.Import)
            else [each.module or ""]
            if isinstance(each, ast.ImportFrom)
            else []
        )
        if any(module == name or module.startswith(f"{name}.") for module in modules for name in packages):
            return True
    return False
