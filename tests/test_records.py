"""Records are kept as JSON lines and come back as they were."""

import pytest

from escala.errors import InvalidInput
from escala.records import Environment, JournalEntry, Measurement, append, read


@pytest.fixture
def measurement():
    return Measurement(
        what="all-reduce",
        samples_s=(0.1, 0.11),
        device="cpu",
        clock="perf_counter",
        synchronised_by="barrier",
        payload_bytes=1e6,
        ranks=4,
    )


@pytest.fixture
def run(measurement):
    return JournalEntry(
        run="first",
        plan_file={"schema": "escala/plan-file@1", "plan": {"dp": 4}},
        predicted={"step_s": 1.0},
        measured={"step_s": 1.1},
        measurements=(measurement,),
        environment=Environment(escala="0.1.0", python="3.11", platform="linux", versions={"numpy": "2.4"}),
        seed=7,
        step=3,
    )


def test_records_come_back_in_order(tmp_path, measurement, run):
    path = tmp_path / "run.jsonl"

    append(path, measurement)
    append(path, run)

    assert list(read(path)) == [measurement, run]


def test_a_line_cut_by_a_crash_is_named(tmp_path, measurement):
    path = tmp_path / "run.jsonl"
    append(path, measurement)
    path.write_bytes(path.read_bytes() + b'{"schema":"escala/meas')

    records = read(path)

    assert next(records) == measurement
    with pytest.raises(InvalidInput, match="line 2 is cut short"):
        next(records)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"not json\n", "line 1 is no record"),
        (b'{"schema":"escala/other@1"}\n', "no known schema"),
        (b'["schema"]\n', "line 1 is no record"),
        (b'{"schema":"escala/measurement@1","what":"x"}\n', "samples_s"),
        (b'{"schema":"escala/measurement@1","nonsense":1}\n', "line 1 is no record"),
        ('{"schema":"x"}\n'.encode("utf-16"), "is no record|cut short"),
    ],
)
def test_what_is_no_record_is_one_clear_line(tmp_path, line, message):
    path = tmp_path / "run.jsonl"
    path.write_bytes(line)

    with pytest.raises(InvalidInput, match=message) as caught:
        list(read(path))

    assert "\n" not in str(caught.value)


def test_an_empty_file_has_no_records(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"\n\n")

    assert list(read(path)) == []
