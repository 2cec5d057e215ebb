"""Networks from descriptions: every key at work, and every wrong one refused in one line."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escala.catalog import networks
from escala.errors import InvalidInput
from escala.formats.network_keys import LayerKeys
from escala.formats.network_toml import network_from_description, read_description
from escala.model.network import Attention, Experts, FeedForward, StackRole
from escala.model.parameters import network_parameters

LLAMA = {"hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256}
SMALL: dict[str, Any] = {"hidden": 64, "layers": 6, "heads": 4, "vocab": 100}


def network(blocks: list[dict[str, Any]] | None = None, **keys: Any) -> Any:
    return network_from_description({"network": {**SMALL, **keys}, "blocks": blocks or []}, "mine.toml")


def refusal(blocks: list[dict[str, Any]] | None = None, **keys: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        network(blocks, **keys)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def kinds(blocks: list[dict[str, Any]]) -> list[str]:
    stack = network(blocks).main
    return [stack.blocks[kind].name for kind in stack.pattern]


def test_described_llama_is_the_catalogued_one():
    described = network_from_description({"network": LLAMA}, "mine.toml")

    assert described.stacks == networks.network("llama-3-8b").stacks


def test_described_gpt2_counts_as_the_catalogued_one():
    keys = {"hidden": 768, "layers": 12, "heads": 12, "vocab": 50257, "positions": 1024}
    style = {"gated": False, "bias": True, "norm": "layer", "tied": True}

    described = network_from_description({"network": {**keys, **style}}, "mine.toml")

    assert network_parameters(described).total == 124_439_808


def test_described_deepseek_counts_as_the_catalogued_one():
    keys = {"hidden": 7168, "layers": 61, "heads": 128, "vocab": 129280, "ffn": 18432}
    latent = {"head_dim": 192, "value_dim": 128, "query_rank": 1536, "kv_rank": 512, "rope_dim": 64}
    experts = {"experts": 256, "top_k": 8, "expert_ffn": 2048, "shared_ffn": 2048, "load_deviation": 0.017}
    dense = {"layers": [0, 1, 2], "experts": 0}

    described = network_from_description(
        {"network": {**keys, **latent, **experts}, "blocks": [dense]}, "mine.toml"
    )

    assert described.stacks == networks.network("deepseek-v3").stacks


def test_file_is_read(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text("[network]\nhidden = 64\nlayers = 2\nheads = 4\nvocab = 100\ncontext = 512\nbits = 8\n")

    read = read_description(path)

    assert (read.name, read.layers, read.max_tokens, read.stored_bits) == ("mine", 2, 512, 8.0)


def test_yaml_holds_the_same_keys(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text("network: {hidden: 64, layers: 2, heads: 4, vocab: 100}\n")

    assert read_description(path).layers == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.toml", "[network"), ("a.yaml", "network: ["), ("a.yaml", "network: {1: 2}"), ("a.yaml", "- 1")],
)
def test_broken_file_is_refused(tmp_path: Path, name: str, text: str):
    path = tmp_path / name
    path.write_text(text)

    with pytest.raises(InvalidInput, match=name):
        read_description(path)


def test_every_nth_layer_is_the_last_of_each_n():
    assert kinds([{"every": 3, "experts": 8}]) == ["dense", "dense", "experts"] * 2


def test_listed_layers_count_from_zero():
    assert kinds([{"layers": [0, 5], "experts": 8}]) == ["experts", *["dense"] * 4, "experts"]


def test_later_blocks_win():
    later = [{"every": 1, "experts": 8}, {"layers": [0], "experts": 0}]

    assert kinds(later) == ["dense", *["experts"] * 5]


def test_window_and_biases_reach_the_parts():
    block = network(window=128, qkv_bias=True, qk_norm=True, gated=False).main.blocks[0]
    attention, feed_forward = block.parts

    assert isinstance(attention, Attention)
    assert isinstance(feed_forward, FeedForward)
    assert (attention.window_tokens, attention.has_qkv_bias, attention.has_output_bias) == (128, True, False)
    assert attention.other_parameters == 2 * 16
    assert (feed_forward.width, feed_forward.is_gated) == (256, False)


def test_experts_say_how_they_are_loaded():
    given = network(experts=4, top_k=2, padded=False, load_deviation=0.1, loads=[1, 2, 3, 4]).main.blocks[0]

    part = given.parts[1]
    assert isinstance(part, Experts)
    assert (part.is_padded, part.load_deviation, part.loads) == (False, 0.1, (1.0, 2.0, 3.0, 4.0))


def test_loads_are_one_number_for_each_expert():
    assert "loads has 3 numbers for experts = 4" in refusal(experts=4, loads=[1, 2, 3])
    assert "not all 0" in refusal(experts=2, loads=[0, 0])


def test_a_pyramid_with_residual_experts_is_described_by_layers():
    """PR-MoE of DeepSpeed-MoE: fewer experts in front, and a fixed expert beside the routed one."""
    residual = {"top_k": 1, "shared_ffn": 32}
    some = [{"layers": [1, 3], "experts": 32, **residual}, {"layers": [5], "experts": 64, **residual}]

    found = network(some)
    assert [block.parts[1].experts for block in found.main.blocks if block.name == "experts"] == [32, 64]
    assert [found.main.blocks[kind].name for kind in found.main.pattern] == ["dense", "experts"] * 3


def test_experts_take_their_keys():
    block = network(experts=8, top_k=2, expert_ffn=32, shared_ffn=48, capacity_factor=1.25).main.blocks[0]

    assert block.parts[1] == Experts(experts=8, top_k=2, width=32, shared_width=48, capacity_factor=1.25)


def test_encoder_is_not_causal():
    stack = network(role="encoder").main

    assert stack.role is StackRole.ENCODER
    assert not stack.blocks[0].parts[0].is_causal


def test_unknown_key_suggests_a_near_one():
    assert "unknown key 'head': did you mean heads" in refusal(head=4)


def test_unknown_key_of_a_block_is_placed():
    assert "it stands in [[blocks]] number 1 of mine.toml" in refusal([{"every": 2, "exprts": 8}])


def test_unknown_table_is_refused():
    with pytest.raises(InvalidInput, match="unknown key 'netwrk': did you mean network"):
        network_from_description({"netwrk": SMALL}, "mine.toml")


def test_missing_table_is_refused():
    with pytest.raises(InvalidInput, match=r"\[network\] is missing or no table"):
        network_from_description({}, "mine.toml")


def test_another_schema_is_refused():
    with pytest.raises(
        InvalidInput, match="schema is 'escala/network@2'; this version reads 'escala/network@1'"
    ):
        network_from_description({"schema": "escala/network@2", "network": SMALL}, "mine.toml")


@pytest.mark.parametrize("key", SMALL)
def test_required_key(key: str):
    keys = {other: value for other, value in SMALL.items() if other != key}

    with pytest.raises(InvalidInput, match=f"missing required field `{key}`"):
        network_from_description({"network": keys}, "mine.toml")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden", 0),
        ("hidden", 64.0),
        ("hidden", True),
        ("hidden", "64"),
        ("hidden", 2**21),
        ("layers", 10**6),
        ("vocab", 10**9),
        ("experts", 10**6),
        ("tied", 1),
        ("norm", "batch"),
        ("role", "both"),
        ("capacity_factor", float("nan")),
        ("capacity_factor", float("inf")),
        ("bits", 0),
        ("name", 3),
    ],
)
def test_value_out_of_bounds_is_named(key: str, value: object):
    assert refusal(**{key: value}).startswith(f"mine.toml: in [network], {key}: ")


def test_sizes_have_to_fit_each_other():
    assert "heads = 5 does not divide hidden = 64; write head_dim" in refusal(heads=5)
    assert "kv_heads = 3 does not divide heads = 4" in refusal(kv_heads=3)
    assert "top_k = 9 is more than experts = 8" in refusal(experts=8, top_k=9)
    assert "rope_dim = 16 is part of head_dim = 16" in refusal(kv_rank=8, rope_dim=16)


def test_block_needs_one_place():
    assert "needs either layers = [..] or every = n" in refusal([{"experts": 8}])
    assert "needs either layers = [..] or every = n" in refusal([{"experts": 8, "every": 2, "layers": [1]}])
    assert "names layer 6; there are layers 0 to 5" in refusal([{"layers": [6]}])


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-1, 64), st.floats(), st.text(max_size=5)
)
LAYER_KEYS = st.sampled_from([field.name for field in fields(LayerKeys)])


@given(
    st.dictionaries(st.one_of(LAYER_KEYS, st.sampled_from([*SMALL])), VALUES, max_size=3),
    st.dictionaries(st.one_of(LAYER_KEYS, st.sampled_from(["layers", "every"])), VALUES, max_size=3),
)
def test_any_values_are_refused_or_counted(keys: dict[str, Any], block: dict[str, Any]):
    try:
        found = network([{"every": 2, **block}], **keys)
    except InvalidInput as error:
        message = str(error)
    else:
        message = ""
        assert network_parameters(found).total > 0

    assert "\n" not in message


def test_blocks_are_a_list_of_tables():
    with pytest.raises(InvalidInput, match="blocks is no list of tables"):
        network_from_description({"network": SMALL, "blocks": {"every": 2}}, "mine.toml")
    assert "number 1 is missing or no table" in refusal([3])  # type: ignore[list-item]


def described(network: dict[str, Any], *blocks: dict[str, Any]) -> Any:
    return network_from_description({"network": network, "blocks": list(blocks)}, "mine.toml")


def test_hybrid_of_delta_rules_and_gated_attention_is_the_published_one():
    delta = {"scan": "delta", "scan_heads": 32, "scan_key_heads": 16}
    keys = {"hidden": 2048, "layers": 48, "heads": 16, "kv_heads": 2, "head_dim": 256, "vocab": 151936}
    experts = {"experts": 512, "top_k": 10, "expert_ffn": 512, "shared_ffn": 512}

    found = described(
        {**keys, **experts, **delta, "gate": True, "qk_norm": True}, {"every": 4, "scan": "none"}
    )

    # 48 gates of the shared expert, which a description does not know
    published = network_parameters(networks.network("qwen3-next-80b-a3b")).total
    assert network_parameters(found).total + 48 * 2048 == published


def test_layers_of_one_part_are_those_of_nemotron_h():
    published = networks.network("nemotron-h-8b")
    names = [published.main.blocks[kind].name for kind in published.main.pattern]
    mixer = {"parts": ["mixer"], "scan": "state-space", "scan_heads": 128, "scan_key_heads": 8}
    keys = {"hidden": 4096, "layers": 52, "heads": 32, "kv_heads": 8, "ffn": 21504, "vocab": 131072}

    found = described(
        {**keys, **mixer, "scan_dim": 64, "chunk": 128, "gated": False, "norms": 1},
        {"layers": [i for i, name in enumerate(names) if name == "attention"], "parts": ["attention"]},
        {"layers": [i for i, name in enumerate(names) if name == "feed-forward"], "parts": ["feed-forward"]},
    )

    assert [each.parts for each in found.main.blocks] == [each.parts for each in published.main.blocks]
    assert found.main.pattern == published.main.pattern
    assert network_parameters(found).total == network_parameters(published).total


def test_selected_keys_are_those_of_deepseek_v32():
    latent = {"head_dim": 192, "value_dim": 128, "query_rank": 1536, "kv_rank": 512, "rope_dim": 64}
    keys = {"hidden": 7168, "layers": 61, "heads": 128, "vocab": 129280, "ffn": 18432}
    experts = {"experts": 256, "top_k": 8, "expert_ffn": 2048, "shared_ffn": 2048}

    found = described(
        {**keys, **latent, **experts, "select": 2048, "index_heads": 64}, {"layers": [0, 1, 2], "experts": 0}
    )

    published = networks.network("deepseek-v3.2")
    assert network_parameters(found).total == network_parameters(published).total
    assert found.main.blocks[0].parts == published.main.blocks[0].parts


def test_mixers_that_cannot_be_are_refused():
    assert "scan_key_heads = 3 does not divide scan_heads = 4" in refusal(scan="delta", scan_key_heads=3)
    assert "a layer has a mixer but no scan" in refusal(parts=["mixer"])
    assert "missing required field `heads`" in refusal(heads=0)
