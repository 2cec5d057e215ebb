"""Recurrent mixers by hand: parameters, products, scans, kept bytes, states, and what may split them."""

from dataclasses import replace

import numpy as np
import pytest

from escala.catalog import networks
from escala.errors import InvalidInput
from escala.formats.hf import network_from_config
from escala.model.activations import attention_bytes
from escala.model.efficiency import scan_s
from escala.model.flops import forward_flop, selection_flop, work_by_kind
from escala.model.layers import layer_share
from escala.model.matmuls import Shape, layer_work, part_matmuls
from escala.model.mixers import (
    BACKWARD_PASSES,
    in_widths,
    mixer_kept_bytes,
    mixer_parameters,
    scan_work,
    state_bytes,
)
from escala.model.network import Attention, AttentionKind, Block, Experts, FeedForward, Mixer, Scan
from escala.model.parameters import (
    active_parameters,
    block_parameters,
    network_parameters,
    part_parameters,
)
from escala.model.plan import Plan, Plans
from escala.model.rejects import Reject, rejects
from escala.model.workload import Workload

# 4 value heads, 2 key heads, keys 8 and values 16 wide: 16 keys, 64 values, 96 through the convolution
DELTA = Mixer(
    scan=Scan.DELTA,
    heads=4,
    key_heads=2,
    key_dim=8,
    value_dim=16,
    taps=4,
    chunk_tokens=64,
    norm_dim=16,
)
STATES = replace(DELTA, scan=Scan.STATE_SPACE, chunk_tokens=32, norm_dim=64, has_convolution_bias=True)
SELECTIVE = Mixer(scan=Scan.SELECTIVE, heads=64, key_heads=1, key_dim=16, value_dim=1, taps=4, decay_rank=2)
KIMI = replace(DELTA, scan=Scan.CHANNEL_DELTA, key_heads=4, gate_rank=8, decay_rank=8)
ONE = Shape.of(Plans.of(Plan()), 1024)


def scan(part: Mixer, tokens: float = 1.0, length: float = 1e6, tp: float = 1.0):
    return scan_work(part, np.array([tokens]), length, np.array([tp]))


def test_parameters_of_a_delta_rule():
    # in: 32 (q, k) + 64 v + 64 gate + 2 * 4 = 168; out 64; taps 4 * 96; decay and step bias of 4 heads
    counts = mixer_parameters(DELTA, 100)

    assert counts.split == 100 * 168 + 64 * 100 + 4 * 96 + 2 * 4
    assert counts.replicated == 16  # one norm as wide as a value


def test_parameters_of_a_state_space():
    # in: 64 x + 64 gate + 32 (B, C) + 4 steps = 164; taps and bias 5 * 96; decay, step bias, skip; wide norm
    counts = mixer_parameters(STATES, 100)

    assert counts.split == 100 * 164 + 64 * 100 + 5 * 96 + 3 * 4 + 64
    assert counts.replicated == 0


def test_parameters_of_a_selective_scan():
    # in 128, steps and keys 64 * (2 + 32), steps up 2 * 64, out; taps 4 * 64; decays 64 * 16, bias and skip
    assert mixer_parameters(SELECTIVE, 100).split == 100 * 128 + 64 * 34 + 128 + 6400 + 256 + 64 * 18


def test_low_ranks_of_a_channel_decay_are_whole_on_every_tensor_rank():
    # q, k 64, v 64, steps 4; down 8 + 8 replicated; up 8 * 32 and 8 * 64; taps 4 * 128; 4 + 32 decays
    counts = mixer_parameters(KIMI, 100)

    assert counts.split == 100 * 132 + 8 * 32 + 8 * 64 + 6400 + 4 * 128 + 36
    assert counts.replicated == 100 * 16 + 16


def test_products_of_a_mixer_are_two_flop_for_each_weight_of_its_maps():
    for part in (DELTA, STATES, SELECTIVE, KIMI):
        flop = sum(float(m.flop[0]) for m in part_matmuls(part, 100, ONE))
        small = part.mixed * (part.taps + part.has_convolution_bias) + part.norm_dim
        heads = {Scan.DELTA: 2, Scan.STATE_SPACE: 3, Scan.SELECTIVE: 18, Scan.CHANNEL_DELTA: 9}[part.scan]
        weights = part_parameters(part, 100).total - small - heads * part.heads

        assert flop == 2 * 1024 * weights


def test_products_inside_a_chunk_of_a_delta_rule():
    # a token and head: 2 * (64 * (3 * 8 + 2 * 16) + 3 * 8 * 16) = 7,936; four heads; taps 2 * 4 * 96
    assert scan(DELTA).flop[0] == 4 * 7936 + 768


