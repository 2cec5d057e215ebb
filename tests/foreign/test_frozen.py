"""Plans with frozen parts: who writes them, and who refuses."""

from dataclasses import replace

import pytest
import yaml

from escala.catalog.networks import network
from escala.errors import InvalidInput
from escala.foreign.llamafactory import writing as llamafactory
from escala.foreign.orders import Order, lacking
from escala.foreign.torchtitan import writing as torchtitan
from escala.model.freezing import freeze
from escala.report.train_view import refuse_unrunnable
from foreign.plans import ORDERS


def order(name: str, *parts: str) -> Order:
    given = ORDERS["zero-3-offload"]
    found = network(name)
    workload = replace(given.problem.workload, network=freeze(found, parts) if parts else found)
    return replace(given, problem=replace(given.problem, workload=workload))


@pytest.mark.parametrize(
    ("parts", "vision", "projector", "decoder"),
    [((), False, False, False), (("vision",), True, False, False), (("decoder",), False, False, True)],
)
def test_llamafactory_is_told_of_every_tower(parts, vision, projector, decoder):
    given = order("qwen3-vl-2b", *parts)

    assert lacking(llamafactory.TARGET, given) == []
    settings = yaml.safe_load(llamafactory.write(given)[0].text)
    keys = ("freeze_vision_tower", "freeze_multi_modal_projector", "freeze_language_model")
    assert tuple(settings[key] for key in keys) == (vision, projector, decoder)


def test_networks_without_towers_get_no_such_keys():
    settings = yaml.safe_load(llamafactory.write(order("llama-3.2-1b"))[0].text)

    assert not any(key.startswith("freeze") for key in settings)


def test_parts_that_a_target_cannot_freeze_are_named():
    assert "frozen layers:0-3: it freezes vision, projector, decoder" in lacking(
        llamafactory.TARGET, order("llama-3.2-1b", "layers:0-3")
    )
    assert "frozen embedding: it freezes nothing" in lacking(
        torchtitan.TARGET, order("llama-3.2-1b", "embedding")
    )


def test_training_refuses_frozen_parts_before_anything_is_built():
    given = order("llama-3.2-1b", "layers:0-3")

    with pytest.raises(InvalidInput, match="the plan freezes layers:0-3, and escala train trains all"):
        refuse_unrunnable(given.problem, given.plan)
