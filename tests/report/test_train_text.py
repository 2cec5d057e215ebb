"""The table at the end of a run, as a terminal of 80 columns shows it."""

import io

import pytest
from rich.console import Console

from escala.measurement.profile.predicted import PARTS
from escala.measurement.profile.record import Beside, Prediction
from escala.measurement.verify import Compared, Verified
from escala.report.train_text import _print_compared

QUANTITIES = (
    ("step time", "s", 14.1e-3),
    ("rate", "tokens/s", 123_456.0),
    ("memory, allocated", "bytes", 123.4e9),
    ("memory, used on the device", "bytes", 123.4e9),
    ("energy", "J", 123_456.0),
)


def compared() -> tuple[Compared, ...]:
    """Quantities with the widest numbers and errors that are likely."""
    return tuple(
        Compared(
            quantity=name, unit=unit, predicted=value, low=0.8 * value, high=1.2 * value, recorded=40 * value,
            error=31.12, is_inside=False, origin="logs",
        )
        for name, unit, value in QUANTITIES
    )  # fmt: skip


@pytest.fixture
def shown() -> list[str]:
    verified = Verified(
        schema="", escala="", run=(), network="", accelerator="", devices=2, plan_title="",
        compared=compared(), missing=(), notes=(), own=(),
    )  # fmt: skip
    parts = tuple(
        Beside(part=name, predicted_s=0.1234, measured_s=1.234, error=-0.9, terms=()) for name in PARTS
    )
    told = Prediction(plan_title="", network="", step_s=1, low_s=1, high_s=1, error=0, parts=parts, axes=())
    page = Console(file=io.StringIO(), width=80, highlight=False)
    _print_compared(page, verified, told)
    return page.file.getvalue().splitlines()


@pytest.mark.parametrize("name", [*(name for name, _, _ in QUANTITIES), *PARTS])
def test_every_row_of_the_table_has_its_name_whole_and_its_numbers_beside_it(shown: list[str], name: str):
    row = next(line for line in shown if line.strip().startswith(f"{name} "))

    assert row.rstrip().endswith("%")
    assert len(row.split("  ")) > 3


def test_intervals_stand_below_their_quantity_in_one_line(shown: list[str]):
    assert sum(line.strip().startswith("80 % (") and line.endswith(")") for line in shown) == len(QUANTITIES)
    assert max(map(len, shown)) <= 80
