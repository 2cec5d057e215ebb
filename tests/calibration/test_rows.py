"""Published rows are typed, complete in their provenance, and a bad table is refused in words."""

import csv
from collections import Counter
from importlib.resources import files
from pathlib import Path

import pytest

from escala.calibration import Row, read_rows
from escala.calibration.cells import DEGREES, SPEEDS
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
        ("a,S,A100,24,1e999,true", "step_time_s is '1e999', too large: at most 1e15"),
        ("a,S,A100,24,1,perhaps", "flash_attention is 'perhaps', not true or false"),
        ("a,S,A100,24,1,true,7", "7 cells under 6 columns"),
        ("a,S,A100,24,1e300,true", "step_time_s is '1e300', too large: at most 1e15"),
        ("a,S,A100,1e400,1,true", "n_layers is '1e400', too large: at most 1e15"),
        ("a,S,A100,24,-1e300,true", "step_time_s is '-1e300', not a number of at least 0"),
        ("a,S,A100,24,1e-320,true", "step_time_s is '1e-320', too small: at least 1e-15"),
        ("a,S,A100,24,1e-400,true", "step_time_s is '1e-400', too small: at least 1e-15"),
        ("a,S,A100,24,inf,true", "step_time_s is 'inf', not a number of at least 0"),
        ("a,S,A100,24,5_762,true", "step_time_s is '5_762', not a number of at least 0"),
        ("a,S,A100,２４,1,true", "n_layers is '２４', not a whole number of at least 0"),
        ('a,S,A100,24,"5762,0",true', "step_time_s is '5762,0', decimal comma: write 5762.0"),
        ('a,S,A100,24,"1.234,56",true', "step_time_s is '1.234,56', decimal comma: write 1234.56"),
        ('a,S,A100,24,"5,762",true', "step_time_s is '5,762', with a comma: write 5762, or 5.762"),
        ('a,S,A100,24,"1,234,567.8",true', "step_time_s is '1,234,567.8', with commas: write 1234567.8"),
    ],
)
def test_a_bad_cell_is_a_fault_with_its_reason(cells: str, reason: str):
    read = parse_rows(HEADER + cells + "\n", "x.csv")

    assert [(fault.line, fault.id, fault.reason) for fault in read.faults] == [(2, "a", reason)]
    assert read.rows == ()


@pytest.mark.parametrize("field", DEGREES)
@pytest.mark.parametrize("zero", ["0", "0.0", "-0"])
def test_no_degree_is_0(field: str, zero: str):
    (fault,) = parse_rows(f"accelerator,{COLUMNS[field]}\nA100,{zero}\n", "x.csv").faults

    assert fault.reason == f"{COLUMNS[field]} is '{zero}', a degree of 0; write 1 or leave it blank"


@pytest.mark.parametrize("field", SPEEDS)
def test_no_speed_is_0(field: str):
    (fault,) = parse_rows(f"accelerator,{COLUMNS[field]}\nA100,0.0\n", "x.csv").faults

    assert fault.reason.startswith(f"{COLUMNS[field]} is '0.0', a speed of 0;")


@pytest.mark.parametrize(
    ("text", "number"),
    [("+1.5", 1.5), (".5", 0.5), ("5.", 5.0), ("1e3", 1000.0), ("1E-3", 0.001), ("1e15", 1e15)],
)
def test_every_usual_way_to_write_a_number_is_read(text: str, number: float):
    (row,) = parse_rows(f"accelerator,step_time_s\nA100,{text}\n", "x.csv").rows

    assert row.step_s == number


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"accelerator,dp\nA100,1\n', "line 1: a quote is opened and never closed"),
        ('accelerator,dp\nA100,1\n"A100,1\nA100,2\n', "line 3: a quote is opened and never closed"),
        ('accelerator,dp\n"A100,1\n"H100",2\n', "line 2: a quote is opened and closed on line 3 amid a cell"),
        ('accelerator,dp\n"A"100,1\n', "line 2: a quote is opened and closed amid a cell"),
        (f'accelerator\n"{"A100" * 9}\n{"x" * 200_000}', "line 2: a quote is opened and not closed for"),
    ],
)
def test_no_quote_swallows_rows(text: str, said: str):
    with pytest.raises(InvalidInput, match=said):
        parse_rows(text, "x.csv")


def test_a_cell_of_two_lines_counts_from_its_first():
    read = parse_rows('accelerator,notes\nA100,"one\ntwo"\nH100,\n', "x.csv")

    assert [row.id for row in read.rows] == ["line 2", "line 4"]


@pytest.mark.parametrize(("mark", "said"), [(";", "semicolons"), ("\t", "tabs")])
@pytest.mark.parametrize("quote", ["", '"'])
def test_another_separator_than_the_comma_is_named(mark: str, said: str, quote: str):
    lines = [
        mark.join(f"{quote}{cell}{quote}" for cell in line) for line in (("id", "accelerator"), ("a", "A"))
    ]

    with pytest.raises(InvalidInput, match=f"has {said} between its columns; save it with commas"):
        parse_rows("\n".join(lines), "x.csv")


@pytest.mark.parametrize("column", ["source_title", "accelerator"])
def test_one_of_the_two_columns_suffices(column: str):
    assert len(parse_rows(f"{column};more,{column}\nS,S\n", "x.csv").rows) == 1
    with pytest.raises(InvalidInput, match="of which one suffices"):
        parse_rows("id,model_name\na,b\n", "x.csv")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_named_with_and_without_its_mark(tmp_path: Path, encoding: str):
    file = tmp_path / "x.csv"
    file.write_bytes("id,source_title,accelerator\na,Universität,A100\n".encode(encoding))

    with pytest.raises(InvalidInput, match="is encoded in UTF-16; save it as UTF-8"):
        read_rows(file)


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
        (b"source_title,accelerator\nS," + b"x" * 200_000 + b"\n", "is not CSV: line 2: field larger"),
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
