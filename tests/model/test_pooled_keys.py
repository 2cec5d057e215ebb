"""Pooled keys and several residual streams by hand: parameters, products, keys seen, kept bytes, caches."""

from dataclasses import replace

import numpy as np
import pytest

from escala.catalog import networks
from escala.model.activations import attention_bytes, kept
from escala.model.kinds import part_words
from escala.model.matmuls import Shape, layer_work, mean_keys, part_matmuls
from escala.model.network import Attention, AttentionKind, Block, FeedForward, Stack, StackRole
from escala.model.parameters import active_parameters, block_parameters, network_parameters, part_parameters
from escala.model.pipeline import sent_bytes
from escala.model.plan import Plan, Plans
from escala.model.rejects import Reject, rejects
from escala.model.selection import mean_pooled_keys, pooled_keys, seen_pooled_keys
from escala.model.serving import Request, cache_bytes
from escala.model.streams import collapse_parameters, stream_bytes_kept, stream_passes

ONE = Shape.of(Plans.of(Plan()), 1024)
# 8 heads of 64 with one key that is the value, queries of rank 96, outputs in 4 groups of rank 48
WINDOW = Attention(
    kind=AttentionKind.SLIDING,
    heads=8,
    kv_heads=1,
    head_dim=64,
    value_head_dim=64,
    window_tokens=128,
    key_value_maps=1,
    is_shared=True,
    query_rank=96,
    output_groups=4,
    output_rank=48,
)
POOLED = replace(WINDOW, kind=AttentionKind.POOLED, pooled_tokens=128)
SELECTED = replace(
    WINDOW, kind=AttentionKind.SPARSE, pooled_tokens=4, top_tokens=64, index_heads=4, index_dim=32
)
FEED = FeedForward(width=64)
STREAMS = Block(name="streams", parts=(WINDOW, FEED), streams=4, mixing_rounds=20)


def products(part: Attention) -> float:
    return sum(float(each.flop[0]) for each in part_matmuls(part, 256, ONE)) / 1024


def test_queries_and_outputs_of_a_low_rank():
    # 256 * 96 with its norm, 96 * 512, a key of 256 * 64, outputs 512 * 48 and 4 * 48 * 256
    split, whole = 96 * 512 + 256 * 64 + 512 * 48 + 192 * 256, 96 * 257

    found = part_parameters(WINDOW, 256)

    assert (found.column_row, found.replicated) == (split, whole)
    assert products(WINDOW) == 2 * (split + 96 * 256)


def test_a_pool_has_two_maps_a_bias_for_each_position_and_a_norm():
    more = part_parameters(POOLED, 256).total - part_parameters(WINDOW, 256).total

    assert more == 2 * 256 * 64 + 128 * 64 + 64
    assert products(POOLED) - products(WINDOW) == 2 * 2 * 256 * 64


def test_selected_pools_mix_two_series_and_have_a_small_pool_for_the_index():
    # values and gates of two series for keys of 64 and for an index of 32, whose queries come from the rank
    pools = sum(4 * 256 * dim + 4 * 2 * dim + dim for dim in (64, 32))
    index = 96 * 4 * 32 + 256 * 4

    more = part_parameters(SELECTED, 256).total - part_parameters(WINDOW, 256).total

    assert more == pools + index
    assert products(SELECTED) - products(WINDOW) == 2 * (4 * 256 * 96 + index)


