"""Training of many clients at once: one step of all of them is one step of stacked weights. Needs torch.

Gives each client the update of `local.train`, up to rounding. Modules that cannot be stacked are refused by
`Stacked` with the reason; `trainer_of` then trains client after client.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, vmap

from escala.federated import local
from escala.federated.algorithms import proximal_of
from escala.federated.imagelayout import ChannelsLast
from escala.federated.order import EMPTY
from escala.federated.task import Task
from escala.federated.training import Training
from escala.federated.updates import Updates
from escala.federated.weights import F32, Weights, less, stacked, weights_bytes
from escala.model.columns import F64, I64

MOST_CLIENTS: Final = 50
"""Fewer lose to the interpreter, more to the processor's caches; measured on one core of two."""
MOST_BYTES: Final = 2**28
"""What the stacked weights, gradients and activations of clients trained at once may take, about."""
COPIES: Final = 4
"""Weights, gradients, the change and what an optimizer's step needs meanwhile."""
ACTIVATIONS: Final = 128
"""Bytes kept for the backward pass per byte of input; an assumption, that of the convolutions of digits."""
CLOSE: Final = 1e-3
"""Relative difference of gradients that rounding explains."""


class Trainer(Protocol):
    """Trains clients from the same weights, a part of them at a time, in any order."""

    def __call__(
        self, rows: Mapping[int, I64], weights: Weights, round_: int, pulls: Mapping[int, Weights]
    ) -> Iterator[Updates]:
        """Updates of the clients that have rows."""
        ...


def trainer_of(module: nn.Module, task: Task, training: Training, say: Callable[[str], None]) -> Trainer:
    """Clients at once where the module can be stacked; else one after the other, and why is said."""
    found = why_not(module, task)
    if found is None:
        return Stacked(module, task, training)
    say(f"clients are trained one after the other: {found}")
    return OneByOne(module, task, training)


def why_not(module: nn.Module, task: Task) -> str | None:
    """Why clients cannot be trained at once; tried on two samples that differ, with a third that is empty."""
    rows = np.array([0, len(task) - 1])
    stack = _Stack(module, task, local.weights_of(module), 2)
    module.train()
    try:
        filled = np.array([[*rows, 0], [*rows[::-1], 0]])
        at_once = stack.gradients(filled, np.array([[0.5, 0.5, 0.0]] * 2), 2)[0]
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        return str(error).strip().partition("\n")[0]
    loss = local.sample_losses(module, task, rows).mean()
    alone = torch.autograd.grad(loss, list(local.trained(module).values()))
    for many, one in zip(at_once, alone, strict=True):
        if not torch.allclose(many, one.expand_as(many), rtol=CLOSE, atol=CLOSE * float(one.abs().max())):
            return "samples of a batch act on each other, or the module does something by chance"
    return None


class OneByOne:
    """Trains client after client as `local.train` does."""

    def __init__(self, module: nn.Module, task: Task, training: Training) -> None:
        self._module, self._task, self._training = module, task, training

    def __call__(
        self, rows: Mapping[int, I64], weights: Weights, round_: int, pulls: Mapping[int, Weights]
    ) -> Iterator[Updates]:
        """Updates of the clients that have rows, each by itself."""
        for client, held in rows.items():
            update = local.train(
                self._module,
                self._task,
                held,
                weights,
                self._training,
                client=client,
                round_=round_,
                pull=pulls.get(client),
            )
            yield Updates(
                clients=np.array([client]),
                changes=stacked([less(update.weights, weights)]),
                samples=np.array([update.samples]),
                steps=np.array([update.steps]),
                loss=np.array([update.loss]),
                rms_loss=np.array([update.rms_loss]),
            )


