"""Lines that fit a terminal: chunks that flow, labels that hang, tables. Knows widths, no content."""

from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
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

Chunk = str | Text


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
    """One text in lines of at most `width`, broken at spaces where there are any."""
    lines = list(text.wrap(_RULER, width))
    for each in lines:
        each.rstrip()
    return lines


def put(console: Console, text: Chunk = "", *, indent: int = 0) -> None:
    """One paragraph, folded to the width behind its indent."""
    whole = text if isinstance(text, Text) else Text(text)
    for part in folded(whole, width_of(console) - indent) or [Text()]:
        _raw(console, Text.assemble(" " * indent, part))


def hanging(console: Console, label: str, lines: Sequence[Text], style: str = QUIET) -> None:
    """A label, and its lines in a column right of it."""
    for number, line in enumerate(lines):
        head = Text(f"  {label if number == 0 else '':<{HANG - 1}} ", style=style)
        _raw(console, Text.assemble(head, line))


def apart(console: Console, left: Text, right: Text, *, indent: int, label: str = "") -> None:
    """Two texts at both ends of a line; the left one takes more lines where it is too long."""
    width = width_of(console) - indent
    parts = folded(left, width - right.cell_len - 2)
    gap = " " * (width - parts[0].cell_len - right.cell_len)
    _raw(console, Text.assemble((label.ljust(indent), left.style), parts[0], gap, right))
    for part in parts[1:]:
        _raw(console, Text.assemble(" " * indent, part))


def _raw(console: Console, text: Text) -> None:
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


def put_table(console: Console, table: Table, *, indent: int = 2) -> None:
    """The table, indented, and an empty line; no line ends in spaces."""
    with console.capture() as capture:
        console.print(Padding(table, (0, 0, 0, indent)))
    lines = Text.from_ansi(capture.get()).split("\n")
    for each in lines:
        _raw(console, each)
    put(console)
