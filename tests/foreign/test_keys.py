"""Keys against a table: what is unknown, misspelt, renamed, removed or of the wrong type is found."""

import pytest

from escala.foreign.jsontext import read_json
from escala.foreign.keys import Gone, Key, KeyCheck, Section, Table

INNER = Section(keys={"depth": Key(types=("integer",))}, strict=False)
OUTER = Section(
    keys={
        "stage": Key(types=("integer",), choices=(0, 1, 2, 3)),
        "kind": Key(types=("string",), choices=("ring", "ulysses")),
        "inner": Key(types=("object",), section="inner"),
        "rate": Key(types=("number",)),
    },
    gone={"old_rate": Gone(to="rate", deprecated="2.0"), "magic": Gone(removed="1.5", why="it never worked")},
)
TABLE = Table(tool="tool", version="2.0", source="tool 2.0 itself", sections={"": OUTER, "inner": INNER})


@pytest.mark.parametrize(
    ("text", "rules", "fix"),
    [
        ('{"stage": 3, "kind": "ring", "inner": {"depth": 2}, "rate": 1}', [], ""),
        ('{"stage": "auto"}', [], ""),
        ('{"stage": null}', [], ""),
        ('{"stgae": 3}', ["misspelt-key"], "did you mean stage?"),
        ('{"entirely": 3}', ["unknown-key"], "leave it out, or look it up for tool 2.0"),
        ('{"inner": {"dept": 3}}', ["misspelt-key-silent"], "did you mean depth?"),
        ('{"inner": {"unheard": 3}}', ["unknown-key-silent"], "leave it out, or look it up for tool 2.0"),
        ('{"old_rate": 3}', ["deprecated-key"], "write rate instead"),
        ('{"magic": 3}', ["removed-key"], "leave it out"),
        ('{"stage": "3"}', ["wrong-type"], "write a value of that type"),
        ('{"stage": true}', ["wrong-type"], "write a value of that type"),
        ('{"stage": 5}', ["wrong-value"], "choose one of them"),
        ('{"kind": "rings"}', ["wrong-value"], "did you mean ring? choose one of them"),
    ],
)
def test_each_fault_is_found_with_what_to_do(text: str, rules: list[str], fix: str) -> None:
    tree, _ = read_json(text, "x.json")
    assert tree is not None

    found = list(KeyCheck(table=TABLE, tool="tool").findings(tree))

    assert [each.rule for each in found] == rules
    assert [each.fix for each in found] == ([fix] if rules else [])


def test_the_change_of_a_misspelt_key_writes_the_right_one() -> None:
    text = '{"stgae": 3}'
    tree, _ = read_json(text, "x.json")
    assert tree is not None

    [found] = KeyCheck(table=TABLE, tool="tool").findings(tree)

    [edit] = found.edits
    assert text[: edit.start] + edit.text + text[edit.end :] == '{"stage": 3}'


@pytest.mark.parametrize("name", ["b", "rte", "rated_by", "kinds_of", "stagecoach"])
def test_a_name_that_is_no_slip_of_one_is_not_renamed(name: str) -> None:
    tree, _ = read_json(f'{{"{name}": 3}}', "x.json")
    assert tree is not None

    [found] = KeyCheck(table=TABLE, tool="tool").findings(tree)

    assert (found.rule, found.edits) == ("unknown-key", ())


@pytest.mark.parametrize(
    ("text", "rule"),
    [('{"rate": 1, "old_rate": 3}', "deprecated-key"), ('{"stage": 1, "stgae": 3}', "misspelt-key")],
)
def test_nothing_is_renamed_to_what_is_there_already(text: str, rule: str) -> None:
    tree, _ = read_json(text, "x.json")
    assert tree is not None

    [found] = KeyCheck(table=TABLE, tool="tool").findings(tree)

    assert (found.rule, found.edits) == (rule, ())
