"""Lines over steps: where points lie, by hand."""

import re

from escala.report.line_plot import BOTTOM, HIGH, LEFT, RIGHT, TOP, WIDE, Line, line_plot


def test_the_ends_of_a_line_lie_at_the_ends_of_the_frame():
    # values 0 to 5 are divided by steps of 1, so the frame is 0 to 5 itself
    drawn = line_plot("test", [Line(name="a", points=((0.0, 5.0), (10.0, 0.0)))])

    found = re.search(r'class="l0" d="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)"', drawn)
    assert found is not None
    assert [float(each) for each in found.groups()] == [LEFT, TOP, WIDE - RIGHT, HIGH - BOTTOM]


def test_a_single_point_is_a_mark_and_two_lines_are_told_apart():
    lines = [Line(name="one", points=((1.0, 1.0),)), Line(name="two", points=((1.0, 2.0), (2.0, 3.0)))]

    drawn = line_plot("test", lines)

    assert '<circle class="m0"' in drawn
    assert '<path class="l1"' in drawn
    assert ">one<" in drawn
    assert ">two<" in drawn


def test_numbers_that_are_none_are_left_out():
    drawn = line_plot("test", [Line(name="a", points=((1.0, float("nan")), (2.0, 1.0), (3.0, float("inf"))))])

    assert "nan" not in drawn
    assert "inf" not in drawn
    assert line_plot("test", [Line(name="a", points=((1.0, float("nan")),))]) == ""


def test_names_are_text_not_markup():
    assert "<b>" not in line_plot("<b>", [Line(name="<b>", points=((1.0, 1.0), (2.0, 2.0)))])
