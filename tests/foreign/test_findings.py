"""Rules: every one has words, a source and a test that makes it speak."""

import re
from pathlib import Path

from escala.foreign.findings import rules

HERE = Path(__file__).parents[1]


def test_every_rule_says_what_why_what_to_do_and_who_says_so() -> None:
    for rule in rules().values():
        assert all((rule.what, rule.why, rule.fix, rule.source)), rule.name
        assert not rule.what.endswith("."), rule.name


def test_every_rule_is_named_in_a_test() -> None:
    text = "".join(file.read_text("utf-8") for file in HERE.rglob("test_*.py"))

    missing = [name for name in rules() if not re.search(rf'"{re.escape(name)}"', text)]

    assert missing == []


def test_every_rule_is_used() -> None:
    source = Path(__file__).parents[2] / "src/escala"
    text = "".join(file.read_text("utf-8") for file in source.rglob("*.py"))

    without_condition = [name for name, rule in rules().items() if not rule.when]
    assert [name for name in without_condition if f'"{name}"' not in text] == []
