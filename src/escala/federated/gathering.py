"""The updates of one round as they come: checked, packed and unpacked, added up. NumPy only.

Added up part by part, so that a round of many clients stays small; kept where a rule has to see all of them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from escala.federated.algorithms import counts_of, divisor_of, own_control, pull_of, shares_of
from escala.federated.codecs import pack, unpack
from escala.federated.learnstate import Heard, State
from escala.federated.order import SERVER, generator
from escala.federated.privacy import locally_private, private_mean
from escala.federated.references import masks
from escala.federated.robust import robust_mean
from escala.federated.training import Algorithm, Robust, Training
from escala.federated.updates import Updates, joined, of_rows, row
from escala.federated.weights import F32, Weights, less, moved, stacked, weighted_sum, zeros
from escala.model.columns import F64

NOISE: Final = 1 << 43
"""Keeps noise apart from the other random numbers of server and clients."""


class Gathered:
    """Updates of one round, and what follows from them for the server and for the clients that sent them.

    `controls` and `residuals` are the new ones of clients of this round, `invalid` those whose numbers are
    not finite and do not count.
    """

    def __init__(self, training: Training, round_: int, state: State) -> None:
        self._training, self._round, self._state = training, round_, state
        self._parts: list[Updates] = []
        self._counts: list[F64] = []
        self._sum: Weights | None = None
        self._turned: list[Weights] = []
        self.controls: dict[int, Weights] = {}
        self.residuals: dict[int, Weights] = {}
        self.invalid: set[int] = set()

    def pulls(self, clients: list[int]) -> dict[int, Weights]:
        """What SCAFFOLD adds to the gradients of clients; nothing for others."""
        if self._training.algorithm is not Algorithm.SCAFFOLD:
            return {}
        return {each: pull_of(self._state.server, self._own(each)) for each in clients}

    def take(self, part: Updates, staleness: int) -> None:
        """Some more updates."""
        is_finite = part.are_finite()
        self.invalid |= set(part.clients[~is_finite].tolist())
        part = of_rows(part, is_finite)
        if not len(part.clients):
            return
        self._turn(part)
        sent = self._sent(part)
        counts = counts_of(self._training, part.samples, np.full(len(part.clients), staleness))
        self._counts.append(counts)
        self._parts.append(replace(part, changes=sent if self._needs_all else {}))
        if not self._needs_all:
            more = weighted_sum(sent, counts)
            self._sum = more if self._sum is None else moved(self._sum, more, 1.0)

    def change(self) -> Weights | None:
        """The step of the weights that these updates ask for; nothing where there are none.

        With noise of the server there is always one, which tells nobody that no client came.
        """
        privacy = self._training.privacy
        if privacy is not None and privacy.place == "central":
            noise = generator(self._training.seed, SERVER, self._round, NOISE)
            changes = joined(self._parts) if self._parts else stacked([zeros(self._state.server.weights)])
            return private_mean(changes, privacy, self._training.clients_per_round, noise)
        if not self._parts:
            return None
        counts = np.concatenate(self._counts)
        if self._sum is None:
            return robust_mean(self._training, joined(self._parts), shares_of(self._training, counts))
        divisor = np.float32(divisor_of(self._training, counts))
        return {name: each / divisor for name, each in self._sum.items()}

    def turned(self) -> Weights | None:
        """By how much variates of clients moved, stacked; nothing where clients keep none."""
        return stacked(self._turned) if self._turned else None

    def heard(self) -> Heard:
        """Losses that clients told."""
        clients = [each.clients for each in self._parts]
        losses = [each.rms_loss for each in self._parts]
        return np.concatenate([np.zeros(0, np.int64), *clients]), np.concatenate([np.zeros(0), *losses])

    def told(self) -> dict[str, float]:
        """Mean training loss over all samples."""
        samples = sum(int(each.samples.sum()) for each in self._parts)
        total = sum(float((each.samples * each.loss).sum()) for each in self._parts)
        return {"train_loss": total / samples} if samples else {}

    @property
    def _needs_all(self) -> bool:
        privacy = self._training.privacy
        is_central = privacy is not None and privacy.place == "central"
        return self._training.robust is not Robust.MEAN or is_central

    def _own(self, client: int) -> Weights:
        own = self._state.controls.get(client)
        return zeros(self._state.server.control) if own is None else own

    def _turn(self, part: Updates) -> None:
        """The variates of clients after their training."""
        if self._training.algorithm is not Algorithm.SCAFFOLD:
            return
        for at, client in enumerate(part.clients.tolist()):
            own = self._own(client)
            pull, steps = pull_of(self._state.server, own), int(part.steps[at])
            self.controls[client] = own_control(self._training, pull, row(part.changes, at), steps)
            self._turned.append(less(self.controls[client], own))

    def _sent(self, part: Updates) -> Weights:
        """Changes as the server reads them, after noise and codec of every client."""
        privacy, codec = self._training.privacy, self._training.codec_up
        is_local = privacy is not None and privacy.place == "local"
        if codec.kind == "none" and not is_local:
            return part.changes
        clients = part.clients.tolist()
        return stacked([self._one_sent(row(part.changes, at), each) for at, each in enumerate(clients)])

    def _one_sent(self, change: Weights, client: int) -> Weights:
        training, shapes = self._training, {name: each.shape for name, each in change.items()}
        if training.privacy is not None and training.privacy.place == "local":
            noise = generator(training.seed, client, self._round, NOISE)
            change = locally_private(change, training.privacy, noise)
        residuals: Mapping[str, F32] = self._state.residuals.get(client, {})
        mask = masks(training.seed, self._round, is_up=True)
        packed, left = pack(training.codec_up, change, residuals, mask)
        if left:
            self.residuals[client] = left
        return unpack(training.codec_up, packed, shapes)
