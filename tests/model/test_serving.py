"""Serving in closed form: bytes and FLOP by hand on a round machine, limits, and dense against experts."""

from dataclasses import replace

import pytest

from escala.catalog import cluster_for
from escala.catalog.networks import network
from escala.model.cluster import Cluster
from escala.model.network import (
    Attention,
    Block,
    Embedding,
    Experts,
    FeedForward,
    Head,
    Network,
    Stack,
    StackRole,
)
from escala.model.serving import (
    KERNEL_S,
    KERNELS,
    Request,
    cache_bytes,
    decode_s,
    most_requests,
    prefill_s,
    read_bytes,
    serve,
    serves_text,
    sums_s,
    token_flop,
)

ATTENTION = Attention(heads=4, kv_heads=2, head_dim=16, value_head_dim=16)
REQUEST = Request(prompt_tokens=100, output_tokens=20)


def one_layer(part: FeedForward | Experts, attention: Attention = ATTENTION) -> Network:
    stack = Stack(
        role=StackRole.DECODER,
        hidden=64,
        blocks=(Block(name="layer", parts=(attention, part)),),
        pattern=(0,),
        embedding=Embedding(vocab=1000),
        head=Head(outputs=1000),
    )
    return Network(name="one layer", family="test", stacks=(stack,))


DENSE = one_layer(FeedForward(width=128, is_gated=False))
# attention 64 * (64 + 32 + 32) + 64 * 64, two norms of 64, feed-forward 2 * 64 * 128, head 64 * 1000
ATTENTION_WEIGHTS = 64 * 128 + 64 * 64 + 2 * 64
DENSE_WEIGHTS = ATTENTION_WEIGHTS + 2 * 64 * 128 + 64 * 1000


def test_keys_and_values_of_a_request_by_hand():
    # 120 tokens * 2 heads * (16 + 16) numbers * 2 bytes
    assert cache_bytes(DENSE, REQUEST) == 120 * 2 * 32 * 2


def test_latent_attention_keeps_its_rank_and_the_rotary_key():
    latent = replace(ATTENTION, kv_rank=8, rope_head_dim=4)

    assert cache_bytes(one_layer(FeedForward(width=128), latent), REQUEST) == 120 * (8 + 4) * 2


def test_a_window_bounds_what_is_kept():
    near = replace(ATTENTION, window_tokens=50)

    assert cache_bytes(one_layer(FeedForward(width=128), near), REQUEST) == 50 * 2 * 32 * 2


def test_a_token_reads_the_weights_but_the_embedding_and_half_an_answer():
    # 110 tokens are kept on average
    assert read_bytes(DENSE, REQUEST, 3) == DENSE_WEIGHTS * 2 + 3 * 110 * 2 * 32 * 2


def test_one_token_reads_its_experts_and_many_read_all():
    sparse = one_layer(Experts(experts=8, top_k=2, width=128, is_gated=False))
    each, rest = 2 * 64 * 128, ATTENTION_WEIGHTS + 64 * 8 + 64 * 1000

    # one token: 2 of 8 experts; endless tokens: all of them
    kept = 110 * 2 * 32 * 2
    assert read_bytes(sparse, REQUEST, 1) == pytest.approx((rest + 2 * each) * 2 + kept, rel=1e-12)
    assert read_bytes(sparse, REQUEST, 1000) - 1000 * kept == pytest.approx((rest + 8 * each) * 2, rel=1e-9)


def test_a_token_alone_is_bound_by_memory_and_many_by_work(cluster_of):
    where: Cluster = cluster_of(1)
    launched_s = KERNELS * KERNEL_S

    # 1 TB/s, 100 TFLOP/s
    assert decode_s(DENSE, where, REQUEST, 1) == pytest.approx(
        read_bytes(DENSE, REQUEST, 1) / 1e12 + launched_s
    )
    short = Request(prompt_tokens=1, output_tokens=1)
    work_s = 100_000 * token_flop(DENSE) / 1e14
    assert decode_s(DENSE, where, short, 100_000) == pytest.approx(work_s + launched_s, rel=1e-9)


def test_work_of_a_token_is_two_flop_a_weight():
    # norms multiply nothing
    assert token_flop(DENSE) == 2 * (DENSE_WEIGHTS - 2 * 64)


def test_a_prompt_is_at_least_one_reading_of_the_weights(cluster_of):
    where = cluster_of(1)
    weights = DENSE_WEIGHTS + 64 * 1000 + 64  # embedding, final norm

    assert prefill_s(DENSE, where, Request(prompt_tokens=1), 1) == pytest.approx(
        weights * 2 / 1e12, rel=1e-12
    )


def test_sums_of_tensor_ranks_by_hand(cluster_of):
    # 2 all-reduces of 10 * 64 * 2 bytes over 4 ranks at 100 GB/s: 2 * 2 * 3/4 * 1,280 / 1e11
    assert sums_s(DENSE, cluster_of(4), 10) == pytest.approx(2 * 2 * 0.75 * 1280 / 1e11, rel=1e-12)
    assert sums_s(DENSE, cluster_of(1), 10) == 0.0


def test_price_by_hand(cluster_of):
    found = serve(DENSE, cluster_of(1), REQUEST, batch=4)

    assert found is not None
    seconds = (found.prompt_s / 20 + found.token_s) / 4
    assert found.device_s_per_token == pytest.approx(seconds, rel=1e-12)
    assert found.usd_per_million_tokens(3.6) == pytest.approx(seconds * 1000, rel=1e-12)


def test_the_largest_batch_fills_the_memory():
    llama, where = network("llama-3.1-8b"), cluster_for("h100-sxm", 1)
    most = most_requests(llama, where, Request())

    assert serve(llama, where, Request(), batch=most) is not None
    assert serve(llama, where, Request(), batch=most + 1) is None


def test_what_does_not_fit_is_not_served():
    assert serve(network("llama-3.1-405b"), cluster_for("h100-sxm", 8), Request()) is None


def test_only_text_is_served():
    assert serves_text(network("mixtral-8x7b"))
    assert not serves_text(network("bert-base"))


def test_experts_are_faster_alone_and_lose_their_lead_in_large_batches():
    dense, sparse = network("llama-3.1-70b"), network("mixtral-8x22b")
    where = cluster_for("h100-sxm", 8)
    leads = [decode_s(dense, where, Request(), n) / decode_s(sparse, where, Request(), n) for n in (1, 64)]

    assert leads[0] > leads[1]


@pytest.mark.parametrize(
    ("name", "devices", "published_tokens_per_s"),
    [
        ("llama-2-7b", 1, 104.9),
        ("llama-2-7b", 2, 168.84),
        ("llama-2-7b", 4, 254.02),
        ("llama-2-7b", 8, 328.43),
        ("llama-2-70b", 2, 21.32),
        ("llama-2-70b", 4, 38.01),
        ("llama-2-70b", 8, 62.50),
    ],
)
def test_dense_networks_in_16_bit_answer_as_fast_as_published(
    name: str, devices: int, published_tokens_per_s: float
):
    """One request on A100-80GB at 330 W, prompts of 5 tokens. Source: README of gpt-fast, PyTorch, 2024."""
    short, where = Request(prompt_tokens=5, output_tokens=200), cluster_for("a100-sxm-80gb", devices)

    found = 1 / decode_s(network(name), where, short, 1)
    assert found == pytest.approx(published_tokens_per_s, rel=0.11)