def test_a_state_space_scores_once_for_heads_that_share_keys():
    # scores 2 groups * 32 * 8, inputs 4 heads * 32 * 16, states 2 * 4 * 8 * 16, twice each; taps
    assert scan(STATES).flop[0] == 2 * (2 * 32 * 8 + 4 * 32 * 16 + 2 * 4 * 8 * 16) + 768


def test_a_chunk_is_no_longer_than_the_sequence():
    # 16 tokens: 2 * (16 * 56 + 384) for each head
    assert scan(DELTA, length=16).flop[0] == 4 * 2 * (16 * 56 + 384) + 768


def test_selective_scan_has_no_products_but_work_for_units_of_fp32():
    # 6 FLOP and an exponential as long as 16, for 64 channels with 16 states
    assert scan(SELECTIVE).vector_flop[0] == 64 * 16 * 22
    assert scan(SELECTIVE).flop[0] == 64 * 16 * 6 + 2 * 4 * 64


def test_work_of_a_scan_is_linear_in_tokens_and_divided_by_tp():
    once, split = scan(DELTA, 4096), scan(DELTA, 8192, tp=2)

    assert once.flop == split.flop
    assert once.moved_bytes == split.moved_bytes
    assert once.backward_bytes == BACKWARD_PASSES * once.moved_bytes


def test_kept_bytes_of_one_kernel_for_a_whole_state_space():
    # what goes in, 164 numbers, and the scan's output, 64, in 2 bytes; one norm statistic a group
    assert mixer_kept_bytes(STATES) == 2 * 164 + 2 * 64 + 4 * 2


def test_kept_bytes_of_a_delta_rule():
    # convolution in and out 2 * 2 * 96; output, gate, gated output 6 * 64; 64 scores and 22 bytes a head
    assert mixer_kept_bytes(DELTA) == 4 * 96 + 6 * 64 + 4 * (128 + 22) + 8 * 2


def test_state_does_not_grow_with_the_sequence():
    # fp32 states 4 * 4 * 8 * 16, three taps of 96 numbers in 2 bytes
    assert state_bytes(DELTA) == 4 * 512 + 3 * 96 * 2


def test_context_ranks_of_mixers_share_heads(ideal):
    # 32 heads over tp 2 x cp 2; over tp 2 x cp 32 half a head; tp 32 splits 16 key heads
    problem = ideal(networks.network("qwen3-next-80b-a3b"))
    plans = Plans.of([Plan(tp=2, cp=2), Plan(tp=2, cp=32), Plan(tp=32)])

    bits = rejects(problem, plans) & int(Reject.MIXER_HEADS)

    assert list(bits > 0) == [False, True, True]


def test_mamba_has_pipelines_but_no_tensor_parallelism(ideal):
    problem = ideal(networks.network("mamba-130m"))
    bits = rejects(problem, Plans.of([Plan(pp=2), Plan(tp=2)]))

    assert not bits[0] & int(Reject.TENSOR_KIND)
    assert bits[1] & int(Reject.MIXER_HEADS)


@pytest.mark.parametrize(
    ("parts", "share"),
    [
        ((DELTA, FeedForward(width=8)), 1.0),
        ((STATES,), 0.5),
        ((FeedForward(width=8),), 0.5),
        ((STATES, Attention(heads=1, kv_heads=1, head_dim=8, value_head_dim=8), FeedForward(width=8)), 1.5),
    ],
)
def test_a_part_with_its_norm_is_half_a_layer(parts, share):
    assert layer_share(Block(name="layer", parts=parts)) == share


SELECTING = Attention(
    kind=AttentionKind.SPARSE,
    heads=2,
    kv_heads=2,
    head_dim=24,
    value_head_dim=16,
    query_rank=32,
    kv_rank=8,
    rope_head_dim=8,
    top_tokens=64,
    index_heads=4,
    index_dim=16,
)


def test_parameters_of_an_indexer():
    without = replace(SELECTING, index_heads=0)
    # queries 32 * 64, key 100 * 16 with a norm of 2 vectors, weights of heads 100 * 4
    more = part_parameters(SELECTING, 100).total - part_parameters(without, 100).total

    assert more == 32 * 64 + 100 * 16 + 32 + 100 * 4


def test_selected_latent_keys_are_read_in_the_low_rank():
    core, index = layer_work(Block(name="layer", parts=(SELECTING,)), _stack(), ONE).cores

    # 64 of 1,024 keys: mean of min(i, 64); rank twice + rotary part for each score
    assert core.keys == pytest.approx(64 - 64 * 63 / 2048, rel=1e-12)
    assert core.width == 2 * 8 + 8
    assert (index.all_keys, index.width, index.is_forward_only) == (1024, 16, True)


