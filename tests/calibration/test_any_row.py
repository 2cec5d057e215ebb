"""Whatever stands in a table, a row is read or skipped with a reason."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escala.calibration import Reading, Row, Skip, read, read_rows
from escala.calibration.cells import KINDS

COUNTS = st.none() | st.sampled_from([0, 1, 2, 3, 8, 64, 4096, 10**15]) | st.integers(0, 10**15)
RATES = st.none() | st.floats(0, 1e15, allow_nan=False)
TAGS = ("grad_accum=", "Batch Size=", "tokens_per_step=", "batch_per_dp=", "slices=", "ETP=", "max_seq_len=")
WORDS = st.text(max_size=12) | st.sampled_from(
    sorted(
        {text for row in read_rows().rows for text in (row.source, row.framework, row.accelerator, row.arch)}
    )
    + sorted(
        {text for row in read_rows().rows for text in (row.sharding, row.model, row.link_outside, row.other)}
    )
    + [tag + number for tag in TAGS for number in ("0", "9" * 5000, "x", "3")]
)


def any_value(kind: type) -> st.SearchStrategy[Any]:
    if kind is bool:
        return st.none() | st.booleans()
    return {int: COUNTS, float: RATES, str: WORDS}[kind]


ROWS = st.builds(Row, **{field: any_value(kind) for field, kind in KINDS.items()})
SHIPPED = st.sampled_from(read_rows().rows)


@settings(max_examples=200)
@given(ROWS)
def test_a_row_of_anything_is_read_or_skipped(row: Row):
    result = read(row)

    assert isinstance(result, Reading) or result.reason


@settings(max_examples=200)
@given(SHIPPED, st.data())
def test_a_shipped_row_with_any_cells_is_read_or_skipped(row: Row, data: st.DataObject):
    fields = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3, unique=True))
    values = {field: getattr(row, field) for field in KINDS}
    values |= {field: data.draw(any_value(KINDS[field])) for field in fields}

    result = read(Row(**values))

    assert isinstance(result, Reading) or result.reason


def test_every_shipped_row_is_read_or_skipped(capsys: pytest.CaptureFixture[str]):
    results = [read(row) for row in read_rows().rows]

    sources = sorted({result.row.source for result in results})
    for source in sources:
        own = [result for result in results if result.row.source == source]
        print(f"{sum(isinstance(r, Reading) for r in own):4} of {len(own):4} read: {source}")
    assert all(isinstance(result, Reading | Skip) for result in results)
    assert sum(isinstance(result, Reading) for result in results) >= 1950
