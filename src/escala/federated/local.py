"""Training of one client as it is meant: batches in the order of `order.batches`, plain SGD. Needs torch.

Every other engine has to give the same update; this one is short enough to be read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any, Final

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from escala.errors import InvalidInput
from escala.federated.adapters import adapt
from escala.federated.algorithms import proximal_of
from escala.federated.order import EMPTY, batches, generator
from escala.federated.task import Task
from escala.federated.training import Part, Training
from escala.federated.weights import F32, Weights
from escala.model.columns import I64

CHANCE: Final = 10**6
"""Keeps what modules do by chance apart from the order of samples, which counts epochs from 0."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Update:
    """What a client gives back: its weights, samples, and mean and root mean square of its last losses.

    Losses are those of each sample when it was last trained on. `steps` counts batches.
    """

    weights: Weights
    samples: int
    steps: int
    loss: float
    rms_loss: float


def module_of(task: Task, training: Training) -> nn.Module:
    """The module with the weights of the seed; what `part` does not train is frozen."""
    torch.manual_seed(training.seed)
    module = task.module()
    _refuse_batch_norm(module)
    if training.part is Part.LORA:
        adapt(module)
    if training.part is Part.LAST_LAYERS:
        _freeze_all_but_last(module)
    if not trained(module):
        raise InvalidInput(f"the module of task {task.name} has no parameter that requires a gradient")
    return module


def trained(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that clients train and send, by name."""
    return {name: each for name, each in module.named_parameters() if each.requires_grad}


def weights_of(module: nn.Module) -> Weights:
    """The trained parameters as arrays of their own."""
    return {name: each.detach().cpu().numpy().copy() for name, each in trained(module).items()}


def load(module: nn.Module, weights: Mapping[str, F32]) -> None:
    """Put arrays into the trained parameters."""
    held = trained(module)
    if held.keys() != weights.keys():
        wrong = sorted(held.keys() ^ weights.keys())
        told = ", ".join(wrong[:4])
        raise InvalidInput(f"weights and module differ in names ({told}); use one task for both")
    with torch.no_grad():
        for name, parameter in held.items():
            parameter.copy_(torch.as_tensor(weights[name]))


def train(
    module: nn.Module,
    task: Task,
    rows: I64,
    weights: Mapping[str, F32],
    training: Training,
    *,
    client: int,
    round_: int,
    pull: Mapping[str, F32] | None = None,
) -> Update:
    """SGD on a client's rows from the given weights; `pull` is added to every gradient (SCAFFOLD).

    A batch's loss is the mean over the samples that are in it, also in the last one. FedProx adds
    proximal * (weights - given weights) to the gradient.
    """
    load(module, weights)
    module.train()
    step = _Step(module, training, pull)
    losses = np.zeros(len(rows), np.float64)
    order = batches_of(len(rows), training, client, round_)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(chance_of(training, client, round_))
        for places in order:
            here = places[places != EMPTY]
            each = sample_losses(module, task, rows[here])
            losses[here] = each.detach().cpu().numpy()
            step(each.mean())
    return Update(
        weights=weights_of(module),
        samples=len(rows),
        steps=len(order),
        loss=float(losses.mean()),
        rms_loss=sqrt(float((losses**2).mean())),
    )


class _Step:
    """One step of SGD: weights - learning rate * (gradient + proximal * way from the start + pull)."""

    def __init__(self, module: nn.Module, training: Training, pull: Mapping[str, F32] | None) -> None:
        held = trained(module)
        self._weights = list(held.values())
        self._start = [each.detach().clone() for each in self._weights]
        self._pull = [0.0 if pull is None else tensor(pull[name], module) for name in held]
        self._proximal, self._rate = proximal_of(training), training.learning_rate

    def __call__(self, loss: torch.Tensor) -> None:
        gradients = torch.autograd.grad(loss, self._weights)
        with torch.no_grad():
            for weight, gradient, start, pull in zip(
                self._weights, gradients, self._start, self._pull, strict=True
            ):
                weight.sub_(gradient + self._proximal * (weight - start) + pull, alpha=self._rate)


def chance_of(training: Training, client: int, round_: int) -> int:
    """The seed of what a module does by chance (dropout) at a client in a round."""
    return int(generator(training.seed, client, round_, CHANCE).integers(2**62))


def batches_of(samples: int, training: Training, client: int, round_: int) -> I64:
    """The order in which a client sees its samples in a round. Shape (steps, batch)."""
    return batches(
        samples, training.batch, training.local_epochs, seed=training.seed, client=client, round_=round_
    )


def sample_losses(module: nn.Module, task: Task, rows: I64) -> torch.Tensor:
    """The loss of each of some rows of the samples that clients have."""
    return task.loss(module(tensor(task.inputs[rows], module)), tensor(task.labels[rows], module))


def tensor(array: Any, module: nn.Module) -> torch.Tensor:
    """An array where the module is."""
    return torch.as_tensor(array, device=next(module.parameters()).device)


def _refuse_batch_norm(module: nn.Module) -> None:
    for name, each in module.named_modules():
        if isinstance(each, _BatchNorm):
            raise InvalidInput(
                f"{name or 'the module'} is {type(each).__name__}: its statistics are no weights and differ "
                "between clients; use GroupNorm or LayerNorm (torchvision: norm_layer)"
            )


def _freeze_all_but_last(module: nn.Module) -> None:
    """Only the last module that has parameters of its own is trained."""
    owners = [each for each in module.modules() if next(each.parameters(recurse=False), None) is not None]
    module.requires_grad_(False)
    for parameter in owners[-1].parameters(recurse=False) if owners else ():
        parameter.requires_grad_(True)
