"""A program by its syntax tree: its calls by their whole names, where they stand, what is constant.

Nothing is run or imported. A name means what the program's own imports say; a variable has a
value where it is given one exactly once, and that is written there.
"""

import ast
from collections.abc import Iterator
from typing import Final

from escala.foreign.documents import Document
from escala.foreign.findings import Edit
from escala.foreign.pythontext import PythonText, chain, in_order

Loop = ast.For | ast.AsyncFor | ast.While
Function = ast.FunctionDef | ast.AsyncFunctionDef
UNKNOWN: Final = "?"


class Code(PythonText):
    """The calls, loops and names of one program."""

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        self.parents: dict[ast.AST, ast.AST] = {}
        self.attributes: set[str] = set()
        self.names: dict[str, str] = {}
        self.bound: set[str] = set()
        self.assigned: dict[str, list[ast.expr | None]] = {}
        for node in ast.walk(self.tree):
            self._note(node)
        self.calls = in_order(ast.walk(self.tree))
        self.by_name: dict[str, list[ast.Call]] = {}
        for call in self.calls:
            self.by_name.setdefault(self.dotted(call.func).rpartition(".")[2], []).append(call)

    def _note(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            self.parents[child] = node
        if isinstance(node, ast.Attribute):
            self.attributes.add(node.attr)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                self.names[alias.asname or first] = alias.name if alias.asname else first
                self.bound.add(alias.asname or first)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                self.names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                self.bound.add(alias.asname or alias.name)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            self.bound.add(node.id)
            self.assigned.setdefault(node.id, []).append(self._assigned(node))
        elif isinstance(node, ast.arg):
            self.bound.add(node.arg)
            self.assigned.setdefault(node.arg, []).append(None)
        elif isinstance(node, Function | ast.ClassDef):
            self.bound.add(node.name)

    def _assigned(self, name: ast.Name) -> ast.expr | None:
        parent = self.parents.get(name)
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
            return parent.value
        return parent.value if isinstance(parent, ast.AnnAssign) else None

    def origin(self, name: str) -> str:
        """What a name was imported as; the name itself where it was not."""
        return self.names.get(name, name)

    def dotted(self, node: ast.AST) -> str:
        """The whole name of an expression: torch.nn.parallel.DistributedDataParallel."""
        first, names = chain(node)
        return ".".join((self.origin(first.id) if isinstance(first, ast.Name) else UNKNOWN, *names))

    def called(self, *names: str) -> list[ast.Call]:
        """The calls whose last name is one of these."""
        if len(names) == 1:
            return list(self.by_name.get(names[0], ()))
        return in_order(call for name in names for call in self.by_name.get(name, ()))

    def modules(self) -> Iterator[tuple[str, ast.Import | ast.ImportFrom]]:
        """What is imported, as whole names, with the statement."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((alias.name, node) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield from ((f"{node.module}.{alias.name}", node) for alias in node.names)

    def imports(self, package: str) -> bool:
        """Whether anything of a package is imported."""
        return any(name == package or name.startswith(f"{package}.") for name, _ in self.modules())

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """What a node stands in, from the inside out."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def loop(self, node: ast.AST) -> Loop | None:
        """The innermost loop around a node, within its function."""
        for each in self.around(node):
            if isinstance(each, Loop):
                return each
            if isinstance(each, Function | ast.Lambda):
                return None
        return None

    def meant(self, node: ast.AST | None) -> ast.AST | None:
        """What an expression is: itself, or what its variable was given, once."""
        for _ in range(4):
            if not isinstance(node, ast.Name) or len(self.assigned.get(node.id, ())) != 1:
                break
            node = self.assigned[node.id][0]
        return node

    def constant(self, node: ast.AST | None) -> str | int | float | bool | None:
        """A literal, also through a variable; None where it is none."""
        meant = self.meant(node)
        value = meant.value if isinstance(meant, ast.Constant) else None
        return value if isinstance(value, str | int | float | bool) else None

    def count(self, node: ast.AST | None) -> int | None:
        """A positive whole number."""
        value = self.constant(node)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

    def edit(self, start: int, end: int, text: str) -> Edit:
        """A change of the program."""
        return Edit(file=self.document.file, start=start, end=end, text=text)


def keyword(call: ast.Call, name: str, index: int | None = None) -> ast.expr | None:
    """An argument by its name, or else by its place."""
    for each in call.keywords:
        if each.arg == name:
            return each.value
    if index is not None and index < len(call.args):
        return None if isinstance(call.args[index], ast.Starred) else call.args[index]
    return None


def is_open(call: ast.Call) -> bool:
    """Whether a call has arguments that are not written out: *args, **kwargs."""
    return any(each.arg is None for each in call.keywords) or any(
        isinstance(each, ast.Starred) for each in call.args
    )


def words(node: ast.AST) -> set[str]:
    """All names and attributes in an expression."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return names | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def texts(node: ast.AST) -> set[str]:
    """All literal texts in an expression."""
    return {
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }
