"""Exact counts of published networks, as transformers builds them on the meta device."""

from datetime import date

import pytest

from escala.catalog import networks
from escala.catalog.families import FAMILIES, network_from_config
from escala.model.parameters import active_parameters, network_parameters

EXACT = {
    "llama-3-8b": 8_030_261_248,
    "llama-3.1-405b": 405_853_388_800,
    "mixtral-8x7b": 46_702_792_704,
    "qwen3-0.6b": 596_049_920,
    "qwen3-30b-a3b": 30_532_122_624,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "gpt2": 124_439_808,
    "t5-small": 60_506_624,
    "vit-b/16": 86_567_656,
    "gemma-3-1b": 999_885_952,
    "gemma-3-4b": 4_300_079_472,
    "deepseek-v3": 671_026_404_352,
    "qwen2.5-vl-7b": 8_292_166_656,
    "resnet-50": 25_557_032,
    "convnext-tiny": 28_589_128,
    "bert-base": 109_514_298,
}


@pytest.mark.parametrize("name", EXACT)
def test_count_is_exact(name: str):
    assert network_parameters(networks.network(name)).total == EXACT[name]


def test_bare_bert_with_pooler():
    config = {**networks.config("bert-base"), "architectures": ["BertModel"]}

    assert network_parameters(network_from_config(config, "bert", "test")).total == 109_482_240


def test_router_biases_of_deepseek_are_buffers():
    # the published file holds 58 layers * 256 router biases more
    assert EXACT["deepseek-v3"] + 58 * 256 == 671_026_419_200


@pytest.mark.parametrize("name", networks.names())
def test_published_count_is_met(name: str):
    # the loosest published roundings: OPT-350M 5.4 %, T5-large 4.2 %, GPT-2 XL 3.8 %, Falcon-40B 3.3 %
    published = networks.describe(name).parameters

    assert network_parameters(networks.network(name)).total == pytest.approx(published, rel=0.055)


@pytest.mark.parametrize(
    ("name", "billions"),
    [("qwen3-30b-a3b", 3.3), ("qwen3-235b-a22b", 22), ("deepseek-v3", 37), ("deepseek-v2", 21)],
)
def test_active_count_is_the_published_one(name: str, billions: float):
    assert active_parameters(networks.network(name)) / 1e9 == pytest.approx(billions, rel=0.02)


def test_dense_network_is_all_active():
    network = networks.network("llama-3.1-8b")

    assert active_parameters(network) == network_parameters(network).total


def test_every_family_has_a_network_in_the_catalogue():
    # gemma4_text and llama4_text are the decoders of gemma4 and llama4 alone
    alone = {"gemma4_text", "llama4_text"}

    assert {networks.network(name).family for name in networks.names()} == set(FAMILIES) - alone


@pytest.mark.parametrize("name", networks.names())
def test_entry_has_source_and_date(name: str):
    entry = networks.describe(name)

    assert entry.source
    assert entry.checked > date(2026, 1, 1)
