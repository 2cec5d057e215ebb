"""Flower's pyproject.toml: each rule with an app that breaks it and one that nearly does."""

from pathlib import Path

import pytest

from escala.foreign.jobs import Job, read_job

APP = """[project]
name = "app"
version = "1.0.0"

[tool.flwr.app]
publisher = "me"

[tool.flwr.app.components]
serverapp = "app.server:app"
clientapp = "app.client:app"

[tool.flwr.app.config]
num-server-rounds = 3
fraction-train = 0.5
"""
FEDERATIONS = """
[tool.flwr.federations]
default = "local"

[tool.flwr.federations.local]
options.num-supernodes = 10
options.backend.client-resources.num-gpus = {share}
"""

CASES = [
    ('publisher = "me"\n', "", ["flower-missing"]),
    ('version = "1.0.0"\n', "", ["flower-missing"]),
    ('serverapp = "app.server:app"\n', "", ["flower-missing"]),
    ('serverapp = "app.server:app"\nclientapp = "app.client:app"\n', 'agentapp = "app:agent"\n', []),
    ('"app.server:app"', '"app.server"', ["flower-component"]),
    ('"app.server:app"', '":app"', ["flower-component"]),
    ("fraction-train = 0.5", "fraction-train = 50", ["flower-share"]),
    ("fraction-train = 0.5", "fraction-train = 1", []),
    ("fraction-train = 0.5", "layers = [1, 2]", ["flower-setting-list"]),
    ("fraction-train = 0.5", 'layers = "1 2"\ntable.inner = 3', []),
]


def job(folder: Path, text: str, version: str = "1.42.0") -> Job:
    (folder / "pyproject.toml").write_text(text)
    return read_job([str(folder / "pyproject.toml")], {}, {"flower": version})


def rules(found: Job) -> list[str]:
    return [each.rule for each in found.findings if each.rule != "flower-federation"]


def test_an_app_is_told_who_answers_about_it(tmp_path: Path) -> None:
    found = job(tmp_path, APP)

    assert [each.rule for each in found.findings] == ["flower-federation"]
    assert found.facts == {}


@pytest.mark.parametrize(("old", "new", "expected"), CASES)
def test_each_fault_of_an_app_is_found(tmp_path: Path, old: str, new: str, expected: list[str]) -> None:
    assert old in APP

    assert rules(job(tmp_path, APP.replace(old, new))) == expected


@pytest.mark.parametrize(
    ("version", "share", "expected"),
    [
        ("1.42.0", "0.1", ["flower-federations-moved"]),
        ("1.25.0", "0.1", []),
        ("1.25.0", "0", ["flower-clients-unbounded"]),
    ],
)
def test_federations_are_judged_by_the_version(
    tmp_path: Path, version: str, share: str, expected: list[str]
) -> None:
    assert rules(job(tmp_path, APP + FEDERATIONS.format(share=share), version)) == expected
