"""Lines that fit a terminal: chunks that flow, labels that hang, tables. Knows widths, no content."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

WIDEST: Final = 110
LEAST: Final = 40
HANG: Final = 7

STRONG: Final = "bold"
QUIET: Final = "dim"
VERDICT_STYLES: Final = {"fits": "green", "risky": "yellow", "does not fit": "red"}
_RULER: Final = Console(width=WIDEST, force_terminal=False, legacy_windows=False)

# A space at which no line is broken; it turns into a space when the line is put.
GLUE: Final = "\ue000"
_UNITS: Final = r"[µm]?s|min|h|days|years|[KMGTP]i?B|[kMG]?Wh|[kM]?J|k?g|t|GPU-h|[MBTk]|[kMGTPE]?FLOP/s"
_BEFORE_UNIT: Final = re.compile(rf"(?<=\d) (?=%|(?:{_UNITS})(?![\w/]))")
_BEFORE_AXIS: Final = re.compile(r" × (?=[A-Z])")

Chunk = str | Text


def glued(plan_title: str) -> str:
    """The title of a plan that breaks between its axes only: 'PP 2 (1F1B)' stays in one line."""
    settings = (_BEFORE_AXIS.split(part) for part in plan_title.split(" · "))
    return " · ".join(f" ×{GLUE}".join(axis.replace(" ", GLUE) for axis in axes) for axes in settings)


def width_of(console: Console) -> int:
    """Columns to use: those of the terminal, at most 110, at least 40."""
    return max(LEAST, min(console.width, WIDEST))


def room(console: Console) -> int:
    """Columns right of a hanging label."""
    return width_of(console) - HANG - 2


def flow(chunks: Iterable[Chunk], width: int, separator: str = " · ") -> list[Text]:
    """Chunks joined in lines of at most `width`, broken between chunks, or inside one that is too long."""
    lines: list[Text] = []
    for chunk in chunks:
        text = chunk if isinstance(chunk, Text) else Text(chunk)
        if not text.plain:
            continue
        if lines and lines[-1].cell_len + len(separator) + text.cell_len <= width:
            lines[-1] = Text.assemble(lines[-1], (separator, QUIET), text)
        else:
            lines += folded(text, width)
    return lines


def folded(text: Text, width: int) -> list[Text]:
    """One text in lines of at most `width`, broken at spaces, but not between a number and its unit."""
    text = text.copy()
    text.plain = " ".join(_loose(word, width) for word in _BEFORE_UNIT.sub(GLUE, text.plain).split(" "))
    lines = list(text.wrap(_RULER, width))
    for each in lines:
        each.rstrip()
    return lines


def _loose(word: str, width: int) -> str:
    """A glued word, opened before its parenthesis or everywhere where it is too long for a line."""
    if len(word) <= width:
        return word
    opened = word.replace(f"{GLUE}(", " (")
    return opened if max(map(len, opened.split(" "))) <= width else word.replace(GLUE, " ")


def put(console: Console, text: Chunk = "", *, indent: int = 0) -> None:
    """One paragraph, folded to the width behind its indent."""
    whole = text if isinstance(text, Text) else Text(text)
    for part in folded(whole, width_of(console) - indent) or [Text()]:
        _raw(console, Text.assemble(" " * indent, part))


def put_whole(console: Console, text: Chunk) -> None:
    """One line that is never broken, however long: a path that other programs read."""
    _raw(console, text if isinstance(text, Text) else Text(text))


def hanging(console: Console, label: str, lines: Sequence[Text], style: str = QUIET) -> None:
    """A label, and its lines in a column right of it."""
    for number, line in enumerate(lines):
        head = Text(f"  {label if number == 0 else '':<{HANG - 1}} ", style=style)
        _raw(console, Text.assemble(head, line))


def apart(console: Console, left: Text, right: Text, *, indent: int, label: str = "") -> None:
    """Two texts at both ends of a line; the left one folds, or stands below where there is little room."""
    width = width_of(console) - indent
    beside = width - right.cell_len - 2
    parts = folded(left, beside) if beside >= LEAST // 2 else [Text(), *folded(left, width)]
    gap = " " * (width - parts[0].cell_len - right.cell_len)
    _raw(console, Text.assemble((label.ljust(indent), left.style), parts[0], gap, right))
    for part in parts[1:]:
        _raw(console, Text.assemble(" " * indent, part))


def _raw(console: Console, text: Text) -> None:
    text.plain = text.plain.replace(GLUE, " ")
    text.rstrip()
    console.print(text, no_wrap=True, overflow="ignore", crop=False)


def table_of(console: Console, columns: Sequence[tuple[str, str]], *, indent: int = 2) -> Table:
    """A table without lines; each column is a header and 'left', 'right' or 'text' (which takes the rest)."""
    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style=QUIET,
        width=width_of(console) - indent,
        show_header=any(header for header, _ in columns),
    )
    for header, kind in columns:
        table.add_column(
            header,
            justify="right" if kind == "right" else "left",
            no_wrap=kind != "text",
            ratio=1 if kind == "text" else None,
            overflow="fold",
        )
    return table


class _Cell:
    """A text that folds itself as paragraphs do."""

    def __init__(self, text: Chunk) -> None:
        self.text = text if isinstance(text, Text) else Text(text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from folded(self.text, options.max_width)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, max(1, self.text.cell_len)).with_maximum(options.max_width)


def add_row(table: Table, *cells: Chunk) -> None:
    """A row whose texts fold as paragraphs do."""
    pairs = zip(table.columns, cells, strict=True)
    table.add_row(*(_Cell(cell) if column.ratio else cell for column, cell in pairs))


def put_table(console: Console, table: Table, *, indent: int = 2) -> None:
    """The table, indented, and an empty line; no line ends in spaces."""
    with console.capture() as capture:
        console.print(Padding(table, (0, 0, 0, indent)))
    lines = Text.from_ansi(capture.get()).split("\n")
    for each in lines:
        _raw(console, each)
    put(console)