def test_selection_is_model_work_once_a_step():
    network = networks.network("deepseek-v3.2")
    products, attention, _ = forward_flop(network, 8192)
    # 61 indexers: 2 * queries * keys * 64 heads * 128
    selection = 61 * 2 * 8192 * 8192 * 64 * 128

    assert selection_flop(network, 8192) == selection
    workload = Workload(network=network, sequence_tokens=8192, global_batch=4)
    assert work_by_kind(workload)["attention_s"] == 4 * (3 * attention - 2 * selection)
    assert work_by_kind(workload)["matmul_s"] == 12 * products


def test_selected_keys_cost_their_indices(ideal):
    # 4 bytes for each key of a token beside the attention in the low rank
    problem = ideal(networks.network("deepseek-v3.2"))
    fewer = replace(SELECTING, top_tokens=32)

    more = attention_bytes(problem, SELECTING, ONE) - attention_bytes(problem, fewer, ONE)

    assert more[0] == 1024 * 4 * 32


def test_experts_on_a_latent_stream():
    plain = Experts(experts=4, top_k=2, width=8, is_gated=False)
    part = replace(plain, latent_dim=10)
    # experts 4 * 2 * 10 * 8 in place of 4 * 2 * 100 * 8, and two maps of 100 x 10
    assert part_parameters(part, 100).expert == 640
    assert part_parameters(part, 100).replicated - part_parameters(plain, 100).replicated == 2000
    assert layer_work(Block(name="layer", parts=(part,)), _stack(), ONE).routed_width == 10


def test_gate_of_attention_has_a_map_of_its_own():
    plain = Attention(heads=2, kv_heads=1, head_dim=8, value_head_dim=8)

    assert part_parameters(replace(plain, gate_dim=8), 100).total - part_parameters(plain, 100).total == 1600


def test_widths_of_first_maps():
    assert [in_widths(part) for part in (SELECTIVE, STATES, DELTA, KIMI)] == [
        (128, 0),
        (164, 0),
        (168, 0),
        (132, 16),
    ]


def _stack():
    return replace(networks.network("llama-3-8b").main, hidden=100)


def test_scan_takes_as_long_as_its_passes_where_products_are_fast(ideal, llama):
    # one token a chunk of states: 1 TB/s over the bytes moved, 1e14 FLOP/s * 0.75 over the products
    problem = ideal(llama())
    work = scan(DELTA, 1e6)
    passes_s, product_s = work.moved_bytes / 1e12, work.flop / (1e14 * problem.assumptions.batched_gemm_ratio)

    forward_s, backward_s = scan_s(problem, work, np.array([1e14]))

    assert forward_s[0] >= max(passes_s[0], product_s[0])
    assert forward_s[0] <= passes_s[0] + product_s[0]
    assert backward_s[0] > 2.0 * forward_s[0]


def test_further_predictions_are_further_outputs_of_the_head(ideal):
    network = networks.network("llama-3-8b")
    stack = network.main
    assert stack.head is not None
    twice = replace(network, stacks=(replace(stack, head=replace(stack.head, predictions=2)),))

    assert forward_flop(twice, 64)[2] == 2 * forward_flop(network, 64)[2]


def ling(**changes):
    return network_from_config({**networks.config("ling-2.6-flash"), **changes}, "mine", "test")


def test_lightning_layers_of_ling_norm_queries_keys_and_values():
    block = ling().main.blocks[0]
    feed, norms = 3 * 4096 * 9216, 2 * 4096

    # query, key, value, gate, output 4,096 x 4,096 each; norms of a head for queries and keys, of all values
    assert block_parameters(block, 4096).total == 5 * 4096 * 4096 + 4096 + 2 * 128 + feed + norms
    assert block_parameters(ling(use_qk_norm=False).main.blocks[0], 4096).total == (
        block_parameters(block, 4096).total - 2 * 128
    )


def test_layers_of_an_unfilled_group_of_ling_attend():
    kinds = [block.parts[0] for block in ling(num_hidden_layers=10, layer_group_size=4).main.blocks]
    pattern = ling(num_hidden_layers=10, layer_group_size=4).main.pattern

    assert [i for i, kind in enumerate(pattern) if isinstance(kinds[kind], Attention)] == [3, 7, 8, 9]


def test_ling_2_6_has_the_published_parameters():
    # model card: 104B, 7.4B active
    assert network_parameters(ling()).total == pytest.approx(104e9, rel=0.005)
    assert active_parameters(ling()) == pytest.approx(7.4e9, rel=0.01)


@pytest.mark.parametrize("key", ["use_bias", "use_qkv_bias"])
def test_biases_of_ling_are_refused(key: str):
    with pytest.raises(InvalidInput, match=key):
        ling(**{key: True})
