import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escala.model.matmuls import Shape, layer_work, mean_keys, part_matmuls
from escala.model.network import (
    Attention,
    AttentionKind,
    Block,
    Convolution,
    Experts,
    FeedForward,
    Linear,
    Stack,
    StackRole,
)
from escala.model.plan import Plan, Plans

GROUPED = Attention(heads=32, kv_heads=8, head_dim=64, value_head_dim=64)
LATENT = Attention(
    heads=128, kv_heads=128, head_dim=192, value_head_dim=128, query_rank=1536, kv_rank=512, rope_head_dim=64
)
EXPERTS = Experts(experts=8, top_k=2, width=1408)


def shape(sequence: int = 1024, **degrees) -> Shape:
    return Shape.of(Plans.of(Plan(**degrees)), sequence)


def sizes(part, hidden: int, on: Shape) -> list[tuple[float, float, float, float]]:
    return [(m.rows[0], m.inner[0], m.outer[0], m.count[0]) for m in part_matmuls(part, hidden, on)]


def test_grouped_attention_is_two_products():
    # queries 32 * 64 = 2048, keys and values 8 * 64 = 512 each: 3072 together; output 2048 to 2048
    assert sizes(GROUPED, 2048, shape()) == [(1024, 2048, 3072, 1), (1024, 2048, 2048, 1)]


def test_tp_splits_columns_then_rows():
    # tp 2: half of 3072 columns, then half of 2048 rows; tokens stay whole inside the products
    assert sizes(GROUPED, 2048, shape(tp=2, sp=True)) == [(1024, 2048, 1536, 1), (1024, 1024, 2048, 1)]


def test_gated_feed_forward_joins_gate_and_up():
    # tp 2: 5632 / 2 = 2816, twice for gate and up
    found = sizes(FeedForward(width=5632), 2048, shape(tp=2))

    assert found == [(1024, 2048, 5632, 1), (1024, 2816, 2048, 1)]


def test_plain_feed_forward_has_one_map_up():
    found = sizes(FeedForward(width=8192, is_gated=False), 2048, shape())

    assert found == [(1024, 2048, 8192, 1), (1024, 8192, 2048, 1)]


def test_latent_attention_of_deepseek_v3():
    # down: 1536 + 512 + 64; query up 128 * 192; key-value up 128 * (128 + 128); output 128 * 128
    assert sizes(LATENT, 7168, shape()) == [
        (1024, 7168, 2112, 1),
        (1024, 1536, 24576, 1),
        (1024, 512, 32768, 1),
        (1024, 16384, 7168, 1),
    ]


def test_latent_down_projection_is_whole_but_runs_on_split_tokens_with_sp():
    found = sizes(LATENT, 7168, shape(tp=8, sp=True))

    assert found[0] == (128, 7168, 2112, 1)
    assert found[1] == (1024, 1536, 24576 / 8, 1)


def test_balanced_experts_share_the_routed_tokens():
    # 1024 tokens * 2 choices over 8 experts: 256 rows for each of 8
    router, up, down = part_matmuls(EXPERTS, 2048, shape())

    assert (router.rows[0], router.outer[0]) == (1024, 8)
    assert (up.rows[0], up.outer[0], up.count[0]) == (256, 2 * 1408, 8)
    assert (down.inner[0], down.outer[0]) == (1408, 2048)
    assert up.is_grouped
    assert down.is_grouped
    assert not router.is_grouped


def test_ep_gives_each_rank_fewer_experts_with_more_rows():
    # 4 ranks send 2048 routed rows each; 8 / 4 = 2 experts a rank get 2048 / 2 rows
    _, up, _ = part_matmuls(EXPERTS, 2048, shape(dp=4, ep=4))

    assert (up.rows[0], up.count[0]) == (1024, 2)


def test_tp_without_expert_tp_splits_the_routed_tokens():
    # tp 2, etp 1: each rank routes half of the 1024 tokens: 512 * 2 / 8 = 128 rows, experts whole
    _, up, _ = part_matmuls(EXPERTS, 2048, shape(tp=2))

    assert (up.rows[0], up.outer[0]) == (128, 2 * 1408)


def test_expert_tp_splits_the_experts_instead():
    # tp 2, etp 2: all 1024 * 2 / 8 = 256 rows, half of the width
    _, up, _ = part_matmuls(EXPERTS, 2048, shape(tp=2, etp=2))

    assert (up.rows[0], up.outer[0]) == (256, 1408)


