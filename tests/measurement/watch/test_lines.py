"""Lines carry the time at which they began; of those that are overwritten, one a second is kept."""

import pytest

from escala.measurement.watch.lines import LONGEST, Stamper

AT = "1970-01-01T00:00:{:06.3f}Z "


def stamped(*pieces: tuple[float, bytes]) -> list[bytes]:
    stamper = Stamper()
    text = b"".join(stamper.add(data, at_s) for at_s, data in pieces) + stamper.rest()
    return text.splitlines(keepends=True)


def line(at_s: float, text: bytes) -> bytes:
    return AT.format(at_s).encode() + text + b"\n"


def test_a_line_has_the_time_of_its_first_byte():
    assert stamped((1.0, b"one"), (2.5, b" two\nthree\n")) == [line(1.0, b"one two"), line(2.5, b"three")]


def test_what_has_no_line_end_is_kept_at_the_end():
    assert stamped((1.0, b"a\nb")) == [line(1.0, b"a"), line(1.0, b"b")]


@pytest.mark.parametrize("pieces", [(b"a\r\nb\n",), (b"a\r", b"\nb\n"), (b"a", b"\r\n", b"b\n")])
def test_both_kinds_of_line_end_are_one(pieces: tuple[bytes, ...]):
    assert stamped(*((1.0, each) for each in pieces)) == [line(1.0, b"a"), line(1.0, b"b")]


def test_empty_lines_and_bytes_that_are_no_text_stay():
    assert stamped((1.0, b"\n\xff\x00\n")) == [line(1.0, b""), line(1.0, b"\xff\x00")]


def test_of_a_bar_that_overwrites_itself_one_state_a_second_is_kept_and_the_last():
    # as tqdm draws: the carriage return comes first
    bar = [(0.25 * i, b"\r%d/9" % i) for i in range(10)]

    kept = stamped(*bar, (3.0, b"\n"))
    assert kept == [line(0.0, b"0/9"), line(1.0, b"4/9"), line(2.0, b"8/9"), line(2.25, b"9/9")]


def test_a_line_without_end_does_not_fill_the_memory():
    stamper = Stamper()

    kept = sum(len(stamper.add(b"x" * 65536, 1.0)) for _ in range(40))
    assert kept > 40 * 65536 - LONGEST - 65536
