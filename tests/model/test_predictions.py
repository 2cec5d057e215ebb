"""What predicting further tokens adds: layers, a map, norms, and the head once more."""

import pytest

from escala.catalog import networks
from escala.errors import InvalidInput
from escala.model.estimate import estimate
from escala.model.flops import forward_flop
from escala.model.kinds import layer_kinds_of
from escala.model.parameters import block_parameters, network_parameters
from escala.model.plan import Plan, Plans
from escala.model.predictions import with_predictions


def test_prediction_layer_of_deepseek_v3_has_the_published_size():
    # README_WEIGHTS.md of the model: 11.5B unique parameters beside embedding and head
    network = networks.network("deepseek-v3")

    more = network_parameters(with_predictions(network, 1)).total - network_parameters(network).total

    # map 14,336 x 7,168 and three norms beside a layer with experts
    assert more == block_parameters(network.main.blocks[1], 7168).total + 2 * 7168**2 + 3 * 7168
    assert more == pytest.approx(11.5e9, rel=0.01)


def test_a_prediction_costs_its_map_its_block_and_the_head():
    network = networks.network("llama-3-8b")
    products, attention, head = forward_flop(network, 4096)
    more_products, more_attention, more_head = forward_flop(with_predictions(network, 1), 4096)

    assert more_head == 2 * head
    assert more_attention == attention * 33 / 32
    assert more_products == products * 33 / 32 + 2 * 4096 * 2 * 4096**2


def test_layers_of_one_part_predict_by_attention_and_experts(ideal):
    network = with_predictions(networks.network("nemotron-3-nano-30b-a3b"), 2)

    kind = layer_kinds_of(ideal(network), Plan())[-1]

    assert (kind.name, kind.layers) == ("prediction, attention", 2)
    assert [words.split()[0] for words in kind.parts] == ["map", "attention:", "6"]


def test_none_is_the_network_itself():
    network = networks.network("llama-3-8b")

    assert with_predictions(network, 0) is network


@pytest.mark.parametrize(("name", "why"), [("mamba-130m", "no attention"), ("bert-base", "no head for each")])
def test_networks_that_cannot_are_refused(name, why):
    with pytest.raises(InvalidInput, match=why):
        with_predictions(networks.network(name), 1)


def test_logits_of_each_prediction_are_kept(ideal):
    plain = ideal(networks.network("llama-3-8b"))
    more = ideal(with_predictions(networks.network("llama-3-8b"), 1))

    found = [estimate(each, Plans.of(Plan())).memory.kinds.logits_bytes[0] for each in (plain, more)]

    assert found[1] == 2 * found[0]