@pytest.mark.parametrize("length", [64, 100, 256, 1000, 1024])
@pytest.mark.parametrize("part", [POOLED, SELECTED], ids=["all", "selected"])
def test_a_query_sees_the_pools_that_end_before_it(part: Attention, length: int):
    most = part.top_tokens or length
    seen = [min(token // part.pooled_tokens, most) for token in range(1, length + 1)]
    window = [min(token, 128) for token in range(1, length + 1)]

    assert mean_pooled_keys(part, length) == pytest.approx(np.mean(seen), rel=1e-12)
    assert mean_keys(part, length) == pytest.approx(np.mean(seen) + np.mean(window), rel=1e-12)
    assert (pooled_keys(part, length), seen_pooled_keys(part, length)) == (
        length // part.pooled_tokens,
        seen[-1],
    )


def test_the_index_scores_every_pool_and_attention_the_selected_ones():
    core, index = layer_work(Block(name="layer", parts=(SELECTED,)), _stack(STREAMS), ONE).cores

    # 128 of the window and 64 of 256 pools; keys twice 64 wide
    assert (core.all_keys, core.width) == (128 + 64, 128)
    assert (index.all_keys, index.width, index.is_forward_only) == (256, 32, True)


def test_pooling_without_tokens_is_a_window():
    assert mean_pooled_keys(WINDOW, 1024) == seen_pooled_keys(WINDOW, 1024) == 0


def test_connections_of_four_streams():
    plain = replace(STREAMS, streams=1)
    # for each of two parts: 24 weights of 4 * 256 numbers, 24 biases, 3 scales; at the end 4 of 1,024 and 5
    assert block_parameters(STREAMS, 256).total - block_parameters(plain, 256).total == 2 * (24 * 1025 + 3)
    assert collapse_parameters(4, 256) == 4 * 1024 + 5
    assert collapse_parameters(1, 256) == stream_passes(plain) == stream_bytes_kept(plain, 256, True) == 0

    mixed, single = (layer_work(each, _stack(each), ONE).matmuls for each in (STREAMS, plain))
    more = sum(float(m.flop[0]) for m in mixed) - sum(float(m.flop[0]) for m in single)
    # 2 * 1,024 * 24 for the weights, 2 * 4 * 4 * 256 to mix, twice a layer
    assert more / 1024 == 2 * (2 * 1024 * 24 + 2 * 16 * 256)


def test_connections_keep_their_streams_and_eager_code_fp32_of_them():
    # 2 * 4 * 256 of streams and 2 * 256 of the output; in fp32 twice 4 * 4 * 256, and 39 half rounds of 20
    fused = 2 * (2 * 4 * 256 + 2 * 256)

    assert stream_bytes_kept(STREAMS, 256, False) == fused
    assert stream_bytes_kept(STREAMS, 256, True) == fused + 2 * (2 * 4 * 4 * 256 + 39 * 4 * 20)


def test_four_streams_are_sent_and_kept_at_checkpoints(ideal):
    network = networks.network("deepseek-v4-flash")
    one = replace(network.main, blocks=tuple(replace(each, streams=1) for each in network.main.blocks))
    plans = Plans.of(Plan(pp=2))
    problem, plain = ideal(network, 2), ideal(replace(network, stacks=(one,)), 2)

    assert sent_bytes(problem, plans)[0] == 4 * sent_bytes(plain, plans)[0] == 4 * 1024 * 4096 * 2
    four, single = (
        kept(each, plans, each.workload.network.main, each.workload.network.main.blocks[0]).checkpoint_bytes[
            0
        ]
        for each in (problem, plain)
    )
    assert four == 4 * single


def test_selected_pools_keep_indices_and_what_pools_them(ideal):
    problem = ideal(networks.network("deepseek-v4-flash"))
    more = attention_bytes(problem, SELECTED, ONE) - attention_bytes(problem, WINDOW, ONE)

    # 4 bytes of each selected key; 8 for each of two series of 64, a pooled key and its norm for 4 tokens
    assert more[0] == 1024 * (4 * 64 + 8 * 2 * 64 + 10 * 64 / 4)


@pytest.mark.parametrize(("name", "gib"), [("deepseek-v4-flash", 6.72), ("deepseek-v4-pro", 9.62)])
def test_cache_of_a_million_tokens_is_the_published_one(name: str, gib: float):
    # vLLM 2026 (blog, DeepSeek V4): 9.62 GiB for Pro in bf16; Flash by the same sum
    request = Request(prompt_tokens=2**20 - 1, output_tokens=1)

    assert cache_bytes(networks.network(name), request) / 2**30 == pytest.approx(gib, abs=0.005)


@pytest.mark.parametrize(
    ("name", "total", "active"), [("deepseek-v4-flash", 284e9, 13e9), ("deepseek-v4-pro", 1.6e12, 49e9)]
)
def test_parameters_are_those_of_the_model_cards(name: str, total: float, active: float):
    network = networks.network(name)
    # cards count activated parameters without one table of the vocabulary
    one_table = network.main.embedding.vocab * network.main.hidden

    assert network_parameters(network).total == pytest.approx(total, rel=0.02)
    assert active_parameters(network) - one_table == pytest.approx(active, rel=0.03)


def test_one_key_for_all_heads_is_not_split(ideal):
    problem = ideal(networks.network("deepseek-v4-flash"), 2)

    assert rejects(problem, Plans.of(Plan(tp=2)))[0] & int(Reject.TENSOR_KV_HEADS)


def test_words_name_window_pools_and_groups():
    assert part_words(SELECTED) == (
        "attention: 8 heads of 64, 1 key-value heads, a window of 128 tokens, "
        "64 keys of an indexer of 4 heads among one key for 4 tokens, outputs in 4 groups of 48"
    )
    assert "and one key for 128 tokens" in part_words(POOLED)


def _stack(block: Block) -> Stack:
    return Stack(role=StackRole.DECODER, hidden=256, blocks=(block,), pattern=(0,))
