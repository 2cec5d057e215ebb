"""Whatever is done to a config: one InvalidInput or a network with positive counts, never another error."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escala.catalog import networks
from escala.errors import InvalidInput
from escala.formats.hf import network_from_config
from escala.model.parameters import active_parameters, network_parameters

SEEDS = {networks.network(name).family: dict(networks.config(name)) for name in networks.names()}
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-2, max_value=64),
    st.sampled_from([2**31, 2**63, 10**40, 4096, 128, 16]),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["full_attention", "BertModel", "basic", "gated-gelu", *SEEDS]),
    st.lists(st.one_of(st.integers(-1, 9), st.text(max_size=3), st.none()), max_size=5),
    st.dictionaries(st.text(max_size=5), st.integers(-1, 9), max_size=2),
)


def places(config: dict[str, Any]) -> list[tuple[str, ...]]:
    nested = [(key, inner) for key, value in config.items() if isinstance(value, dict) for inner in value]
    return [(key,) for key in config] + nested


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    config = copy.deepcopy(SEEDS[draw(st.sampled_from(sorted(SEEDS)))])
    for _ in range(draw(st.integers(1, 3))):
        *outer, key = draw(st.sampled_from(places(config)))
        table = config[outer[0]] if outer else config
        if draw(st.booleans()):
            table[key] = draw(VALUES)
        else:
            table.pop(key)
    return config


@settings(max_examples=400)
@given(mutated())
def test_mutated_config_is_refused_or_counted(config: dict[str, Any]):
    try:
        network = network_from_config(config, "mutated", "test")
    except InvalidInput as error:
        message = str(error)
    else:
        message = ""
        total = network_parameters(network).total
        assert isinstance(total, int)
        assert 0 < active_parameters(network) <= total
        assert network.layers > 0
        assert 1 <= network.stored_bits <= 64

    assert "\n" not in message


@pytest.mark.parametrize("family", sorted(SEEDS))
def test_every_key_can_be_left_out_or_be_refused(family: str):
    for place in places(SEEDS[family]):
        config = copy.deepcopy(SEEDS[family])
        table = config[place[0]] if len(place) == 2 else config
        table.pop(place[-1])
        try:
            network = network_from_config(config, "mutated", "test")
        except InvalidInput:
            continue
        assert network_parameters(network).total > 0
