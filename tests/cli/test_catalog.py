import json

import msgspec
import pytest

from escala.catalog.facts import kinds
from escala.report.catalog_view import CatalogView


def test_without_a_name_the_kinds_are_listed(run):
    view = msgspec.json.decode(run("catalog", "--json").out, type=CatalogView)

    assert tuple(each.kind for each in view.kinds) == kinds()
    assert all(each.entries > 0 for each in view.kinds)


@pytest.mark.parametrize("kind", kinds())
def test_a_kind_lists_its_entries_within_80_columns(run, kind: str):
    result = run("catalog", kind)

    assert result.code == 0
    assert result.longest <= 80


def test_an_entry_shows_value_source_and_disagreement(run):
    out = run("catalog", "H100 SXM").out

    assert "989 TFLOP/s" in out
    assert "also " in out
    assert "[1]" in out


def test_facts_in_json_carry_source_and_unit(run):
    facts = json.loads(run("catalog", "h100-sxm", "--json").out)["facts"]

    memory = next(fact for fact in facts if fact["name"] == "memory_rate")
    assert (memory["value"], memory["unit"]) == (3.35e12, "bytes_per_s")
    assert memory["source"] != ""


@pytest.mark.parametrize(
    "name", ["h100-sxm", "nvlink4", "eos", "llama-3.1-8b", "pytorch", "ES", "networks/deepseek-v3", "t5-3b"]
)
def test_entries_fit_80_columns(run, name: str):
    result = run("catalog", name)

    assert result.code == 0
    assert result.longest <= 80


@pytest.mark.parametrize(
    ("name", "said"), [("h100-smx", "did you mean h100-sxm"), ("acelerators", "did you mean accelerators")]
)
def test_an_unknown_name_is_refused_with_near_ones(run, name: str, said: str):
    result = run("catalog", name)

    assert result.code == 2
    assert said in result.err


def test_a_name_of_two_kinds_says_so(run):
    assert "the name also means networks/deepseek-v3" in run("catalog", "deepseek-v3").out


def test_a_network_is_recalled_and_its_parameters_are_counted(run):
    out = " ".join(run("catalog", "llama-3.1-8b").out.split())

    assert "parameters 8,030,261,248; counted from this shape" in out
    assert "recalled from the public config, not re-read" in out
