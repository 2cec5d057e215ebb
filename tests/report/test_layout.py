import io

import pytest
from rich.console import Console
from rich.text import Text

from escala.report.layout import GLUE, add_row, folded, glued, put, put_table, table_of

TITLE = "HSDP 64 × 2 (no reshard) × TP 4 + SP × PP 32 (zero-bubble V, balanced) · mb 1 × 64 · compile"


def screen(width: int) -> Console:
    return Console(file=io.StringIO(), width=width, color_system=None)


def lines(title: str, width: int) -> list[str]:
    return [each.plain.replace(GLUE, " ") for each in folded(Text(glued(title)), width)]


@pytest.mark.parametrize("width", range(40, 100))
def test_a_plan_breaks_only_between_its_axes(width: int):
    assert all(
        axis in " ".join(lines(TITLE, width)) and any(axis in line for line in lines(TITLE, width))
        for axis in ("HSDP 64 × 2 (no reshard)", "TP 4 + SP", "PP 32 (zero-bubble V, balanced)", "mb 1 × 64")
    )
    assert max(map(len, lines(TITLE, width))) <= width


def test_an_axis_that_is_too_long_breaks_before_its_parenthesis():
    assert lines("PP 32 (zero-bubble V, balanced)", 27) == ["PP 32", "(zero-bubble V, balanced)"]


@pytest.mark.parametrize("text", ["memory −11 %", "needs 74.4 GiB", "waits 73.7 ms", "at 989 TFLOP/s"])
def test_a_number_stays_with_its_unit(text: str):
    word, _, quantity = text.partition(" ")

    # one letter more would end the line between the number and its unit
    assert [each.plain.replace(GLUE, " ") for each in folded(Text(text), len(text) - 1)] == [word, quantity]


def test_tables_fold_as_paragraphs_do():
    console = screen(40)
    table = table_of(console, (("", "left"), ("", "text")))
    add_row(table, "pipeline parallel", f"recommended {glued('PP 2 (1F1B)')}")

    put_table(console, table)

    assert console.file.getvalue() == "  pipeline parallel  recommended\n" + " " * 21 + "PP 2 (1F1B)\n\n"  # type: ignore[attr-defined]


def test_no_glue_is_put():
    console = screen(80)

    put(console, glued(TITLE))

    assert GLUE not in console.file.getvalue()  # type: ignore[attr-defined]
