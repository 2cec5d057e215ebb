"""What arguments of the trainer name beside themselves: DeepSpeed and FSDP, in a file or inline."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from escala.foreign.documents import Document, Syntax
from escala.foreign.facts import Fact, is_open
from escala.foreign.mapped import text_of
from escala.foreign.places import Node
from escala.foreign.readings import Reading, Reference
from escala.foreign.tools import tool_of

NAMED: Final = ("deepspeed", "fsdp_config", "config")
ENDINGS: Final = (".json", ".yaml", ".yml")


def references(node: Node, keys: tuple[str, ...] = NAMED) -> Iterator[Reference]:
    """Files that keys name; what another place fills in is none."""
    for key in keys:
        each = node.table.get(key)
        file = None if each is None else text_of(each)
        if each is not None and file is not None and not is_open(file) and file.endswith(ENDINGS):
            yield Reference(file=file, place=each.entry, said=key)


def inline_deepspeed(node: Node, document: Document) -> Reading | None:
    """DeepSpeed's own reading of a table that stands where its file may stand."""
    given = node.table.get("deepspeed")
    if given is None or not given.table:
        return None
    inside = replace(document, tree=given, code=None, script=None, syntax=Syntax.JSON, findings=())
    return tool_of("deepspeed").read(inside, None)


def inline_facts(node: Node, document: Document) -> tuple[Fact, ...]:
    """What such a table says."""
    reading = inline_deepspeed(node, document)
    return () if reading is None else reading.facts
