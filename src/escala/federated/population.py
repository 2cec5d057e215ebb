"""A fleet in the course of a run: who is there, who is busy, what is charged, what is remembered.

Time is the run's own clock: seconds since a midnight in UTC. Knows no rule by which a round ends.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from escala.errors import InvalidInput
from escala.federated.batteries import Batteries
from escala.federated.codecs import packed_bytes, tensors_bytes
from escala.federated.fates import Fates, Payload, ServerLink, draws_of, fates, starts_of
from escala.federated.fleet import HOURS, Fleet, no_history
from escala.federated.footprint import Footprint
from escala.federated.scenario import Learnt, Scenario
from escala.federated.selection import choose
from escala.federated.training import Codec, Training
from escala.federated.transport import waits_s
from escala.model.columns import F64, I64, Bool
from escala.units import DAY_S, HOUR_S

LONGEST_WAIT_S: Final = 2 * DAY_S


class Population:
    """Clients of one run and what rounds did to them."""

    def __init__(self, scenario: Scenario, fleet: Fleet) -> None:
        self.scenario, self.training, self.fleet = scenario, scenario.training, fleet
        self.history = no_history(len(fleet))
        self.payload = payload_of(scenario)
        self.footprint = Footprint(scenario, fleet)
        self._batteries = Batteries(fleet)
        self._busy_until_s = np.zeros(len(fleet))
        self._charge_j = fleet.battery_j

    def here(self, now_s: float) -> Bool:
        """Clients in their hours, not known to be busy, with charge enough."""
        is_here = self.fleet.hours[:, hour_of(now_s)].copy()
        if self.scenario.transport.knows_busy:
            is_here &= self._busy_until_s <= now_s
        if self._batteries.are_there:
            self._charge_j = self._batteries.charge_j(now_s)
            self.history.charge_ratio = self._batteries.charge_ratio(self._charge_j)
            is_here &= self._batteries.are_willing(self.history.charge_ratio)
        return is_here

    def opened(self, now_s: float, least: int) -> tuple[float, Bool]:
        """The time from which on so many clients are here, and who they are."""
        began_s, found = now_s, self.here(now_s)
        while found.sum() < least:
            next_hour_s = (now_s // HOUR_S + 1) * HOUR_S
            busy = self._busy_until_s[self._busy_until_s > now_s]
            now_s = min(next_hour_s, float(busy.min())) if busy.size else next_hour_s
            if now_s - began_s > LONGEST_WAIT_S:
                raise InvalidInput(
                    f"for two days there were never {least:,} clients at a time; widen their hours, or ask"
                    " for fewer (clients_per_round, least_clients)"
                )
            found = self.here(now_s)
        return now_s, found

    def cohort(self, is_here: Bool, now_s: float, *, draw: int, training: Training | None = None) -> I64:
        """The clients that are asked at this time; `draw` is the number of the round, or of the choice."""
        return choose(
            training or self.training,
            self.fleet,
            self.history,
            is_here,
            round_=draw,
            hour=hour_of(now_s),
        )

    def ask(self, clients: I64, now_s: float, *, draw: int, at_once: int) -> Fates:
        """What becomes of a cohort that is asked now; so many clients share the server's link.

        Who still works, or does not look for messages now, begins later.
        """
        transport = self.scenario.transport
        waits = waits_s(transport, self._busy_until_s[clients], now_s)
        link = self.scenario.central.access
        draws = draws_of(self.training.seed, draw, len(self.fleet))[clients]
        ended = fates(
            self.fleet,
            clients,
            self.payload,
            ServerLink(
                down_bytes_per_s=link.down_bytes_per_s.mid,
                up_bytes_per_s=link.up_bytes_per_s.mid,
                clients=at_once,
            ),
            epochs=self.training.local_epochs,
            transport=transport,
            start_s=now_s + waits,
            charge_j=self._charge_j[clients],
            draws=draws,
            starts=starts_of(self.training.seed, draw),
        )
        return replace(ended, end_s=waits + ended.end_s)

    def asked(self, ended: Fates, start_s: float) -> None:
        """Remember a cohort: who was asked, until when it is busy, what that drains."""
        clients, until_s = ended.clients, start_s + ended.end_s
        self.history.chosen[clients] += 1
        self._busy_until_s[clients] = until_s
        if self._batteries.are_there:
            self._batteries.drain(clients, ended.battery_j, self._charge_j, until_s)

    def returned(self, round_: int, clients: I64 | int, took_s: F64 | float) -> None:
        """Remember whose updates count, and how long they took; while nobody tells losses, all are alike."""
        history = self.history
        history.last_round[clients] = round_
        history.round_s[clients] = took_s
        history.loss[clients] = np.where(history.loss[clients] > 0, history.loss[clients], 1.0)


def payload_of(scenario: Scenario) -> Payload:
    """Bytes of a message each way: what the codec packs, and what carries it beside."""
    learnt, training, transport = scenario.learnt, scenario.training, scenario.transport
    down, up = (weights_bytes(learnt, codec) for codec in (training.codec_down, training.codec_up))
    return Payload(
        down_bytes=round(transport.framing * down + transport.down_overhead_bytes),
        up_bytes=round(transport.framing * up + transport.up_overhead_bytes),
    )


def weights_bytes(learnt: Learnt, codec: Codec) -> int:
    """What a codec packs of the trained weights: exact where the shapes of tensors are known.

    Of weights only their number is known otherwise, so they are packed as one tensor; without a codec they
    are sent as wide as they are.
    """
    if learnt.shapes:
        return tensors_bytes(codec, learnt.shapes)
    if codec.kind == "none":
        return round(learnt.trained_weights * learnt.weight_bytes)
    return packed_bytes(codec, (round(learnt.trained_weights),))


def hour_of(now_s: float) -> int:
    """The hour of the day, UTC."""
    return int(now_s // HOUR_S) % HOURS
