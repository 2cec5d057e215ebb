"""The same plans otherwise: recomputed, compiled, with fused loss; and which of them fit."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.model.columns import F64, I64, Bool
from escala.model.estimate import Dealt, deal, memory_of
from escala.model.memory import Memory, Verdict
from escala.model.plan import Plans, Recompute, concatenate
from escala.model.problem import Problem
from escala.planning.space import SpaceLimits, finish_choices, goes_with_offload


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """What a search takes for fitting: a share of the device's memory, a verdict on the host's."""

    device_share: float
    host: Verdict

    def of(self, problem: Problem, memory: Memory) -> Bool:
        """Plans that need no more."""
        on_device = memory.needed_bytes <= self.device_share * problem.accelerator.memory_bytes
        return np.asarray(on_device & (memory.host_verdict <= self.host))


COLUMN_NAMES: Final = tuple(name for name in Plans.__slots__ if name != "splits")


def changed(plans: Plans, **columns: I64 | int) -> Plans:
    """The same plans with some columns replaced, by an array or by one value for all."""
    values = {name: getattr(plans, name) for name in COLUMN_NAMES}
    for name, column in columns.items():
        values[name] = np.broadcast_to(np.asarray(column, np.int64), (len(plans),)).copy()
    return Plans(**values, splits=plans.splits)


def recomputed(plans: Plans, mode: Recompute, layers: I64 | int = 0) -> Plans:
    """The same plans with another recompute mode."""
    return changed(plans, recompute=int(mode), recompute_layers=layers)


def finished(problem: Problem, limits: SpaceLimits, plans: Plans) -> Plans:
    """The same plans compiled and with fused loss where allowed: never slower, never bigger."""
    modes, losses = finish_choices(problem, limits)
    return changed(plans, compile=max(modes, default=0), fused_loss=max(losses, default=0))


def finishes(problem: Problem, limits: SpaceLimits, plans: Plans) -> Plans:
    """Every plan once for each choice of compile and loss."""
    modes, losses = finish_choices(problem, limits)
    pairs = [(mode, loss) for mode in modes for loss in losses]
    return concatenate([changed(plans, compile=mode, fused_loss=loss) for mode, loss in pairs])


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """Finds, for plans, the recompute modes that are worth trying and fit."""

    problem: Problem
    limits: SpaceLimits
    accepted: Accepted

    def allowed(self) -> frozenset[Recompute]:
        """Recompute modes that engine and user allow."""
        lacks = self.problem.lacks
        named = {Recompute.SELECTIVE: "selective", Recompute.FIRST_LAYERS: "first-layers"}
        kept = (
            mode
            for mode in Recompute
            if self.limits.keep("recompute", (int(mode),))
            and goes_with_offload(self.problem, self.limits, mode)
        )
        return frozenset(mode for mode in kept if named.get(mode) not in lacks)

    def of(self, plans: Plans) -> tuple[Plans | None, Plans]:
        """Fitting plans: as they are, else selective, full, or the fewest layers; and those that cannot fit.

        Without recompute a plan is fastest, so other modes are tried only where that does not fit; the fewest
        recomputed layers that fit are the fastest of that kind.
        """
        allowed, found, rest = self.allowed(), [], plans
        needed = np.full(len(plans), np.nan)
        if Recompute.NONE in allowed and len(plans):
            fits, needed = self._tried(plans, deal(self.problem, plans))
            found, rest, needed = [plans.take(fits)], plans.take(~fits), needed[~fits]
        lost = rest
        if len(rest):
            more, lost = self._recomputed(rest, needed, allowed)
            found += more
        parts = [part for part in found if len(part)]
        return (concatenate(parts) if parts else None), lost

    def _recomputed(
        self, plans: Plans, needed: F64, allowed: frozenset[Recompute]
    ) -> tuple[list[Plans], Plans]:
        dealt, found = deal(self.problem, plans), []
        chosen = np.zeros(len(plans), np.bool_)
        for mode in (Recompute.SELECTIVE, Recompute.FULL):
            fits, least = self._tried(recomputed(plans, mode), dealt)
            if mode in allowed:
                found.append(recomputed(plans, mode).take(fits))
                chosen |= fits
        if Recompute.FIRST_LAYERS in allowed:
            rows = np.flatnonzero(fits)
            some, part = self._fewest_layers(plans.take(rows), needed[rows], least[rows])
            found.append(some)
            chosen[rows[part]] = True
        return found, plans.take(~chosen)

    def _tried(self, plans: Plans, dealt: Dealt) -> tuple[Bool, F64]:
        """Whether plans fit, and the bytes that they need."""
        memory = memory_of(self.problem, plans, dealt)
        return self.accepted.of(self.problem, memory), memory.needed_bytes

    def _fewest_layers(self, plans: Plans, needed: F64, least: F64) -> tuple[Plans, Bool]:
        """The fewest layers, below all, whose recompute makes plans fit, and which plans these are.

        Memory falls with each layer, nearly by the same bytes: from what plans need without recompute and
        with all of it the layers are guessed, else halved.
        """
        most = np.maximum(-(-self.problem.workload.network.layers // plans.pp), 1)
        low, high, tries = np.zeros(len(plans), np.int64), most, 0
        limit = self.accepted.device_share * self.problem.accelerator.memory_bytes
        dealt = deal(self.problem, plans) if len(plans) else None
        while dealt is not None and int((high - low).max()) > 1:
            guess = _line(low, high, needed, least, limit) if tries % 3 < 2 else np.nan
            middle = _inside(low, high, guess)
            fits, found = self._tried(recomputed(plans, Recompute.FIRST_LAYERS, middle), dealt)
            high, least = np.where(fits, middle, high), np.where(fits, found, least)
            low, needed = np.where(fits, low, middle), np.where(fits, needed, found)
            tries += 1
        part = high < most
        return recomputed(plans, Recompute.FIRST_LAYERS, high).take(part), part


def _line(low: I64, high: I64, needed: F64, least: F64, limit: float) -> F64:
    """Where a line from the bytes needed at the low end to the least at the high end meets the limit."""
    falls = needed - least
    share = np.divide(needed - limit, falls, out=np.full(len(falls), np.nan), where=falls > 0)
    return np.asarray(low + share * (high - low), np.float64)


def _inside(low: I64, high: I64, guess: F64 | float) -> I64:
    """The guess rounded up, strictly between the ends where there is room; halves where there is none."""
    halves = np.maximum((low + high) // 2, 1)
    wanted = np.ceil(np.where(np.isfinite(guess), guess, halves))
    return np.asarray(np.clip(wanted, low + 1, np.maximum(high - 1, low + 1)), np.int64)
