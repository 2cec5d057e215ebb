"""Names of the catalogue: how they are found, and what a wrong one is told."""

import pytest

from escala.catalog import networks
from escala.errors import InvalidInput


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("Llama 3.1 8B", "llama-3.1-8b"),
        ("llama-3-1-8b", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("QWEN3_30B_A3B", "qwen3-30b-a3b"),
        ("ViT-B/16", "vit-b/16"),
        ("opt-1.3b", "opt-1.3b"),
        ("opt-13b", "opt-13b"),
        ("gpt3-13b", "gpt3-13b"),
    ],
)
def test_name_is_found_without_case_and_punctuation(given: str, name: str):
    assert networks.resolve(given) == name
    assert networks.network(given).name == name


def test_unknown_name_lists_near_ones():
    with pytest.raises(InvalidInput, match=r"unknown network 'lama-3.1-8b': did you mean llama-3.1-8b"):
        networks.network("lama-3.1-8b")


@pytest.mark.parametrize("given", ["", "-", "...", "no such network"])
def test_name_without_any_likeness_is_refused(given: str):
    with pytest.raises(InvalidInput, match="unknown network"):
        networks.network(given)


def test_names_are_listed_without_reading_shapes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(networks, "config", lambda name: pytest.fail("a shape was read"))

    assert "llama-3.1-8b" in networks.names()
    assert networks.describe("llama-3.1-8b").hub == "meta-llama/Llama-3.1-8B"


def test_no_two_entries_share_a_spelling():
    assert [networks.resolve(name) for name in networks.names()] == list(networks.names())


def test_source_of_a_network_is_public_and_dated():
    assert networks.network("llama-1-7b").source == (
        "Touvron et al. 2023 (LLaMA, arXiv 2302.13971), table 2; feed-forward widths from the released"
        " params.json; recalled from the source, not re-read, 2026-11-30"
    )
