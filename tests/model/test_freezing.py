"""Frozen parts: what gets no gradients, and how far gradients go."""

from dataclasses import replace

import numpy as np
import pytest

from escala.catalog import networks
from escala.errors import InvalidInput
from escala.model.estimate import estimate, work_of
from escala.model.flops import forward_by_learning, forward_flop, head_flop, model_flop
from escala.model.freezing import freeze, frozen_words
from escala.model.network import Learning
from escala.model.parameters import network_parameters, stack_parameters
from escala.model.plan import Plan, Plans
from escala.model.shards import shards
from escala.model.stages import slots
from escala.model.workload import Lora, Method

LLAMA, QWEN = networks.network("llama-3.1-8b"), networks.network("qwen3-vl-8b")
SHARDED = Plan(dp=8, zero=3, shard=8, reshard=True, micro_batch=1, micro_batches=1)
STILL, PASSED, TRAINED = Learning.STILL, Learning.PASSED, Learning.TRAINED


def marks(network):
    return [[stack.blocks[kind].learning for kind in stack.pattern] for stack in network.stacks]


def trained(network, lora=None):
    plans = Plans.of(Plan())
    workload = replace(of(network, lora), network=network)
    found = shards(workload, plans, slots(network, plans))
    return int(found.trained_dense[0] + found.trained_expert[0])


def of(network, lora=None):
    from escala.model.workload import Workload

    method = Method.FULL if lora is None else Method.LORA
    return Workload(network=network, sequence_tokens=1024, global_batch=8, method=method, lora=lora)


def test_layers_behind_a_trained_embedding_pass_gradients_on():
    assert marks(freeze(LLAMA, ("layers:0-15",))) == [[PASSED] * 16 + [TRAINED] * 16]


def test_layers_with_nothing_trained_before_them_have_no_backward():
    assert marks(freeze(LLAMA, ("embedding", "layers:0-15"))) == [[STILL] * 16 + [TRAINED] * 16]


def test_a_frozen_decoder_passes_gradients_to_the_tower():
    tower, projector, decoder = marks(freeze(QWEN, ("decoder",)))

    assert set(tower) == set(projector) == {TRAINED}
    assert set(decoder) == {PASSED}


def test_a_frozen_tower_has_no_backward_and_its_projector_is_trained():
    tower, projector, decoder = marks(freeze(QWEN, ("vision",)))

    assert (set(tower), set(projector), set(decoder)) == ({STILL}, {TRAINED}, {TRAINED})


def test_a_frozen_encoder_of_speech_has_no_backward():
    stem, encoder, decoder = marks(freeze(networks.network("whisper-tiny"), ("convolution", "encoder")))

    assert (set(stem), set(encoder), set(decoder)) == ({STILL}, {STILL}, {TRAINED})


def test_what_is_trained_is_what_is_not_frozen():
    tower, projector, decoder = (stack_parameters(stack).total for stack in QWEN.stacks)

    assert trained(QWEN) == network_parameters(QWEN).total
    assert trained(freeze(QWEN, ("vision",))) == projector + decoder
    assert trained(freeze(QWEN, ("decoder",))) == tower + projector
    # half of the layers, the head and the final norm
    layer = 218_112_000
    assert trained(freeze(LLAMA, ("embedding", "layers:0-15"))) == 16 * layer + 128_256 * 4096 + 4096


def test_a_tied_head_is_frozen_with_the_embedding():
    network = networks.network("llama-3.2-1b")
    table = 128_256 * 2048

    assert trained(network) - trained(freeze(network, ("embedding",))) == table


def test_work_of_frozen_layers_by_hand():
    # trained layers three times, passed products twice and attention three times, others once
    network = freeze(LLAMA, ("layers:0-15",))
    products, attention, head = forward_flop(LLAMA, 1024)
    expected = 8 * (2.5 * products + 3 * attention + 3 * head)
    assert model_flop(of(network)) == pytest.approx(expected, rel=1e-12)

    network = freeze(LLAMA, ("embedding", "layers:0-15", "head"))
    expected = 8 * (2 * products + 2 * attention + 2 * head)
    assert model_flop(of(network)) == pytest.approx(expected, rel=1e-12)