class Stacked:
    """Trains so many clients at once as memory allows, those with the most steps first."""

    def __init__(self, module: nn.Module, task: Task, training: Training) -> None:
        self._module, self._task, self._training = module, task, training
        input_bytes = task.inputs[0].nbytes * training.batch * ACTIVATIONS
        client_bytes = COPIES * weights_bytes(local.weights_of(module)) + input_bytes
        self.at_once = int(np.clip(MOST_BYTES // client_bytes, 1, MOST_CLIENTS))

    def __call__(
        self, rows: Mapping[int, I64], weights: Weights, round_: int, pulls: Mapping[int, Weights]
    ) -> Iterator[Updates]:
        """Updates of the clients that have rows, `at_once` at a time."""
        self._module.train()
        longest_first = sorted(rows, key=lambda client: -len(rows[client]))
        for first in range(0, len(longest_first), self.at_once):
            clients = longest_first[first : first + self.at_once]
            yield self._part(clients, [rows[each] for each in clients], weights, round_, pulls)

    def _part(
        self,
        clients: list[int],
        rows: list[I64],
        weights: Weights,
        round_: int,
        pulls: Mapping[int, Weights],
    ) -> Updates:
        plan = _plan(clients, rows, self._training, round_)
        stack = _Stack(self._module, self._task, weights, len(clients))
        pull = stack.placed(stacked([pulls[each] for each in clients])) if pulls else None
        for step in range(len(plan.rows)):
            active = int(plan.active[step])
            gradients, losses = stack.gradients(plan.rows[step, :active], plan.shares[step, :active], active)
            plan.learnt(step, losses.detach().double().cpu().numpy())
            stack.step(gradients, self._training, pull)
        return Updates(
            clients=np.array(clients),
            changes=stack.changes(),
            samples=plan.samples,
            steps=plan.steps,
            loss=plan.loss / plan.samples,
            rms_loss=np.sqrt(plan.square / plan.samples),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Plan:
    """Which rows each client sees in each step and what each counts; what their last losses add up to.

    Shapes: rows, shares (steps, clients, batch); active (steps,): clients that still have a batch, which
    stand first; others (clients,). `shares` is 1 / samples of the batch, 0 at empty places.
    """

    rows: I64
    shares: F32
    active: I64
    samples: I64
    steps: I64
    last: I64
    loss: F64
    square: F64

    def learnt(self, step: int, losses: F64) -> None:
        """Add up the losses of a step that belongs to a client's last epoch. Shape (active, batch)."""
        active = len(losses)
        is_last = (step >= self.last[:active])[:, None] & (self.shares[step, :active] > 0)
        self.loss[:active] += np.where(is_last, losses, 0.0).sum(axis=1)
        self.square[:active] += np.where(is_last, losses**2, 0.0).sum(axis=1)


def _plan(clients: Sequence[int], rows: Sequence[I64], training: Training, round_: int) -> _Plan:
    orders = [
        local.batches_of(len(held), training, client, round_)
        for client, held in zip(clients, rows, strict=True)
    ]
    steps = np.array([len(order) for order in orders])
    places = np.full((steps.max(), len(clients), training.batch), EMPTY, np.int64)
    for at, order in enumerate(orders):
        places[: len(order), at] = order
    is_filled = places != EMPTY
    filled = np.stack([held[places[:, at]] for at, held in enumerate(rows)], axis=1)
    counts = np.maximum(is_filled.sum(axis=2, keepdims=True), 1)
    return _Plan(
        rows=np.where(is_filled, filled, filled[:, :, :1]),
        shares=(is_filled / counts).astype(np.float32),
        active=is_filled.any(axis=2).sum(axis=1),
        samples=np.array([len(held) for held in rows]),
        steps=steps,
        last=steps - steps // training.local_epochs,
        loss=np.zeros(len(clients)),
        square=np.zeros(len(clients)),
    )


class _Stack:
    """Weights of several clients, each a row of every trained parameter; frozen ones are the module's."""

    def __init__(self, module: nn.Module, task: Task, weights: Weights, clients: int) -> None:
        self._module, self._task = module, task
        self._names = list(weights)
        self._given = [local.tensor(weights[name], module) for name in self._names]
        self._held = [each.expand(clients, *each.shape).clone() for each in self._given]
        self._outputs = vmap(self._outputs_of_one)

    def gradients(self, rows: I64, shares: F32, active: int) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Gradients of the first clients, each of its batch loss; losses of samples, (active, batch)."""
        leaves = [each[:active].detach().requires_grad_() for each in self._held]
        inputs = local.tensor(self._task.inputs[rows], self._module)
        labels = local.tensor(self._task.labels[rows], self._module)
        with ChannelsLast():
            outputs = self._outputs(dict(zip(self._names, leaves, strict=True)), inputs)
        losses = self._task.loss(outputs.flatten(0, 1), labels.flatten(0, 1)).unflatten(0, shares.shape)
        # clients do not meet in this sum, so its gradient holds that of each
        total = (losses * local.tensor(shares, self._module)).sum()
        return torch.autograd.grad(total, leaves), losses

    def step(
        self, gradients: Sequence[torch.Tensor], training: Training, pull: Sequence[torch.Tensor] | None
    ) -> None:
        """SGD of the clients that have a gradient, as of `local`."""
        active, proximal = len(gradients[0]), proximal_of(training)
        for at, (held, given, gradient) in enumerate(zip(self._held, self._given, gradients, strict=True)):
            whole = gradient
            if proximal:
                whole = whole + proximal * (held[:active] - given)
            if pull is not None:
                whole = whole + pull[at][:active]
            held[:active].sub_(whole, alpha=training.learning_rate)

    def placed(self, many: Weights) -> list[torch.Tensor]:
        """Stacked arrays as tensors in the order of the parameters."""
        return [local.tensor(many[name], self._module) for name in self._names]

    def changes(self) -> Weights:
        """Weights of every client less those that all were given."""
        pairs = zip(self._names, self._held, self._given, strict=True)
        return {name: held.sub_(given).cpu().numpy() for name, held, given in pairs}

    def _outputs_of_one(self, weights: dict[str, torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
        return functional_call(self._module, weights, (inputs,))
