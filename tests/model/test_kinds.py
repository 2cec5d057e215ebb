"""Kinds of layers in words and numbers, and what a sequence leaves in them."""

from dataclasses import replace

import pytest

from escala.catalog import networks
from escala.catalog.shapes import shape_rows
from escala.model.estimate import estimate
from escala.model.explain import explain
from escala.model.kinds import layer_kinds_of, left_bytes, part_words
from escala.model.network import Attention, AttentionKind, FeedForward
from escala.model.parameters import network_parameters
from escala.model.plan import Plan, Plans

LLAMA = Attention(heads=32, kv_heads=8, head_dim=128, value_head_dim=128)
LATENT = replace(LLAMA, kv_heads=32, head_dim=192, kv_rank=512, rope_head_dim=64)


@pytest.mark.parametrize(
    ("part", "token_bytes", "fixed_bytes"),
    [
        (LLAMA, 2 * 8 * 256, 0),
        (LATENT, 2 * (512 + 64), 0),
        # an indexer leaves its key beside the latent ones
        (replace(LATENT, kind=AttentionKind.SPARSE, index_heads=64, index_dim=128), 2 * (512 + 64 + 128), 0),
        (replace(LLAMA, kind=AttentionKind.SLIDING, window_tokens=1024), 0, 1024 * 2 * 8 * 256),
        (replace(LLAMA, is_causal=False), 0, 0),
        (FeedForward(width=64), 0, 0),
    ],
)
def test_what_a_sequence_leaves_in_a_part(part, token_bytes, fixed_bytes):
    assert left_bytes(part) == (token_bytes, fixed_bytes)


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("mamba-2.8b", {"selective scan": 64}),
        ("mamba2-2.7b", {"state space": 64}),
        ("nemotron-h-8b", {"state space": 24, "feed-forward": 24, "attention": 4}),
        ("nemotron-3-nano-30b-a3b", {"state space": 23, "experts": 23, "attention": 6}),
        ("falcon-h1-0.5b", {"attention beside state space": 36}),
        ("qwen3-next-80b-a3b", {"delta rule, experts": 36, "attention, experts": 12}),
        ("qwen3.5-9b-text", {"delta rule, dense": 24, "attention, dense": 8}),
        ("kimi-linear-48b-a3b", {"delta rule, dense": 1, "delta rule, experts": 19, "attention, experts": 7}),
        ("ling-3.0-flash", {"delta rule, dense": 2, "delta rule, experts": 33, "attention, experts": 7}),
        ("minimax-text-01", {"lightning attention, experts": 70, "attention, experts": 10}),
        ("deepseek-v3.2", {"selected keys, dense": 3, "selected keys, experts": 58}),
        ("glm-5", {"selected keys, dense": 3, "selected keys, experts": 75}),
        (
            "deepseek-v4-flash",
            {
                "window, hashed experts": 2,
                "selected pooled keys, hashed experts": 1,
                "pooled keys, experts": 20,
                "selected pooled keys, experts": 20,
            },
        ),
        (
            "ling-2.6-flash",
            {
                "lightning attention, dense": 1,
                "lightning attention, experts": 27,
                "attention, experts": 4,
            },
        ),
        ("ling-mini-2.0", {"dense": 1, "experts": 19}),
    ],
)
def test_kinds_add_up_to_the_network(ideal, name, kinds):
    network = networks.network(name)
    problem = ideal(network, sequence=4096)

    found = layer_kinds_of(problem, Plan())

    assert {each.name: each.layers for each in found} == kinds
    assert sum(each.flop_share for each in found) == pytest.approx(1.0)
    layers = sum(each.layers * each.parameters for each in found)
    ends = network.main
    assert ends.embedding is not None
    outside = (2 - ends.head.is_tied) * ends.embedding.vocab * ends.hidden + ends.hidden
    assert layers + outside + ends.other_parameters == network_parameters(network).total
    assert all(part_words(part) for block in ends.blocks for part in block.parts)


@pytest.mark.parametrize(
    ("name", "is_dense"),
    [
        ("llama-3.1-8b", True),
        ("bert-large", True),
        ("mamba2-2.7b", False),
        ("falcon-h1-0.5b", False),
        ("minimax-m2", False),
    ],
)
def test_only_the_layer_of_a_dense_transformer_is_plain(ideal, name, is_dense):
    assert [each.is_plain for each in layer_kinds_of(ideal(networks.network(name)), Plan())] == [is_dense]


def test_scans_are_named_among_the_terms(ideal):
    titles = {}
    for name in ("mamba-130m", "nemotron-h-8b", "llama-3-8b"):
        problem = ideal(networks.network(name))
        story = explain(problem, estimate(problem, Plans.of(Plan())))
        titles[name] = next(term.title for term in story.terms if term.name == "attention_s")

    assert list(titles.values()) == ["scans", "attention and scans", "attention"]


def test_catalogue_shows_the_mixer_and_how_many_layers_have_it():
    rows = {row.name: row for row in shape_rows(networks.network("nemotron-h-8b"))}

    assert rows["mixer"].text.startswith("state space (Mamba-2): 128 heads with a state of 128 x 64")
    assert rows["mixer"].condition == "in 24 layers"