def test_marks_move_no_forward_work():
    network = freeze(QWEN, ("vision", "layers:0-7"))

    groups = forward_by_learning(network, 4096)
    assert sum(group[0] for group in groups.values()) == pytest.approx(forward_flop(QWEN, 4096)[0], rel=1e-12)
    assert head_flop(network, 4096) == head_flop(QWEN, 4096)


def result(real, network, plan=SHARDED, **changes):
    problem = real(network, "pytorch", devices=8, **changes)
    return problem, estimate(problem, Plans.of(plan))


def test_frozen_layers_keep_no_activations_and_take_a_third_of_the_products(real):
    _, whole = result(real, LLAMA)
    _, half = result(real, freeze(LLAMA, ("embedding", "layers:0-15")))

    kept = [each.memory.kinds.activations_bytes[0] for each in (whole, half)]
    # products of 16 layers once in place of three times: 1 - 2 / 6
    products = [each.time.matmul_s[0] for each in (whole, half)]
    assert kept[1] == pytest.approx(kept[0] / 2, rel=1e-12)
    assert products[1] == pytest.approx(products[0] * 4 / 6, rel=1e-12)


def test_frozen_weights_are_held_and_have_neither_gradients_nor_states(real):
    _, whole = result(real, LLAMA)
    _, half = result(real, freeze(LLAMA, ("embedding", "layers:0-15")))
    share = trained(freeze(LLAMA, ("embedding", "layers:0-15"))) / trained(LLAMA)

    for name, ratio in (("weights_bytes", 1.0), ("gradients_bytes", share), ("optimizer_bytes", share)):
        before, after = (getattr(each.memory.kinds, name)[0] for each in (whole, half))
        assert after == pytest.approx(before * ratio, rel=1e-12), name


def test_casts_of_layers_without_backward_are_not_kept(real):
    # autocast of sharded weights keeps 2 bytes of each weight whose layer has a backward
    problem = real(LLAMA, "hf-trainer", devices=8)
    frozen = real(freeze(LLAMA, ("embedding", "layers:0-15")), "hf-trainer", devices=8)

    gathered = [
        estimate(each, Plans.of(SHARDED)).memory.kinds.gathered_bytes[0] for each in (problem, frozen)
    ]
    assert gathered[0] - gathered[1] == pytest.approx(2 * 16 * 218_112_000, rel=1e-12)


def test_traffic_of_frozen_layers_is_that_of_forward(real):
    tensor = Plan(dp=4, tp=2, sp=True, micro_batch=2)
    problem, _ = result(real, LLAMA)
    frozen, _ = result(real, freeze(LLAMA, ("embedding", "layers:0-31")))

    sent = [work_of(each, Plans.of(tensor)).sent.tensor_bytes[0] for each in (problem, frozen)]
    # 2.5 passes with SP, one of them forward
    assert sent[1] == pytest.approx(sent[0] / 2.5, rel=1e-12)


def test_adapters_are_put_in_layers_that_are_not_frozen():
    lora = Lora(rank=8)

    assert trained(freeze(LLAMA, ("layers:0-15",), adapts=True), lora) == trained(LLAMA, lora) / 2
    assert marks(freeze(LLAMA, ("layers:0-15",), adapts=True)) == [[STILL] * 16 + [TRAINED] * 16]


@pytest.mark.parametrize(
    "names",
    [("vision",), ("vision", "projector", "layers:0-3", "embedding"), ("decoder",), ("head", "layers:5-5")],
)
def test_words_of_what_is_frozen_can_be_given_again(names):
    network = freeze(QWEN, names)

    assert freeze(QWEN, tuple(frozen_words(network).split(","))) == network


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("towr",), "unknown part 'towr': --freeze takes vision, projector, decoder, embedding, head"),
        (("layers:3-1",), "there are layers 0 to 35"),
        (("layers:0-36",), "there are layers 0 to 35"),
        (("vision", "projector", "decoder"), "leaves nothing of qwen3-vl-8b to train"),
    ],
)
def test_a_part_that_is_not_there_is_refused(names, message):
    with pytest.raises(InvalidInput, match=message):
        freeze(QWEN, names)


def test_an_idle_tower_takes_no_time(real):
    from escala.model.images import with_images

    _, idle = result(real, with_images(QWEN, images=0))
    _, busy = result(real, QWEN)

    assert np.isfinite(idle.step_s[0])
    assert idle.step_s[0] < busy.step_s[0]
    assert idle.memory.kinds.weights_bytes[0] == busy.memory.kinds.weights_bytes[0]
