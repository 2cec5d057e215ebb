"""Conditions that stand as data beside the words of a rule."""

import pytest

from escala.foreign.conditions import is_met


@pytest.mark.parametrize(
    ("value", "wanted", "expected"),
    [
        (True, "set", True),
        ("a.json", "set", True),
        (False, "set", False),
        ({}, "set", False),
        (None, "unset", True),
        ("no", "unset", True),
        (3, ">2", True),
        (2, ">2", False),
        (True, ">0", False),
        (1, "<2", True),
        ("full", ["full", "freeze"], True),
        (1, [True], False),
        (None, ["full", "absent"], True),
        (None, ["full"], False),
    ],
)
def test_a_condition_holds_for_the_values_that_it_names(
    value: object, wanted: object, expected: bool
) -> None:
    assert is_met(value, wanted) is expected
