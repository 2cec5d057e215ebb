"""JSON as people write it: values as Python's own reader has them, places where they stand, faults found."""

import json

from hypothesis import given
from hypothesis import strategies as st

from escala.foreign.jsontext import read_json
from escala.foreign.places import at, plain

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.sampled_from((None, 2)))
def test_what_python_writes_is_read_back_without_a_finding(value: object, indent: int | None) -> None:
    tree, found = read_json(json.dumps(value, indent=indent), "x.json")

    assert tree is not None
    assert (plain(tree), found) == (value, [])


@given(st.text(alphabet="{}[]:,\"'\\/#*\n 1eE.-truefalsnTFN", max_size=200))
def test_any_text_is_a_tree_or_one_finding_more(text: str) -> None:
    tree, found = read_json(text, "x.json")

    assert (tree is None) == any(each.rule == "json-unreadable" for each in found)


def test_a_value_knows_its_line_and_its_text() -> None:
    text = '{\n  "zero_optimization": {\n    "stage": 3\n  }\n}\n'
    tree, _ = read_json(text, "x.json")

    node = at(tree, "zero_optimization", "stage")

    assert node is not None
    assert node.key is not None
    assert (node.place.line, text[node.place.start : node.place.end]) == (3, "3")
    assert text[node.key.start : node.key.end] == "stage"


def test_each_habit_that_strict_readers_refuse_is_found_at_its_line() -> None:
    text = '{\n// why\n"a": \'b\',\n"c": True,\n"a": 1,\n}'

    tree, found = read_json(text, "x.json")

    assert tree is not None
    assert plain(tree) == {"a": 1, "c": True}
    assert [(each.rule, each.place.line) for each in found if each.place] == [
        ("json-comment", 2),
        ("json-single-quotes", 3),
        ("json-python-word", 4),
        ("duplicate-key", 5),
        ("json-trailing-comma", 5),
    ]


def test_the_changes_that_findings_offer_make_it_strict_json() -> None:
    text = '{\n// why\n"a": \'b\',\n"c": True,\n}'
    _, found = read_json(text, "x.json")

    for edit in sorted((edit for each in found for edit in each.edits), key=lambda edit: -edit.start):
        text = text[: edit.start] + edit.text + text[edit.end :]

    assert json.loads(text) == {"a": "b", "c": True}


def test_depth_is_bounded() -> None:
    tree, found = read_json("[" * 100_000, "x.json")

    assert tree is None
    assert [each.rule for each in found] == ["json-unreadable"]
