"""The rules of `escala check` as a page: one table for each file of rules."""

import tomllib
from collections.abc import Callable
from importlib.resources import files

TITLES = {"general": "Every file", "model": "Model and devices"}


def rule_tables() -> str:
    """Every rule by group, general ones first."""
    found = sorted(files("escala.foreign").joinpath("data/rules").iterdir(), key=lambda file: file.name)
    groups = {file.name.removesuffix(".toml"): tomllib.loads(file.read_text("utf-8")) for file in found}
    names = [*TITLES, *(name for name in groups if name not in TITLES)]
    return "\n".join(_group(TITLES.get(name, name.capitalize()), groups[name]) for name in names)


def _group(title: str, rules: dict[str, dict[str, str]]) -> str:
    lines = ["| rule | says | why | fix | source |", "|---|---|---|---|---|"]
    for name, words in rules.items():
        cells = [_cell(words[part]) for part in ("what", "why", "fix", "source")]
        lines.append(f"| `{name}`<br>{words['severity']} | {' | '.join(cells)} |")
    return f"## {title}\n\n" + "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Text of a rule as it may stand in a table."""
    return text.replace("|", "\\|").replace("<", "&lt;").strip() or "–"


RULE_SECTIONS: dict[str, Callable[[], str]] = {"rules": rule_tables}
