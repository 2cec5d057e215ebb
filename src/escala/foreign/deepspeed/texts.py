"""Numbers and words of truth that a JSON file gives as text. Knows no meaning of keys."""

import re
from dataclasses import replace
from typing import Final

from escala.foreign.findings import Finding, finding, replaced
from escala.foreign.keys import Key, Table
from escala.foreign.places import Node

NUMBER: Final = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
TRUTHS: Final = {"true": True, "false": False}


def numbers(tree: Node, table: Table) -> tuple[Node, list[Finding]]:
    """The tree with such texts as what they mean, and a finding for each."""
    found: list[Finding] = []
    return _table(tree, table, "", found), found


def _table(node: Node, table: Table, section: str, found: list[Finding]) -> Node:
    known = table.sections.get(section)
    if known is None or not isinstance(node.value, dict):
        return node
    inner = {
        name: _value(name, each, known.keys.get(name), table, section, found)
        for name, each in node.table.items()
    }
    return replace(node, value=inner)


def _value(name: str, node: Node, key: Key | None, table: Table, section: str, found: list[Finding]) -> Node:
    if key is None:
        return node
    if isinstance(node.value, dict):
        return _table(node, table, key.section, found) if key.section else node
    if not isinstance(node.value, str) or not key.types or "string" in key.types:
        return node
    meant = _meant(node.value, key)
    if meant is None:
        return node
    is_cast = bool(section) and name != "stage" and (node.value.isdigit() or "integer" not in key.types)
    rule = "deepspeed-text-number-cast" if is_cast else "deepspeed-text-number"
    text = node.value.strip().lower()
    found.append(finding(rule, node, edits=(replaced(node, text),), key=name, given=text))
    return replace(node, value=meant)


def _meant(text: str, key: Key) -> int | float | bool | None:
    if NUMBER.fullmatch(text) and {"integer", "number"} & set(key.types):
        number = float(text)
        return int(number) if number.is_integer() and abs(number) < 1e15 else number
    return TRUTHS.get(text.strip().lower()) if "boolean" in key.types else None
