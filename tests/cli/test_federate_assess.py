"""`escala federate assess` as a person runs it."""

import json
from pathlib import Path

import msgspec
import pytest

from cli.conftest import Run
from escala.federated.assess import Assessment
from escala.federated.criteria import Criterion, Gauge, Side
from escala.federated.reading import example_names
from escala.report.assess_text import criterion_rows


def test_an_example_is_printed_changed_and_assessed(run: Run, tmp_path: Path):
    printed = run("federate", "assess", "--example", "two-data-centres")
    (tmp_path / "mine.toml").write_text(printed.out.replace('movement = "yes"', 'movement = "no"'))

    shown = run("federate", "assess", "mine.toml", "--json", "--html", "mine.html")

    assert (printed.code, shown.code) == (0, 0), shown.err
    document = msgspec.json.decode(shown.out, type=Assessment)
    assert document.schema == "escala/federate-assess@1"
    assert document.verdict == "federate"
    assert json.loads(shown.out)["options"][1]["obstacles"] == ["data may not leave the clients"]
    page = (tmp_path / "mine.html").read_text()
    assert "Two data centres: fine-tuning a language model: federate" in page
    assert shown.err == "wrote mine.html\n"


def test_the_verdict_comes_first_and_all_fits_a_terminal(run: Run):
    shown = run("federate", "assess", "factory-sensors")
    lines = shown.out.splitlines()

    assert shown.code == 0, shown.err
    assert shown.longest <= 80
    assert lines[4] == "  centralise"
    order = [shown.out.index(each) for each in ("centralise", "flips", "Options", "speaks for", "against")]
    assert order == sorted(order)


def test_without_a_scenario_the_examples_are_listed(run: Run):
    shown = run("federate", "assess")

    assert shown.code == 0, shown.err
    assert [line.split()[0] for line in shown.out.splitlines()] == list(example_names())


def test_two_tests_of_one_criterion_say_together_whether_it_is_met():
    low, high = (Gauge(what=name, value=n, threshold=0.5, origin="half") for n, name in enumerate("ab"))
    both = Criterion(name="unstable", side=Side.AGAINST, holds=True, gauges=(low, high))

    assert list(criterion_rows(both)) == [
        ("yes", "unstable", "0 (above 0.5)", "not met: a; half"),
        ("", "or", "1 (above 0.5)", "met: b; half"),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--json",),
            "no scenario is named, so there is no document; give a file, or one of the examples banks-across",
        ),
        (("nowhere.toml",), "nowhere.toml does not exist"),
        (("--example", "hospital"), "unknown example 'hospital': did you mean hospitals?"),
        (("hospitals", "--html", "no/page.html"), "no/page.html cannot be written"),
        (("hospitals", "--jsn"), "unknown option '--jsn': did you mean --json?"),
    ],
)
def test_wrong_input_is_one_line(run: Run, arguments: tuple[str, ...], said: str):
    shown = run("federate", "assess", *arguments)

    assert shown.code == 2
    assert shown.err.startswith(f"error: {said}")
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1


def test_an_unknown_verb_of_the_group_is_refused_with_near_ones(run: Run):
    shown = run("federate", "asess")

    assert (shown.code, shown.out) == (2, "")
    assert "unknown verb 'federate asess': did you mean assess?" in shown.err


def test_the_catalog_finds_devices_and_access_paths(run: Run):
    device = run("catalog", "raspberry-pi-4")
    path = run("catalog", "access/4g")

    assert "6 GFLOP/s" in device.out
    assert "504 J/MB" in path.out
    assert run("catalog", "devices").longest <= 80
