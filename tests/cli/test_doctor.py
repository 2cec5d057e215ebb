import platform

import msgspec

from escala import __version__
from escala.report.doctor import DoctorView


def test_json_has_versions_machine_and_extras(run):
    view = msgspec.json.decode(run("doctor", "--json").out, type=DoctorView)

    assert view.escala == __version__
    assert platform.python_version() in view.python
    assert {each.name for each in view.extras} == {"data", "hf", "torch", "watch"}
    assert view.packages["numpy"] is not None


def test_missing_extras_come_with_the_command_that_installs_them(run, monkeypatch):
    monkeypatch.setattr("escala.report.doctor._version", lambda package: None)

    assert "pip install 'escala[hf]'" in run("doctor").out


def test_secrets_are_not_shown(run, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hidden-value")

    assert "hidden-value" not in run("doctor").out


def test_a_machine_without_nvidia_tools_says_so(run, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)

    assert "none found" in run("doctor").out


def test_no_line_is_longer_than_80_columns(run):
    assert max(len(line) for line in run("doctor").out.splitlines() if "/" not in line) <= 80
