"""`escala validate`: the headline, the documents, own tables, files, and every wrong table."""

import csv
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from escala.calibration import Row, read_rows
from escala.calibration.rows import COLUMNS
from escala.calibration.scores import DIMENSIONS
from escala.calibration.tables import MOST_ROWS
from escala.report.validate_view import Validated

SHIPPED = {row.id: row for row in read_rows().rows}
FIVE = ("megatron_001", "megatron_002", "torchtitan_013", "qwen_006", "mlperf_099")


def cells(row: Row) -> dict[str, str]:
    texts = {column: getattr(row, field) for field, column in COLUMNS.items()}
    return {column: "" if value is None else str(value) for column, value in texts.items()}


def table(name: str, rows: Sequence[dict[str, str]], columns: Sequence[str] | None = None) -> str:
    with Path(name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns or list(rows[0]), extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return name


@pytest.fixture
def five(run) -> str:
    return table("five.csv", [cells(SHIPPED[name]) for name in FIVE])


def document(run, *arguments: str) -> Validated:
    result = run("validate", *arguments, "--json")
    assert result.code == 0, result.err
    return msgspec.json.decode(result.out, type=Validated)


def test_the_headline_comes_first_and_is_that_of_the_document(run, five: str):
    result, found = run("validate", five), document(run, five)

    lines = result.out.splitlines()
    assert lines[0] == "5 rows of five.csv: 5 scored"
    assert found.scores.time is not None
    mape, median = found.scores.time.mape * 100, found.scores.time.median_absolute_error * 100
    assert lines[1].startswith(f"Step time: MAPE {mape:.1f} %, median {median:.1f} %;")
    assert found.schema == "escala/validate@1"
    assert (found.rows, found.read, len(found.predictions)) == (5, 5, 5)


@pytest.mark.parametrize("by", DIMENSIONS)
def test_every_grouping_fits_80_columns(run, five: str, by: str):
    result = run("validate", five, "--by", by)

    assert (result.code, result.err) == (0, "")
    assert f"by {by}" in result.out
    assert result.longest <= 80


def test_a_narrow_terminal_has_the_numbers_below_the_names(run, five: str, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")

    result = run("validate", five)

    (alone,) = [row for row in document(run, five).predictions if row.id == "qwen_006"]
    off = 100 * abs(alone.error)
    assert result.longest <= 40
    assert f"rows 1, MAPE {off:.1f}, median {off:.1f}," in " ".join(result.out.split())


def test_the_numbers_of_a_row_agree_with_each_other(run, five: str):
    for row in document(run, five).predictions:
        assert row.published_s is not None
        assert row.error == pytest.approx(row.predicted_s.value / row.published_s - 1.0, rel=1e-12)
        assert row.is_inside == (row.predicted_s.low <= row.published_s <= row.predicted_s.high)


def test_the_order_of_rows_and_columns_does_not_matter(run, five: str):
    rows = [cells(SHIPPED[name]) for name in reversed(FIVE)]
    turned = table("turned.csv", rows, list(reversed(rows[0])))

    assert document(run, turned).scores == document(run, five).scores


def test_a_few_columns_are_enough(run):
    known = ("id", "source_title", "model_name", "n_layers", "hidden", "n_heads", "vocab", "seq_len")
    more = ("accelerator", "n_devices", "dp", "global_batch", "step_time_s", "precision", "colour")
    row = cells(SHIPPED["megatron_025"]) | {"step_time_s": "5.0", "dp": "96", "colour": "red"}

    found = document(run, table("few.csv", [row], [*known, *more]))

    assert (found.read, found.ignored_columns) == (1, ("colour",))
    assert "tp" in found.missing_columns


def test_rows_that_cannot_be_scored_are_counted_by_reason_and_the_answer_is_no(run):
    row = cells(SHIPPED["megatron_001"]) | {"n_devices": ""}
    result = run("validate", table("open.csv", [row, row]))

    assert result.code == 1
    assert "no row can be scored" in result.out
    assert re.search(r"number of devices not printed +2$", result.out, re.MULTILINE)


def test_faulty_lines_are_named_and_the_rest_is_scored(run):
    good = cells(SHIPPED["megatron_001"])
    result = run("validate", table("mixed.csv", [good | {"id": "odd", "n_layers": "many"}, good]))

    assert result.code == 0
    assert result.out.startswith("2 rows of mixed.csv: 1 scored")
    assert "line 2, odd: n_layers is 'many', not a whole number of at least 0" in " ".join(result.out.split())


OPEN = {
    "n_devices": ("", "number of devices not printed: give n_devices"),
    "accelerator": ("toaster-9", "device 'toaster-9' not in the catalog: "),
    "seq_len": ("", "sequence length not printed: give seq_len"),
}


@pytest.mark.parametrize("column", OPEN)
def test_skipped_rows_of_ones_own_table_are_named(run, column: str):
    given, said = OPEN[column]
    good = cells(SHIPPED["megatron_001"])
    name = table("open.csv", [good, good | {"id": "bare", column: given}])

    (skipped,) = document(run, name).skipped

    assert (skipped.line, skipped.id) == (3, "bare")
    assert skipped.reason.startswith(said)
    assert f"line 3, bare: {said}".strip() in " ".join(run("validate", name).out.split())


def test_a_row_without_shape_says_what_to_give(run):
    bare = cells(SHIPPED["megatron_001"]) | dict.fromkeys(("id", "n_layers", "hidden"), "")
    result = run("validate", table("bare.csv", [bare | {"model_name": "ours"}]), "--html", "bare.html")

    said = (
        "line 2: shape of the network not printed: give n_layers and hidden, or a model_name of the catalog"
    )
    assert said in " ".join(result.out.split())
    assert said in Path("bare.html").read_text(encoding="utf-8")


def test_the_text_names_ten_skipped_rows_and_the_document_all(run):
    good = cells(SHIPPED["megatron_001"])
    name = table("many.csv", [good] + [good | {"id": f"r{n}", "n_devices": ""} for n in range(12)])

    text, found = run("validate", name).out, document(run, name)

    assert [row.id for row in found.skipped] == [f"r{n}" for n in range(12)]
    assert (text.count(" r9: "), text.count(" r10: "), text.count("and more, 12 in all")) == (1, 0, 1)


def test_rows_that_the_fit_has_seen_say_so_and_what_they_are_worth_without_their_source(run):
    text, found = run("validate", "--html", "page.html"), document(run)

    assert found.fit is not None
    assert found.scores.time is not None
    # read since the catalog has their networks; the fit has not seen them
    later = {"extra_380", "mbridge_003", "mbridge_004"}
    scored = [row for row in found.predictions if row.error is not None and row.is_trusted]
    seen = [abs(row.error) for row in scored if row.id not in later]
    assert found.fit.inside.rows == len(seen) == found.scores.time.rows - len(later)
    assert found.fit.inside.mape == pytest.approx(sum(seen) / len(seen), rel=1e-9)
    assert found.fit.left_out.mape > found.fit.inside.mape
    page = Path("page.html").read_text(encoding="utf-8")
    for number, label in (("mape", "Mean"), ("median_absolute_error", "Median")):
        inside, out = (f"{getattr(each, number):.1%}" for each in (found.fit.inside, found.fit.left_out))
        inside, out = inside.replace("%", " %"), out.replace("%", " %")
        assert f"{label}: in the fit {inside}; its source left out {out}" in text.out.splitlines()[:5]
        assert re.search(rf"in the fit</dt><dd>{inside}<.*its source left out</dt><dd>{out}<", page)
    plain, scores = " ".join(text.out.split()), found.scores
    unknown = "recompute not printed and taken as full"
    for ran, which in ((scores.ran, "recompute printed"), (scores.ran_unprinted, unknown)):
        called = f"{ran.does_not_fit_share:.1%}".replace("%", " %")
        assert f"{ran.rows:,} runs that ran, {which}: {called} called does not fit" in plain
    assert f"{scores.ran.rows + scores.ran_unprinted.rows:,} runs that ran, both together: " in plain
    assert found.skipped == ()
    assert "Skipped" not in text.out
    assert sum(found.skips.values()) == found.rows - found.read


def test_the_fit_has_not_seen_a_table_of_ones_own(run, five: str):
    result = run("validate", five, "--html", "page.html")

    assert document(run, five).fit is None
    assert "in the fit" not in result.out + Path("page.html").read_text(encoding="utf-8")


def test_a_table_of_low_trust_rows_only_is_scored_apart(run):
    name = table("low.csv", [cells(SHIPPED["megatron_001"]) | {"trust": "low"}])

    found = document(run, name).scores

    assert (found.time, found.low_trust_time and found.low_trust_time.rows) == (None, 1)
    assert "low-trust" in run("validate", name, "--html", "low.html", "--svg", "low.svg").out


def test_single_operations_are_of_the_shipped_tables_alone(run, five: str):
    assert document(run, five).operations is None
    assert "collectives" not in run("validate", five).out


def test_worst_limits_the_rows_that_are_shown(run, five: str):
    most = max(document(run, five).predictions, key=lambda row: abs(row.error))

    assert [row.id for row in document(run, five, "--worst", "1").worst] == [most.id]
    assert "Worst rows" not in run("validate", five, "--worst", "0").out


def test_the_page_needs_nothing_from_elsewhere_and_says_what_the_text_says(run, five: str):
    result = run("validate", five, "--html", "page.html")

    page = Path("page.html").read_text(encoding="utf-8")
    assert result.err == "wrote page.html\n"
    assert re.findall(r"(?:src|href)=|url\(|@import|<script", page) == []
    assert page.count("<circle") == len(FIVE) + len(document(run, five).scores.time_by["regime"])
    assert "Step time by source" in page
    assert "prefers-color-scheme:dark" in page


def test_the_plot_is_an_svg_file_with_one_mark_for_each_row(run, five: str):
    run("validate", five, "--svg", "plot.svg")

    root = ElementTree.parse("plot.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    marks = [each for each in root.iter(f"{space}circle") if each.find(f"{space}title") is not None]
    assert root.tag == f"{space}svg"
    assert len(marks) == len(FIVE)


def test_names_of_a_table_are_text_on_the_page(run):
    name = "<script>alert('x')</script> & \x1b[31m"
    rows = [cells(SHIPPED["megatron_001"]) | {"id": name, "source_title": name, "model_name": name}]

    result = run("validate", table("evil.csv", rows), "--html", "evil.html", "--svg", "evil.svg")

    assert (result.code, "\x1b[31m" in result.out) == (0, False)
    assert "<script" not in Path("evil.html").read_text(encoding="utf-8")
    ElementTree.parse("evil.svg")


def text(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def large(path: Path) -> None:
    path.touch()
    os.truncate(path, 100_000_000)


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing.csv": (lambda path: None, "missing.csv does not exist"),
    "folder.csv": (Path.mkdir, "folder.csv is a folder"),
    "empty.csv": (text(b""), "empty.csv lacks the columns source_title and accelerator"),
    "other.csv": (text(b"a,b\n1,2\n"), "other.csv lacks the columns source_title and accelerator"),
    "header.csv": (text(b"id,source_title,accelerator\n"), "header.csv has no rows"),
    "binary.csv": (text(bytes(range(256))), "binary.csv is not UTF-8 at byte"),
    "large.csv": (large, "large.csv is larger than 50 MB"),
    "long.csv": (text(b"accelerator\n" + b"x\n" * (MOST_ROWS + 1)), f"has more than {MOST_ROWS:,} rows"),
    "twice.csv": (text(b"accelerator,accelerator\n"), "has the column 'accelerator' twice"),
    " ": (lambda path: None, "no table is named"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_table_is_one_clear_line(run, name: str):
    make, said = WRONG[name]
    make(Path(name))

    result = run("validate", name, "--html", "page.html")

    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert said in result.err
    assert not Path("page.html").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--by", "sources"), "unknown grouping 'sources': did you mean source?"),
        (("--worst", "-1"), "'-1' is no whole number from 0 to 1,000"),
        (("--html", "nowhere/page.html"), "nowhere/page.html cannot be written"),
        (("--svg", "."), "'.' names no file to write"),
        (("--html", "five.csv"), "five.csv is named twice"),
        (("--html", "a", "--svg", "./a"), "./a is named twice"),
    ],
)
def test_a_wrong_option_is_one_clear_line(run, five: str, arguments: tuple[str, ...], said: str):
    result = run("validate", five, *arguments)

    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert said in result.err


@pytest.mark.parametrize("wrong", ["nowhere/y", ".", "folder", "/dev/full"])
@pytest.mark.parametrize(("first", "second"), [("--html", "--svg"), ("--svg", "--html")])
def test_both_files_are_written_or_neither(run, five: str, wrong: str, first: str, second: str):
    Path("folder").mkdir()
    Path("old").write_text("old")
    before = sorted(os.listdir())

    result = run("validate", five, first, "old", second, wrong)

    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert Path("old").read_text() == "old"
    assert sorted(os.listdir()) == before


def test_a_file_of_settings_may_group_but_not_write(run, five: str):
    Path("escala.toml").write_text('[validate]\nby = "year"\n')
    assert "Step time by year" in run("validate", five).out

    Path("escala.toml").write_text('[validate]\nhtml = "page.html"\n')
    result = run("validate", five)
    assert (result.code, Path("page.html").exists()) == (2, False)
    assert "html in [validate] can only be given on the command line" in result.err
