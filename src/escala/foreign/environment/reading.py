"""Variables of NCCL and PyTorch as facts of a job. Knows what they force, not when that is wrong.

They are read in scripts, in what manifests and batch scripts give theirs, and where Python sets os.environ.
"""

import ast
from collections.abc import Iterator, Mapping
from typing import Final

from escala.foreign.documents import Document, Syntax
from escala.foreign.environment.rules import NOT_HEARD, RENAMED, forces_sockets, is_on, rules_of
from escala.foreign.facts import Fact, fact
from escala.foreign.findings import Finding
from escala.foreign.jobs import Job
from escala.foreign.readings import Reading, Role, VersionIs
from escala.foreign.shelltext import Word

NAME: Final = "environment"
TITLE: Final = "NCCL and PyTorch"
VERSION: Final = "NCCL 2.23, torch 2.13"
PREFIXES: Final = ("NCCL_", "TORCH_", "PYTORCH_", "GLOO_")
DEVICES: Final = "CUDA_VISIBLE_DEVICES"
"""Set for one command and for another differently, it says nothing of the job."""
NAMES: Final = frozenset(("CUDA_LAUNCH_BLOCKING", DEVICES, *RENAMED, *NOT_HEARD))


def score(document: Document) -> int:
    """Some where a variable is set that escala knows."""
    return 10 if variables(document) else 0


def read(document: Document, version: str | None) -> Reading:
    """What the document says."""
    found = variables(document)
    return Reading(
        tool=NAME,
        title=TITLE,
        version=version or VERSION,
        version_is=VersionIs.GIVEN if version else VersionIs.ASSUMED,
        role=Role.LAUNCH,
        document=document,
        facts=tuple(_facts(found)),
    )


def rules(job: Job, reading: Reading) -> Iterator[Finding]:
    """What is wrong with it."""
    return rules_of(job, variables(reading.document))


def variables(document: Document) -> dict[str, Word]:
    """The variables that the document sets; the last value counts."""
    found: dict[str, Word] = {}
    if document.code is not None:
        found = dict(_assigned(document, document.code))
    elif document.syntax is Syntax.SHELL and document.script is not None:
        found = dict(document.script.variables)
        for command in document.script.all_commands:
            found |= command.variables
        if (
            len(
                {
                    each.variables[DEVICES].text
                    for each in document.script.all_commands
                    if DEVICES in each.variables
                }
            )
            > 1
        ):
            del found[DEVICES]
    return {name: word for name, word in found.items() if name.startswith(PREFIXES) or name in NAMES}


def _facts(found: Mapping[str, Word]) -> Iterator[Fact]:
    sockets = forces_sockets(found)
    if sockets:
        yield fact("network", "tcp", found[sockets].place, sockets)
    if is_on(found, "NCCL_P2P_DISABLE"):
        link = "tcp" if is_on(found, "NCCL_SHM_DISABLE") else "host-memory"
        yield fact("link", link, found["NCCL_P2P_DISABLE"].place, "NCCL_P2P_DISABLE")


def _assigned(document: Document, code: ast.Module) -> Iterator[tuple[str, Word]]:
    """os.environ["X"] = "1" and os.environ.setdefault("X", "1"); other values stay open."""
    for node in ast.walk(code):
        pair = _pair(node)
        if pair is None or not isinstance(pair[0].value, str):
            continue
        name, value = pair
        is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
        text = str(value.value) if isinstance(value, ast.Constant) else "?"
        start = _offset(document, value.lineno, value.col_offset)
        end = _offset(document, value.end_lineno or value.lineno, value.end_col_offset or 0)
        quote = 1 if is_text and end - start == len(text) + 2 else 0
        place = document.lines.place(start + quote, end - quote)
        yield str(name.value), Word(text=text, place=place, is_open=not is_text)


def _pair(node: ast.AST) -> tuple[ast.Constant, ast.expr] | None:
    """The name and the value that a statement or call writes to os.environ."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
        owner, name, value = node.targets[0].value, node.targets[0].slice, node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 2:
        if node.func.attr != "setdefault":
            return None
        owner, name, value = node.func.value, node.args[0], node.args[1]
    else:
        return None
    is_environ = (isinstance(owner, ast.Attribute) and owner.attr == "environ") or (
        isinstance(owner, ast.Name) and owner.id == "environ"
    )
    return (name, value) if is_environ and isinstance(name, ast.Constant) else None


def _offset(document: Document, line: int, column: int) -> int:
    """The offset of a place that ast counts in bytes of a line."""
    start = document.lines.starts[line - 1]
    row = document.text[start:].partition("\n")[0]
    return start + len(row.encode()[:column].decode(errors="ignore"))
