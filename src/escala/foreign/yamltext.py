"""YAML with the place of every value, as PyYAML reads it (version 1.1), which is what training tools use."""

import re
from typing import Final

import yaml

from escala.errors import one_line
from escala.foreign.findings import Finding, finding
from escala.foreign.places import DEEPEST, MOST_NODES, Lines, Node, Place

LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
CONSTRUCTED: Final = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("bool", "int", "float", "null"))
TEMPLATE: Final = re.compile(r"\{\{|\{%")
TEMPLATE_LINE: Final = re.compile(r"^[ \t]*(?:\{%|\{\{-)", re.MULTILINE)
TAB: Final = re.compile(r" *\t")
MERGE: Final = "tag:yaml.org,2002:merge"


class _Unreadable(Exception):
    """Carries the place and the words of what cannot be understood."""

    def __init__(self, start: int, said: str) -> None:
        super().__init__(said)
        self.start, self.said = start, said


def read_yaml(text: str, file: str, first_line: int = 1) -> list[tuple[Node | None, list[Finding]]]:
    """The trees of the documents in a text with what is wrong with each; no tree where it is unreadable."""
    lines = Lines(text, file, first_line)
    try:
        return [_Reader(lines).whole(root) for root in _roots(text)]
    except _Unreadable as error:
        return [(None, [_unreadable(text, lines, error)])]


def _unreadable(text: str, lines: Lines, error: _Unreadable) -> Finding:
    """What cannot be read: a template before it is filled in, a tab, or what the parser says."""
    before = text.rfind("\n", 0, error.start) + 1
    here = text[before:].partition("\n")[0]
    mark = TEMPLATE.search(here) or TEMPLATE_LINE.search(text)
    if mark is not None:
        start = mark.start() + (before if mark.string is here else 0)
        return finding("yaml-template", lines.place(start))
    is_tab = text.startswith("\t", error.start) or TAB.match(here) is not None
    said = "a tab; indent with spaces" if is_tab else error.said
    return finding("yaml-unreadable", lines.place(error.start), said=said)


def _roots(text: str) -> list[yaml.Node]:
    try:
        return [root for root in yaml.compose_all(text, LOADER) if root is not None]
    except RecursionError:
        raise _Unreadable(0, "nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _Unreadable(mark.index if mark else 0, one_line(error.problem or str(error))) from None
    except (yaml.YAMLError, ValueError) as error:
        raise _Unreadable(getattr(error, "position", 0), one_line(str(error).partition("\n")[0])) from None


class _Reader:
    """From composed nodes to ours; aliases are followed, within bounds."""

    def __init__(self, lines: Lines) -> None:
        self.lines, self.found, self.nodes = lines, list[Finding](), 0
        self.constructor = yaml.constructor.SafeConstructor()

    def whole(self, root: yaml.Node) -> tuple[Node, list[Finding]]:
        """The tree of a document."""
        return self.node(root, 0, None), self.found

    def node(self, given: yaml.Node, depth: int, key: Place | None) -> Node:
        self.nodes += 1
        if depth > DEEPEST or self.nodes > MOST_NODES:
            raise _Unreadable(given.start_mark.index, "nested too deeply, or anchors that unfold without end")
        place = self.place(given)
        if isinstance(given, yaml.MappingNode):
            return Node(value=self.table(given, depth), place=place, key=key)
        if isinstance(given, yaml.SequenceNode):
            return Node(
                value=[self.node(each, depth + 1, None) for each in given.value], place=place, key=key
            )
        assert isinstance(given, yaml.ScalarNode)
        return Node(value=self.scalar(given), place=place, key=key)

    def place(self, given: yaml.Node) -> Place:
        return self.lines.place(given.start_mark.index, given.end_mark.index)

    def table(self, given: yaml.MappingNode, depth: int) -> dict[str, Node]:
        own: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        for name, value in given.value:
            if name.tag == MERGE:
                several = value.value if isinstance(value, yaml.SequenceNode) else [value]
                for each in several:
                    merged = {**self.node(each, depth + 1, None).table, **merged}
                continue
            key, text = self.key_place(name), self.name(name)
            if text in own:
                self.found.append(finding("duplicate-key", key, key=text, line=own[text].entry.line))
            own[text] = self.node(value, depth + 1, key)
        return {**merged, **own}

    def key_place(self, given: yaml.Node) -> Place:
        quoted = 1 if getattr(given, "style", None) in ("'", '"') else 0
        return self.lines.place(given.start_mark.index + quoted, given.end_mark.index - quoted)

    def name(self, given: yaml.Node) -> str:
        if not isinstance(given, yaml.ScalarNode):
            raise _Unreadable(given.start_mark.index, "a list or table stands where a name is expected")
        return str(given.value)

    def scalar(self, given: yaml.ScalarNode) -> str | int | float | bool | None:
        if given.tag not in CONSTRUCTED:
            return str(given.value)
        try:
            return self.constructor.construct_object(given)  # type: ignore[no-any-return]  # PyYAML has no types
        except (ValueError, yaml.YAMLError, KeyError, OverflowError):
            return str(given.value)
