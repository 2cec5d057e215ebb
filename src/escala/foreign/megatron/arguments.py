"""What a command or a recipe gives a Megatron program, by Megatron's names. Knows no rule and no fact."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from escala.foreign.documents import Document
from escala.foreign.facts import count_of
from escala.foreign.keys import Key, table
from escala.foreign.places import Node, Place
from escala.foreign.shelltext import Command, Word

PROGRAMS: Final = ("pretrain_", "finetune_", "train_rl")
"""How Megatron's own programs are called."""
CERTAIN: Final = frozenset(
    (
        "tensor-model-parallel-size",
        "pipeline-model-parallel-size",
        "micro-batch-size",
        "global-batch-size",
        "num-layers",
        "hidden-size",
        "num-attention-heads",
        "seq-length",
    )
)
FORK: Final = frozenset(("deepspeed", "deepspeed-config", "zero-stage"))
"""Options of Megatron-DeepSpeed, whose other options are its own too."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arguments:
    """Values by Megatron's names with underscores; `said` is how the file spells them.

    Where `is_whole` what is not said has Megatron's default; else something that is not read says it.
    """

    nodes: Mapping[str, Node]
    start: Place
    is_whole: bool = True
    said: Mapping[str, str] = field(default_factory=dict)

    def node(self, name: str) -> Node | None:
        """The value of a name, where it is given."""
        return self.nodes.get(name)

    def place(self, *names: str) -> Place:
        """Where the first of the names that is given stands; the start, if none is."""
        return next((self.nodes[name].entry for name in names if name in self.nodes), self.start)

    def count(self, name: str, default: int | None = None) -> int | None:
        """A whole number; the default where nothing is said and nobody else says it."""
        if name in self.nodes:
            return count_of(self.nodes[name])
        return default if self.is_whole else None

    def number(self, name: str) -> float | None:
        """A number."""
        given = self.nodes[name].scalar if name in self.nodes else None
        return float(given) if isinstance(given, int | float) and not isinstance(given, bool) else None

    def word(self, name: str) -> str | None:
        """A text, or the first of several; numbers and flags are none."""
        node = self.nodes.get(name)
        first = node.items[0] if node is not None and node.items else node
        return first.scalar if first is not None and isinstance(first.scalar, str) else None

    def is_on(self, name: str) -> bool:
        """Whether a flag is given, or a value other than false, none and nothing."""
        node = self.nodes.get(name)
        if node is None or node.items:
            return node is not None
        return node.scalar not in (False, None, "none", "None")

    def is_off(self, name: str) -> bool:
        """Whether a flag is certainly off."""
        return not self.is_on(name) and (self.is_whole or name in self.nodes)

    def spelled(self, name: str) -> str:
        """The name as the file writes it."""
        return self.said.get(name, "--" + name.replace("_", "-"))


def commands(document: Document) -> Iterator[tuple[Command, tuple[Word, ...], tuple[Word, ...]]]:
    """Commands that start a Megatron program: the command, the words before the program, those after."""
    for command in document.script.all_commands if document.script is not None else ():
        words = command.words
        program = next((i for i, word in enumerate(words) if word.text.endswith(".py")), -1)
        given = {word.text.lstrip("-").partition("=")[0].replace("_", "-") for word in words[program + 1 :]}
        is_own = program >= 0 and words[program].text.rpartition("/")[2].startswith(PROGRAMS)
        if len(given & CERTAIN) >= (1 if is_own else 3) and not given & FORK:
            yield command, words[: program + 1], words[program + 1 :]


def is_own(before: tuple[Word, ...]) -> bool:
    """Whether the program is one of Megatron's own, or only arguments stand there."""
    return not before or before[-1].text.rpartition("/")[2].startswith(PROGRAMS)


def tree_of(words: tuple[Word, ...]) -> dict[str, Node]:
    """Options by name without dashes, as they are written; values are of the types that the parser makes."""
    keys = table("megatron").sections[""].keys
    found: dict[str, Node] = {}
    for option, values in _options(words):
        name, sign, inline = option.text[2:].partition("=")
        given = [replace(option, text=inline)] if sign else values
        key = keys.get(name.replace("_", "-"), Key())
        shift = 2 if option.place.end - option.place.start >= len(option.text) else 0
        place = replace(
            option.place, start=option.place.start + shift, end=option.place.start + shift + len(name)
        )
        found[name] = _node(given, key, place, option.place)
    return found


def _options(words: tuple[Word, ...]) -> Iterator[tuple[Word, list[Word]]]:
    current: tuple[Word, list[Word]] | None = None
    for word in words:
        if word.text.startswith("--") and len(word.text) > 2:
            if current is not None:
                yield current
            current = (word, [])
        elif current is not None:
            current[1].append(word)
    if current is not None:
        yield current


def _node(values: list[Word], key: Key, place: Place, option: Place) -> Node:
    """The value of an option: true for a flag, a list where the parser takes several."""
    least = 0 if key.types == ("boolean",) else 1
    values = [word for i, word in enumerate(values) if i < least or not word.is_open]  # "$@": further options
    nodes = [Node(value=_value(word), place=word.place, is_default=word.is_default) for word in values]
    if not nodes:
        return Node(value=True, place=option, key=place)
    if "array" in key.types or len(nodes) > 1:
        return Node(value=nodes, place=nodes[0].place, key=place)
    return replace(nodes[0], key=place)


def _value(word: Word) -> str | int | float:
    """A word as a number where it is one; what only a shell knows stays open."""
    if word.is_open:
        return word.text if word.text.startswith("$") else f"${word.text}"
    for kind in (int, float):
        try:
            return kind(word.text)
        except ValueError:
            continue
    return word.text
