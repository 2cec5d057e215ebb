"""Calls of PyTorch that newer ones replace, with the newer ones."""

import ast
from collections.abc import Iterator
from typing import Final

from escala.foreign.findings import Edit, Finding, finding
from escala.foreign.script.code import Code, keyword
from escala.foreign.script.parts import Program

AMP: Final = "torch.cuda.amp"
SCALED: Final = ("autocast", "GradScaler")
MOVED: Final = {
    "torch.distributed._composable.fsdp": "torch.distributed.fsdp",
    "torch.distributed._tensor": "torch.distributed.tensor",
}
"""Private modules whose contents have public names since torch 2.5 and 2.6."""
GONE: Final = {"torch.distributed.pipeline": ("2.6", "torch.distributed.pipelining")}
"""Modules that torch 2.13 no longer has."""
CARRIED: Final = frozenset(("torch", "tf", "np"))
"""Names that a text imports once; its later blocks go on with them."""


def superseded_rules(program: Program) -> Iterator[Finding]:
    """Old modules, wrappers and arguments."""
    yield from _amp(program)
    yield from _modules(program)
    yield from _fsdp1(program)
    yield from _data_parallel(program)
    yield from _checkpoint(program)
    yield from _unbound(program)


def _amp(program: Program) -> Iterator[Finding]:
    """torch.cuda.amp: one finding for each import, with all calls of its names, and for each whole name."""
    for node in ast.walk(program.tree):
        if isinstance(node, ast.ImportFrom) and node.module == AMP and not node.level:
            local = {alias.asname or alias.name for alias in node.names if alias.name in SCALED}
            calls = [c for c in program.calls if isinstance(c.func, ast.Name) and c.func.id in local]
            names = " and ".join(alias.name for alias in node.names)
            edits = _amp_edits(program, node, calls)
            yield finding("script-amp-superseded", program.place(node), edits=edits, given=f"{AMP}.{names}")
    for call in program.calls:
        name = program.dotted(call.func)
        if isinstance(call.func, ast.Attribute) and name in (f"{AMP}.autocast", f"{AMP}.GradScaler"):
            given = _device_argument(program, call)
            edits = () if given is None else (*_renamed(program, call.func, name.replace(".cuda", "")), given)
            yield finding("script-amp-superseded", program.place(call), edits=edits, given=name)


def _amp_edits(program: Code, node: ast.ImportFrom, calls: list[ast.Call]) -> tuple[Edit, ...]:
    """The new module in the import and the device in every call; none where one cannot be rewritten so."""
    others = [alias for alias in node.names if alias.name not in SCALED]
    edits = [_device_argument(program, call) for call in calls]
    place = program.place(node)
    start = program.document.text.find(AMP, place.start, place.end)
    if others or start < 0 or any(edit is None for edit in edits):
        return ()
    module = program.edit(start, start + len(AMP), "torch.amp")
    return (module, *(edit for edit in edits if edit is not None))


def _device_argument(program: Code, call: ast.Call) -> Edit | None:
    """The change that tells a call its device; None where it has arguments without names."""
    if call.args:
        return None
    start = program.document.text.find("(", program.place(call.func).end) + 1
    return program.edit(start, start, '"cuda", ' if call.keywords else '"cuda"')


def _renamed(program: Code, node: ast.AST, name: str) -> tuple[Edit, ...]:
    place = program.place(node)
    is_written = program.document.text[place.start : place.end] == name.replace("torch.amp", AMP)
    return (program.edit(place.start, place.end, name),) if is_written else ()


def _modules(program: Program) -> Iterator[Finding]:
    for name, node in program.modules():
        for old, new in MOVED.items():
            if name == old or name.startswith(f"{old}."):
                yield finding("script-module-private", program.place(node), given=old, new=new)
        for old, (version, new) in GONE.items():
            if name == old or name.startswith(f"{old}."):
                yield finding("script-module-gone", program.place(node), given=old, version=version, new=new)
        if name == "apex.amp" or name.startswith("apex.amp."):
            yield finding("script-apex-amp", program.place(node))


def _fsdp1(program: Program) -> Iterator[Finding]:
    imported = [node for name, node in program.modules() if name.endswith(".FullyShardedDataParallel")]
    for node in (*imported, *program.fsdp1)[:1]:
        yield finding("script-fsdp1", program.place(node))


def _data_parallel(program: Program) -> Iterator[Finding]:
    for call in program.called("DataParallel"):
        if program.dotted(call.func).startswith(("torch.nn.", "nn.")):
            yield finding("script-data-parallel", program.place(call))


def _checkpoint(program: Program) -> Iterator[Finding]:
    for call in program.called("checkpoint"):
        is_torch = program.dotted(call.func) == "torch.utils.checkpoint.checkpoint"
        if (
            is_torch
            and keyword(call, "use_reentrant") is None
            and not any(k.arg is None for k in call.keywords)
        ):
            yield finding("script-checkpoint-variant", program.place(call))


def _unbound(program: Program) -> Iterator[Finding]:
    """A package of which only parts are imported, used by its own name."""
    packages = {name.partition(".")[0] for name in program.names.values() if "." in name}
    seen: set[str] = set()
    for node in ast.walk(program.tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        name = node.value.id
        if name in program.bound or name not in packages or name in seen:
            continue
        if program.document.part and name in CARRIED:
            continue
        seen.add(name)
        yield finding("script-package-unbound", program.place(node.value), given=name)
