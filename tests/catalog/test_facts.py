import subprocess
import sys

import pytest

from escala.catalog import kinds, lookup, names
from escala.catalog.facts import entries
from escala.errors import InvalidInput

NUMBERS = ("accelerators", "links", "clusters", "devices", "access", "grid", "pue")


@pytest.mark.parametrize("kind", kinds())
def test_every_name_of_every_kind_has_facts(kind: str):
    assert all(lookup(f"{kind}/{name}") for name in names(kind))


@pytest.mark.parametrize("kind", NUMBERS)
def test_every_entry_has_facts_and_every_number_a_source(kind: str):
    facts = [fact for name in names(kind) for fact in lookup(f"{kind}/{name}")]
    unsourced = [fact for fact in facts if isinstance(fact.value, float) and not (fact.source and fact.date)]

    assert facts
    assert unsourced == []


@pytest.mark.parametrize("kind", ["accelerators", "links", "devices", "access", "grid", "pue"])
def test_every_number_says_how_far_to_trust_it(kind: str):
    facts = [fact for name in names(kind) for fact in lookup(f"{kind}/{name}")]

    assert all(fact.trust for fact in facts if isinstance(fact.value, float))


def test_a_fact_shows_value_text_source_date_and_condition():
    fact = next(fact for fact in lookup("H100") if fact.name == "bf16")

    assert (fact.value, fact.text, fact.date, fact.condition) == (989e12, "989 TFLOP/s", "2026-08", "dense")
    assert "Machine Learning Engineering" in fact.source


def test_disagreeing_values_are_shown():
    fact = next(fact for fact in lookup("h100-sxm") if fact.name == "gemm_efficiency")

    assert [other.text for other in fact.also] == ["0.75", "0.803"]


def test_recalled_and_assumed_numbers_say_so():
    trust = {fact.name: fact.trust for fact in lookup("rtx-5090")}

    assert trust["fp16"] == "recalled from the source, not re-read"
    assert trust["memory"] == "assumption"


@pytest.mark.parametrize("name", ["h100", "nvlink4", "meta-24k-roce", "ES", "Azure"])
def test_names_of_all_kinds_are_found(name: str):
    assert lookup(name)


def test_an_unknown_name_suggests_near_ones():
    with pytest.raises(InvalidInput, match="did you mean rtx-4090"):
        lookup("rtx-4O90")


def test_an_unknown_kind_is_refused():
    with pytest.raises(InvalidInput, match="unknown kind 'gpus'"):
        names("gpus")


def test_kinds():
    assert kinds() == (
        "accelerators",
        "links",
        "clusters",
        "networks",
        "engines",
        "assumptions",
        "devices",
        "access",
        "grid",
        "pue",
    )


def test_a_network_shows_its_shape():
    shape = {fact.name: fact.value for fact in lookup("networks/mixtral-8x7b")}

    assert [shape[name] for name in ("layers", "hidden", "heads", "kv_heads", "head_dim")] == [
        32,
        4096,
        32,
        8,
        128,
    ]
    assert [shape[name] for name in ("experts", "top_k", "expert_width", "vocabulary")] == [
        8,
        2,
        14336,
        32000,
    ]
    assert shape["context"] == 32768


def test_parameters_of_a_network_add_up_over_the_classes():
    shape = {fact.name: fact.value for fact in lookup("networks/mixtral-8x7b")}
    classes = [value for name, value in shape.items() if name.startswith("parameters.")]

    # of 8 experts a token uses 2: three quarters of the expert parameters are idle
    assert sum(classes) == shape["parameters"] == 46_702_792_704
    assert shape["active_parameters"] == shape["parameters"] - shape["parameters.experts"] * 6 / 8


def test_layers_that_differ_are_counted():
    shape = {fact.name: fact for fact in lookup("networks/gpt-oss-20b")}

    assert shape["attention"].text == "sliding over 128 tokens in 12 layers, full in 12 layers"


@pytest.mark.parametrize("name", names("networks"))
def test_every_fact_of_a_network_says_that_it_was_recalled_or_counted(name: str):
    trusts = {fact.trust for fact in lookup(f"networks/{name}")}

    assert trusts <= {
        "recalled from the public config, not re-read",
        "recalled from the source, not re-read",
        "counted from the shape",
    }


def test_a_name_of_two_kinds_means_two_entries():
    assert entries("deepseek-v3") == ("clusters/deepseek-v3", "networks/deepseek-v3")
    assert entries("no such name") == ()


def test_importing_the_catalog_reads_no_file():
    script = (
        "import sys, escala.catalog.loader as loader; loader.read_toml = lambda file: sys.exit(3);"
        "import escala.catalog"
    )

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
