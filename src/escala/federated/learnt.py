"""A scenario whose network is that of a task: its weights, FLOP, bytes of its messages. Needs torch."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import torch
from torch import nn

from escala.federated import local
from escala.federated.codecs import update_bytes
from escala.federated.fates import Payload
from escala.federated.phases import MESSAGE_OVERHEAD_BYTES
from escala.federated.scenario import ClientClass, Learnt, Scenario
from escala.federated.task import Task
from escala.federated.training import Algorithm, Codec, Training
from escala.federated.weights import F32

PLAIN: Final = Codec()


def with_task(scenario: Scenario, task: Task, module: nn.Module) -> Scenario:
    """The scenario as it is when it learns this task; seconds measured for another network are left out."""
    weights = sum(each.numel() for each in module.parameters())
    trained = sum(each.numel() for each in local.trained(module).values())
    if weights == scenario.learnt.weights:
        return replace(scenario, learnt=replace(scenario.learnt, trained_weights=float(trained)))
    learnt = Learnt(
        name=task.name,
        weights=float(weights),
        trained_weights=float(trained),
        forward_flop_per_sample=forward_flop(task, module),
    )
    note = (
        f"what is learnt is {learnt.name} ({learnt.weights:,.0f} weights) in place of the scenario's "
        f"{scenario.learnt.name} ({scenario.learnt.weights:,.0f}): bytes, seconds and joules are its own"
    )
    clients = tuple(_unmeasured(each) for each in scenario.clients)
    return replace(scenario, learnt=learnt, clients=clients, assumed=(note, *scenario.assumed))


def forward_flop(task: Task, module: nn.Module) -> float:
    """FLOP of one sample forward, counted on one."""
    from torch.utils.flop_counter import FlopCounterMode  # loads for seconds

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module.eval()
        module(local.tensor(task.inputs[:1], module))
    return float(counter.get_total_flops())


def on_the_wire(training: Training, weights: Mapping[str, F32]) -> Payload:
    """Bytes of a message each way; SCAFFOLD sends a variate beside the weights, as it is."""
    shapes = {name: each.shape for name, each in weights.items()}
    more = MESSAGE_OVERHEAD_BYTES
    if training.algorithm is Algorithm.SCAFFOLD:
        more += update_bytes(PLAIN, shapes)
    return Payload(
        down_bytes=update_bytes(training.codec_down, shapes) + more,
        up_bytes=update_bytes(training.codec_up, shapes) + more,
    )


def _unmeasured(given: ClientClass) -> ClientClass:
    targets = tuple(replace(each, sample_s=None) for each in given.device.targets)
    return replace(given, device=replace(given.device, targets=targets))
