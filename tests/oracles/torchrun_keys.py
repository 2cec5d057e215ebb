"""The options of torchrun, from its own parser."""

import argparse

from escala.foreign.keys import Gone, Key, Section, Table

GONE = {
    "use-env": Gone(removed="1.10", why="torchrun always tells ranks by the variable LOCAL_RANK"),
}
"""Options of torch.distributed.launch that torchrun never had."""


def table() -> Table:
    """All options, with dashes; a flag takes a boolean."""
    import torch
    from torch.distributed.run import get_args_parser

    keys = {}
    for action in get_args_parser()._actions:
        names = [name.lstrip("-").replace("_", "-") for name in action.option_strings]
        keys |= {name: _key(action) for name in names if name not in ("h", "help")}
    version = torch.__version__.partition("+")[0]
    section = Section(keys=keys, gone=GONE)
    return Table(tool="torchrun", version=version, source=_source(version), sections={"": section})


def _source(version: str) -> str:
    return f"torch {version} distributed/run.py, get_args_parser"


def _key(action: argparse.Action) -> Key:
    if action.nargs == 0:
        return Key(types=("boolean",))
    types = ("integer",) if action.type is int else ("number",) if action.type is float else ("string",)
    return Key(types=types, choices=tuple(action.choices or ()))
