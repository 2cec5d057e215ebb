"""The numbers that a fit may move: data/free.toml. What each touches, and how far it may go from its record.

A parameter is the logarithm of a factor on one field of accelerators, engines or the shared assumptions; 0 is
the value of the record. Knows the pieces of a problem, nothing of rows or errors.
"""

import math
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from escala.catalog.fitted import fitted
from escala.catalog.loader import read_toml
from escala.model.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """One free number: `sd` is the prior standard deviation of the factor's logarithm.

    `names` are accelerators, architectures or engines; empty means all of them.
    """

    name: str
    of: str
    names: tuple[str, ...]
    field: str
    sd: float

    def touches(self, problem: Problem) -> bool:
        """Whether the problem has an entry that this number belongs to."""
        chip = problem.accelerator
        known = {"accelerator": {chip.name, chip.architecture}, "engine": {problem.engine.name}}.get(
            self.of, set()
        )
        return self._value(problem) is not None and (not self.names or not known.isdisjoint(self.names))

    def on(self, problem: Problem, logarithm: float) -> Problem:
        """The problem with this number at exp(logarithm) times its record's value."""
        value = self._value(problem)
        if value is None:
            return problem
        return self._replaced(problem, value / self.present * math.exp(logarithm))

    @property
    def present(self) -> float:
        """The factor that the catalog already holds."""
        return next((each.factor for each in fitted().factors if each.name == self.name), 1.0)

    def _value(self, problem: Problem) -> float | None:
        owner = {
            "accelerator": problem.accelerator,
            "engine": problem.engine.time,
            "assumption": problem.assumptions,
        }[self.of]
        value: float | None = getattr(owner, self.field)
        return value

    def _replaced(self, problem: Problem, value: float) -> Problem:
        change: dict[str, Any] = {self.field: value}
        if self.of == "assumption":
            return replace(problem, assumptions=replace(problem.assumptions, **change))
        if self.of == "engine":
            time = replace(problem.engine.time, **change)
            return replace(problem, engine=replace(problem.engine, time=time))
        group = problem.cluster.groups[0]
        chip = replace(group, accelerator=replace(group.accelerator, **change))
        return replace(problem, cluster=replace(problem.cluster, groups=(chip, *problem.cluster.groups[1:])))


def free_parameters() -> tuple[Free, ...]:
    """Every number that the fit may move, in the order of the file."""
    tables = read_toml(files("escala.calibration") / "data" / "free.toml")
    return tuple(_parameter(table) for table in tables["parameter"])


def _parameter(table: dict[str, Any]) -> Free:
    names = tuple(table.get("names", ()))
    label = table.get("label") or "+".join(names) or "all"
    return Free(
        name=f"{table['of']}.{label}.{table['field']}",
        of=table["of"],
        names=names,
        field=table["field"],
        sd=float(table["sd"]),
    )
