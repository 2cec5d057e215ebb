"""YAML: values as PyYAML has them, places where they stand, bounds that hold."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from escala.foreign.places import plain
from escala.foreign.yamltext import read_yaml

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text("abc xyz:-#'\"", max_size=9)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abcde", min_size=1), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text("abcde", min_size=1), VALUES, min_size=1))
def test_what_pyyaml_writes_is_read_as_pyyaml_reads_it(value: dict[str, object]) -> None:
    text = yaml.safe_dump(value)

    [(tree, found)] = read_yaml(text, "x.yaml")

    assert tree is not None
    # names are compared as text, since PyYAML reads a name such as 'e' as it stands but null as none
    assert (plain(tree), found) == (value, [])


def test_a_rate_without_a_point_is_a_text_as_for_pyyaml() -> None:
    [(tree, _)] = read_yaml("a: 5e-5\nb: 5.0e-5\n", "x.yaml")

    assert tree is not None
    assert plain(tree) == {"a": "5e-5", "b": 5.0e-5}


def test_merged_keys_count_less_than_own_ones() -> None:
    [(tree, _)] = read_yaml("base: &b {x: 1, y: 2}\nrun:\n  <<: *b\n  y: 3\n", "x.yaml")

    assert tree is not None
    assert plain(tree.table["run"]) == {"x": 1, "y": 3}


def test_a_billion_laughs_are_one_finding() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]

    [(tree, found)] = read_yaml("\n".join(lines), "x.yaml")

    assert tree is None
    assert [each.rule for each in found] == ["yaml-unreadable"]


def test_a_tab_is_found_at_its_line() -> None:
    [(tree, found)] = read_yaml("a: 1\nb:\n\tc: 2\n", "x.yaml")

    assert tree is None
    assert [each.place.line for each in found if each.place] == [3]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: {{ x }}\n", 2),
        ("a: 1\nb: {{ .Values.x | quote }}\n", 2),
        ("{% if x %}\na: 1\n{% endif %}\n", 1),
        ("a:\n{{- range .x }}\n  - b\n{{- end }}\n", 2),
    ],
)
def test_a_template_is_called_a_template(text: str, line: int) -> None:
    [(tree, [found])] = read_yaml(text, "x.yaml")

    assert tree is None
    assert found.rule == "yaml-template"
    assert found.place is not None
    assert found.place.line == line


def test_a_template_in_quotes_is_a_text() -> None:
    [(tree, found)] = read_yaml("a: '{{ x }}'\n", "x.yaml")

    assert tree is not None
    assert found == []


@pytest.mark.parametrize("text", ["a:\n\tb: 1\n", "a:\n  b: 1\n\tc: 2\n"])
def test_a_tab_is_called_a_tab(text: str) -> None:
    [(tree, [found])] = read_yaml(text, "x.yaml")

    assert tree is None
    assert "a tab; indent with spaces" in found.what
