"""Whatever is given is read with what was left out said, or refused in one line; never a traceback."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from escala.errors import InvalidInput
from escala.measurement.logs.gather import read_file
from escala.measurement.logs.record import record
from escala.measurement.logs.samples import MOST_SAMPLES, Gathered, Sample, What
from escala.measurement.logs.source import DECIMAL_COMMA, LONGEST_LINE, Source
from escala.measurement.runrecord import RunRecord

DATA = Path(__file__).parent / "data"
FILES = sorted(path for path in DATA.rglob("*") if path.is_file() and path.suffix != ".md")
ITERATION = " iteration {}/ 9 | elapsed time per iteration (ms): {} | global batch size: 8 |\n"


def put(folder: Path, content: str | bytes) -> str:
    path = folder / "log"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b" \n \n", "is empty"),
        (bytes(range(256)) * 40, "is binary"),
        ("step: 1".encode("utf-16"), "UTF-16"),
        (b"hello\nworld\n", "is in no format that can be read"),
        (b'{"log_history": [', "is cut short or no JSON"),
        (b'{"log_history": []}', "has no number of a run"),
        (b"[1, 2]", "is in no format"),
        (b"epoch;step;train/time\n0;1;0,5\n", "separated by ';'"),
        (b"timestamp, power.draw [W]\n2025/04/13 23:41:00.000, [N/A]\n", "has no number of a run"),
        (b"#Entity   GPUTL\nID\nGPU 0     98\n", "neither power nor memory"),
        (b'epoch,step\n"' + b"a\n" * 200_000, "is no CSV"),
        ((DATA / "zeus-no-gpu.csv").read_bytes(), "is of Zeus, but has no number of a run"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(content: bytes, said: str, tmp_path: Path):
    with pytest.raises(InvalidInput, match=said.replace("[", r"\[")) as error:
        record([put(tmp_path, content)])

    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["", "missing.log", "a\0b", "x" * 5000])
def test_names_that_are_no_file(name: str, tmp_path: Path):
    with pytest.raises(InvalidInput):
        record([name])


def test_a_file_that_is_named_twice(tmp_path: Path):
    log = put(tmp_path, ITERATION.format(1, "5.0"))

    with pytest.raises(InvalidInput, match="named twice"):
        record([log, log])


def test_half_a_line_at_the_end_is_left_out_not_read_as_a_smaller_number(tmp_path: Path):
    whole = "".join(ITERATION.format(i, "1147.6") for i in range(1, 5))
    found = read_file(Path(put(tmp_path, whole + ITERATION.format(5, "1147.6")[:52])))

    assert set(found.of(What.STEP_S)[""].values) == {1.1476}
    assert found.left_out == {"a last line that is cut short": 1}


def test_decimal_commas_and_nan_are_said(tmp_path: Path):
    texts = ["1147,6", "nan", "inf", "-5", "0", "1000.0"]
    found = read_file(Path(put(tmp_path, "".join(ITERATION.format(i, text) for i, text in enumerate(texts)))))

    assert list(found.of(What.STEP_S)[""].values) == [1.0]
    assert found.left_out == {
        "numbers with a decimal comma: set LC_ALL=C, or the locale of the tool": 1,
        "numbers that are not finite": 2,
        "step_s that is not above zero": 2,
    }


def test_a_row_that_is_cut_is_left_out(tmp_path: Path):
    content = (DATA / "nvidia-smi.csv").read_bytes()
    found = read_file(Path(put(tmp_path, content[: content.rindex(b", 98 %")])))

    assert found.left_out == {"rows with another number of cells": 1}


def test_a_decimal_comma_of_a_row_is_told_from_other_cells(tmp_path: Path):
    header = "timestamp, index, power.draw [W], memory.used [MiB]\n"
    good, bad = "2026/01/01 00:00:00.000, 0, {}, 100 MiB\n".format, "655,10 W"
    found = read_file(Path(put(tmp_path, header + good("655.10 W") + good(bad) + good("655.10 W, 1"))))

    assert found.left_out == {DECIMAL_COMMA: 1, "rows with another number of cells": 1}
    assert "LC_ALL=C" in DECIMAL_COMMA


def test_steps_without_a_time_are_sent_to_the_watch(tmp_path: Path):
    with pytest.raises(InvalidInput, match="prints steps without a time; run it as `escala watch"):
        record([put(tmp_path, "step 1 loss 0.3\nstep 2 loss 0.2\n")])


def test_a_line_without_end_takes_no_memory(tmp_path: Path):
    log = put(tmp_path, b"a" * (3 * LONGEST_LINE) + b"\n" + ITERATION.format(1, "5.0").encode())
    source = Source(Path(log))

    assert len(list(source.lines())) == 1
    assert source.left_out == {"lines longer than 1 MiB": 1}


def test_numbers_beyond_the_bound_are_counted_not_kept():
    found = Gathered(path="", tool="", is_utc=False, kept=MOST_SAMPLES)
    found.add(Sample(What.STEP_S, 1.0))

    assert found.series == {}
    assert found.left_out == {"numbers after the first 2,000,000": 1}


def read_or_refuse(path: Path) -> None:
    said = ""
    try:
        found = record([str(path)])
        assert msgspec.json.decode(msgspec.json.encode(found), type=RunRecord) == found
    except InvalidInput as error:
        said = str(error)
    assert "\n" not in said


ANY = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@ANY
@given(content=st.binary(max_size=400))
@example(content=b"{" * 5000)
@example(content=b'{"_wandb": 1, "_step": 1, "_runtime": 1' + b"0" * 400 + b"}")
@example(content=b'{"log_history": [{"step": 1, "train_runtime": 1' + b"0" * 400 + b"}]}")
@example(content=b'{"_timestamp": 1' + b"0" * 400 + b', "_step": 1' + b"0" * 400 + b"}\n")
@example(content=b'{"time": 1' + b"0" * 400 + b', "gpu_energy": {"0": 1' + b"0" * 400 + b"}}\n")
@example(content=b" iteration 1" + b"0" * 5000 + b"/ 9 | elapsed time per iteration (ms): 1.0 |\n")
@example(content=b" iteration 1/ 9 | elapsed time per iteration (ms): 1" + b"0" * 5000 + b" |\n")
@example(content=ITERATION.format(1, "1.0").replace(" 8 ", f" {10**30} ").encode())
@example(content=ITERATION.format(1, "1e-320").encode())
@example(content=b"epoch,step\n1,1" + b"0" * 5000 + b"\n")
@example(
    content=b"using world size: 1"
    + b"0" * 5000
    + b"\n iteration 1/ 9 | elapsed time per iteration (ms): 1 |\n"
)
def test_noise_is_refused_or_read(content: bytes, tmp_path: Path):
    read_or_refuse(Path(put(tmp_path, content)))


PIECES = [
    b"nan",
    b"-1",
    b"1e999",
    b"9" * 30,
    b",",
    b"\n",
    b'"',
    b"\xff\xfe",
    b"1,5",
    b"{",
    b"[rank3]:",
    b"\0",
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
@ANY
@given(data=st.data())
def test_damaged_logs_are_refused_or_read(path: Path, tmp_path: Path, data: st.DataObject):
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, len(content)))
        kind = data.draw(st.integers(0, 2))
        if kind == 0:
            content[place : place + data.draw(st.integers(1, 200))] = b""
        elif kind == 1:
            content[place:place] = data.draw(st.sampled_from(PIECES))
        else:
            content[place : place + 1] = data.draw(st.binary(min_size=1, max_size=3))
    read_or_refuse(Path(put(tmp_path, bytes(content))))