@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    ep=st.sampled_from([1, 2, 4, 8]),
    wide=st.booleans(),
    micro=st.integers(1, 4),
)
def test_expert_work_does_not_depend_on_how_experts_are_spread(tp, ep, wide, micro):
    # routed work of one tensor rank: 1/tp of 2 * tokens * top_k * 3 * hidden * width
    on = shape(tp=tp, dp=8, ep=ep, etp=tp if wide else 1, micro_batch=micro)

    work = sum(m.flop[0] for m in part_matmuls(EXPERTS, 2048, on) if m.is_grouped)

    assert work == pytest.approx(2 * micro * 1024 * 2 * 3 * 2048 * 1408 / tp, rel=1e-12)


def test_shared_experts_run_on_every_token():
    found = sizes(Experts(experts=4, top_k=1, width=100, shared_width=300), 64, shape())

    assert found[-2:] == [(1024, 64, 600, 1), (1024, 300, 64, 1)]


def test_context_parallel_divides_the_tokens():
    assert shape(cp=4, micro_batch=2).tokens[0] == 512
    assert shape(cp=4, micro_batch=2, tp=2, sp=True).split_tokens[0] == 256


def test_a_convolution_is_a_product_over_pixels():
    part = Convolution(inputs=64, outputs=128, kernel=3, output_pixels=3136)

    # 2 images * 3136 pixels; 3 * 3 * 64 inputs
    assert sizes(part, 64, shape(micro_batch=2)) == [(6272, 576, 128, 1)]


def test_a_linear_map_over_the_stream():
    assert sizes(Linear(inputs=1024, outputs=4096), 1024, shape()) == [(1024, 1024, 4096, 1)]


def test_products_of_a_layer_are_its_matrix_parameters_times_two():
    block = Block(name="layer", parts=(GROUPED, FeedForward(width=5632)))
    stack = Stack(role=StackRole.DECODER, hidden=2048, blocks=(block,), pattern=(0,))

    work = layer_work(block, stack, shape())

    # 2048 * (3072 + 2048) + 3 * 2048 * 5632 weights, 2 FLOP for each and token
    weights = 2048 * (3072 + 2048) + 3 * 2048 * 5632
    assert sum(m.flop[0] for m in work.matmuls) == 2 * 1024 * weights


def test_attention_core_by_hand():
    block = Block(name="layer", parts=(GROUPED,))
    stack = Stack(role=StackRole.DECODER, hidden=2048, blocks=(block,), pattern=(0,))

    core = layer_work(block, stack, shape(tp=2)).cores[0]

    # 1024 queries, 16 heads, (1024 + 1) / 2 keys on average, 64 + 64 wide
    assert core.flop[0] == 2 * 1024 * 16 * 512.5 * 128
    assert core.score_elements[0] == 1024 * 16 * 1024


def test_expert_traffic_counts_each_choice_once():
    block = Block(name="layer", parts=(EXPERTS,))
    stack = Stack(role=StackRole.DECODER, hidden=2048, blocks=(block,), pattern=(0,))

    work = layer_work(block, stack, shape(tp=2, dp=4, ep=4, etp=2))

    # 1024 * 2 choices; expert TP ranks hold the same rows and send their half
    assert work.routed_tokens is not None
    assert work.dispatched_tokens is not None
    assert work.routed_tokens[0] == 2048
    assert work.dispatched_tokens[0] == 1024


@given(length=st.integers(1, 600))
def test_causal_keys_are_the_mean_of_1_to_s(length):
    exact = sum(range(1, length + 1)) / length

    assert mean_keys(GROUPED, length) == pytest.approx(exact, rel=1e-12)


@given(length=st.integers(1, 600), window=st.integers(1, 700))
def test_sliding_keys_are_the_exact_mean_of_what_the_window_leaves(length, window):
    part = Attention(
        kind=AttentionKind.SLIDING, heads=4, kv_heads=4, head_dim=8, value_head_dim=8, window_tokens=window
    )
    exact = sum(min(query, window) for query in range(1, length + 1)) / length

    assert mean_keys(part, length) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({"is_causal": False}, 1024),
        ({"kind": AttentionKind.SPARSE, "top_tokens": 256, "is_causal": False}, 256),
    ],
)
def test_keys_of_other_kinds(changes, keys):
    part = Attention(**({"heads": 4, "kv_heads": 4, "head_dim": 64, "value_head_dim": 64} | changes))

    assert mean_keys(part, 1024) == keys


def test_tp_divides_all_work_of_a_layer():
    tps = Plans.of([Plan(tp=tp) for tp in (1, 2, 4, 8)])

    work = sum(m.flop for m in part_matmuls(GROUPED, 2048, Shape.of(tps, 1024)))

    assert (work * np.array([1, 2, 4, 8])).tolist() == [work[0]] * 4
