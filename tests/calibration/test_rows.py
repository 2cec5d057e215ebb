"""Published rows are typed, complete in their provenance, and a bad table is refused in words."""

import csv
from collections import Counter
from importlib.resources import files
from pathlib import Path

import pytest

from escala.calibration import Row, read_rows
from escala.calibration.rows import COLUMNS
from escala.calibration.tables import MOST_ROWS, parse_rows
from escala.errors import InvalidInput

DATA = files("escala.calibration") / "data"
HEADER = "id,source_title,accelerator,n_layers,step_time_s,flash_attention\n"


def test_shipped_rows_have_no_id_twice():
    count = Counter(row.id for row in read_rows().rows)

    assert [name for name, times in count.items() if times > 1] == []


def test_every_shipped_row_has_source_address_year_and_trust():
    bare = [
        r.id for r in read_rows().rows if not (r.source and r.address and r.year and r.trust in ("ok", "low"))
    ]

    assert bare == []


def test_no_shipped_row_is_faulty():
    assert read_rows().faults == ()
    assert len(read_rows().rows) == 2290


def test_every_shipped_source_is_described_once():
    titles = [line["source_title"] for line in _table("sources.csv")]

    assert sorted(titles) == sorted({row.source for row in read_rows().rows})


@pytest.mark.parametrize("name", ["collectives.csv", "gemm.csv", "power.csv", "power_limits.csv"])
def test_every_row_of_the_small_tables_has_a_source(name: str):
    assert [row for row in _table(name) if not row["source"]] == []


def test_shipped_data_are_compact():
    assert sum(len(file.read_bytes()) for file in DATA.iterdir()) < 500_000


def test_every_field_has_a_column():
    assert list(COLUMNS) == [field for field in Row.__dataclass_fields__]


def test_cells_are_typed():
    (row,) = parse_rows(HEADER + "a,Table 1,A100,24.0,1.5e-1,true\n", "x.csv").rows

    assert (row.layers, row.step_s, row.flash, row.hidden, row.method) == (24, 0.15, True, None, "")


def test_notes_of_a_source_come_before_those_of_a_row():
    (row,) = parse_rows("source_title,accelerator,notes\nS,A100,own\n", "x.csv", {"S": "common"}).rows

    assert row.notes == "common; own"


def test_words_with_a_value_are_tags():
    (row,) = parse_rows(
        "source_title,accelerator,other_metric\nS,A100,OOM;grad_accum=2;amp=bf16\n", "x.csv"
    ).rows

    assert row.tags == {"grad_accum": "2", "amp": "bf16"}


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ("a,S,A100,24.5,1,true", "n_layers is '24.5', not a whole number of at least 0"),
        ("a,S,A100,-1,1,true", "n_layers is '-1', not a whole number of at least 0"),
        ("a,S,A100,24,fast,true", "step_time_s is 'fast', not a number of at least 0"),
        ("a,S,A100,24,nan,true", "step_time_s is 'nan', not a number of at least 0"),
        ("a,S,A100,24,1e999,true", "step_time_s is '1e999', not a number of at least 0"),
        ("a,S,A100,24,1,perhaps", "flash_attention is 'perhaps', not true or false"),
        ("a,S,A100,24,1,true,7", "7 cells under 6 columns"),
    ],
)
def test_a_bad_cell_is_a_fault_with_its_reason(cells: str, reason: str):
    read = parse_rows(HEADER + cells + "\n", "x.csv")

    assert [(fault.line, fault.id, fault.reason) for fault in read.faults] == [(2, "a", reason)]
    assert read.rows == ()


def test_short_and_empty_lines_are_no_faults():
    read = parse_rows(HEADER + "a,S,A100\n\n,,,,,\n", "x.csv")

    assert [row.id for row in read.rows] == ["a"]


def test_a_row_without_id_is_named_by_its_line():
    (row,) = parse_rows(HEADER + ",S,A100,24,1,true\n", "x.csv").rows

    assert row.id == "line 2"


def test_unknown_and_missing_columns_are_listed():
    read = parse_rows("source_title,accelerator,colour\nS,A100,red\n", "x.csv")

    assert read.ignored_columns == ("colour",)
    assert "n_layers" in read.missing_columns


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "lacks the columns"),
        (b"a,b\n1,2\n", "lacks the columns"),
        (b"source_title,accelerator,dp,dp\n", "has the column 'dp' twice"),
        (b"source_title,accelerator\n\xff\xfe,A100\n", "not UTF-8 at byte 25"),
        (b"source_title,accelerator\nS," + b"x" * 200_000 + b"\n", "is not CSV at line 2"),
        (b"source_title,accelerator\n" + b"S,A\n" * (MOST_ROWS + 1), "has more than 200,000 rows"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, content: bytes, message: str):
    file = tmp_path / "x.csv"
    file.write_bytes(content)

    with pytest.raises(InvalidInput, match=message):
        read_rows(file)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path):
    with pytest.raises(InvalidInput, match="does not exist"):
        read_rows(tmp_path / "none.csv")
    with pytest.raises(InvalidInput, match="is a folder"):
        read_rows(tmp_path)


def test_byte_order_mark_and_carriage_returns_are_read(tmp_path: Path):
    file = tmp_path / "x.csv"
    file.write_bytes(b"\xef\xbb\xbfid,source_title,accelerator\r\na,S,A100\r\n")

    assert [row.id for row in read_rows(file).rows] == ["a"]


def _table(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((DATA / name).read_text(encoding="utf-8").splitlines()))
