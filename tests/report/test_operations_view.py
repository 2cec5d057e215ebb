"""Single operations as people see them: a few lines, a table of the page, numbers that agree."""

from pathlib import Path

import pytest

from escala.calibration.operations import shipped
from escala.calibration.rows import Rows
from escala.calibration.validation import validate
from escala.report.operations_view import SINGLE, OperationsView, operation_lines, operations_view
from escala.report.validate_files import save
from escala.report.validate_view import validation_view


@pytest.fixture(scope="module")
def view() -> OperationsView:
    return operations_view()


def test_every_row_is_read_or_has_a_reason(view: OperationsView):
    rows = sum(len(shipped(name)) for name in ("collectives", "gemm", "power", "power_limits"))

    assert view.rows == rows == view.read + sum(view.skips.values())
    assert len(view.measurements) == view.read


def test_the_numbers_of_a_measurement_agree(view: OperationsView):
    for each in view.measurements:
        assert each.error == pytest.approx(each.predicted / each.published - 1.0, rel=1e-12)


def test_three_lines_say_how_far_single_operations_are_off(view: OperationsView):
    collectives, sizes, products = operation_lines(view.scores)

    assert view.scores.collectives is not None
    assert collectives.startswith(f"{view.scores.collectives.rows} collectives · MAPE ")
    assert [part.rpartition(":")[0] for part in sizes.split(" · ")] == [
        "up to 1 MiB",
        "1 to 64 MiB",
        "from 64 MiB",
    ]
    assert products.startswith("20 best products of matrices · MAPE ")


@pytest.mark.parametrize("is_shown", [True, False])
def test_the_page_has_their_table_where_they_are_scored(view: OperationsView, is_shown: bool, tmp_path: Path):
    given = validation_view(validate(Rows(rows=())), "x.csv", 0, view if is_shown else None)
    save(given, str(tmp_path / "page.html"))

    assert (SINGLE in (tmp_path / "page.html").read_text()) is is_shown
