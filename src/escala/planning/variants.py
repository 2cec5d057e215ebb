"""The same plans otherwise: recomputed, compiled, with fused loss; and which of them fit."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from escala.model.columns import I64, Bool
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
        if Recompute.NONE in allowed and len(plans):
            fits = self._fits(plans, deal(self.problem, plans))
            found, rest = [plans.take(fits)], plans.take(~fits)
        lost = rest
        if len(rest):
            more, lost = self._recomputed(rest, allowed)
            found += more
        parts = [part for part in found if len(part)]
        return (concatenate(parts) if parts else None), lost

    def _recomputed(self, plans: Plans, allowed: frozenset[Recompute]) -> tuple[list[Plans], Plans]:
        dealt, found = deal(self.problem, plans), []
        chosen = np.zeros(len(plans), np.bool_)
        for mode in (Recompute.SELECTIVE, Recompute.FULL):
            fits = self._fits(recomputed(plans, mode), dealt)
            if mode in allowed:
                found.append(recomputed(plans, mode).take(fits))
                chosen |= fits
        if Recompute.FIRST_LAYERS in allowed:
            some, rows = self._fewest_layers(plans, fits)
            found.append(some)
            chosen[rows] = True
        return found, plans.take(~chosen)

    def _fits(self, plans: Plans, dealt: Dealt) -> Bool:
        return self.accepted.of(self.problem, memory_of(self.problem, plans, dealt))

    def _fewest_layers(self, plans: Plans, full_fits: Bool) -> tuple[Plans, I64]:
        """The fewest layers, below all, whose recompute makes plans fit: memory falls with each."""
        rows = np.flatnonzero(full_fits)
        few = plans.take(rows)
        most = np.maximum(-(-self.problem.workload.network.layers // few.pp), 1)
        low, high = np.zeros(len(few), np.int64), most
        dealt = deal(self.problem, few) if len(few) else None
        while dealt is not None and int((high - low).max()) > 1:
            middle = np.maximum((low + high) // 2, 1)
            fits = self._fits(recomputed(few, Recompute.FIRST_LAYERS, middle), dealt)
            high, low = np.where(fits, middle, high), np.where(fits, low, middle)
        part = high < most
        return recomputed(few, Recompute.FIRST_LAYERS, high).take(part), rows[part]
