"""plan.json: one plan with everything needed to predict it again. Reads and writes, without loss.

The network stands by its name where the catalog has the same one, else with its whole shape. The cluster is
always written out, so that a plan means the same after the catalog has changed; a calibration with own runs
stands beside it, and the cluster as it was before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from escala import __version__
from escala.catalog import engine
from escala.catalog import networks as catalog
from escala.catalog.engines import assumptions
from escala.catalog.loader import shown
from escala.errors import InvalidInput, spoken, unknown
from escala.formats.files import read_keys
from escala.formats.other_files import refuse_other
from escala.formats.record_keys import choices, keys_of, record_of, table_of
from escala.model.cluster import Cluster
from escala.model.network import Network
from escala.model.own_numbers import with_own, without_own
from escala.model.plan import Plan
from escala.model.problem import Problem
from escala.model.workload import Workload
from escala.planning.search import TOLERANCE, Objective
from escala.planning.space import SpaceLimits
from escala.report.calibration_file import calibration_of
from escala.report.limits import refuse_impossible
from escala.report.planwords import narrowed, objective_of, plan_keys, plan_of, text_of
from escala.wholefile import write_whole

SCHEMA: Final = "escala/plan-file@1"
LAST_SCHEMA: Final = "escala/last-run@1"
COMMON: Final = ("schema", "escala", "workload", "cluster", "engine", "search")
OWN: Final = "calibration"
PLAN_KEYS: Final = (*COMMON, OWN, "plan", "estimate")
LAST_KEYS: Final = (*COMMON, OWN, "plans", "recommended")
SEARCH_KEYS: Final = ("fix", "all_placements", "objective", "tolerance")


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """How the plan was searched for: what was narrowed, what was minimised."""

    limits: SpaceLimits = field(default_factory=SpaceLimits)
    objective: Objective = Objective.TIME
    tolerance: float = TOLERANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """What a file holds: the problem, the plans (one in a plan.json) and which of them was recommended."""

    problem: Problem
    plans: tuple[Plan, ...]
    recommended: int = 0
    searched: Searched = field(default_factory=Searched)
    estimate: Mapping[str, Any] = field(default_factory=dict)


def write_plan(file: PlanFile, path: Path) -> None:
    """Write the recommended plan; the file appears whole or not at all."""
    write_whole(path, plan_bytes(file, file.recommended))


def plan_bytes(file: PlanFile, row: int) -> bytes:
    """One plan as it stands in a plan.json."""
    return _json_bytes(plan_document(file, row))


def plan_document(file: PlanFile, row: int) -> dict[str, Any]:
    """One plan with everything that a plan.json has."""
    document = {**_common(file, SCHEMA), "plan": plan_keys(file.plans[row])}
    return {**document, "estimate": dict(file.estimate)}


def digest_of(file: PlanFile, row: int) -> str:
    """A name of one plan with its problem: the hash of its document without the estimate."""
    document = {name: each for name, each in plan_document(file, row).items() if name != "estimate"}
    return sha256(msgspec.json.encode(document, order="sorted")).hexdigest()[:12]


def write_last(file: PlanFile, path: Path) -> None:
    """Write all plans of the last run, so that they can be explained by number."""
    plans = [plan_keys(plan) for plan in file.plans]
    _write_json(path, {**_common(file, LAST_SCHEMA), "plans": plans, "recommended": file.recommended})


def read_plan(path: str | Path) -> PlanFile:
    """A plan.json, or the saved plans of the last run."""
    return plan_file_of(read_keys(Path(path)), str(path))


def plan_file_of(keys: Mapping[str, Any], where: str) -> PlanFile:
    """The plans that the keys of a plan.json hold; `where` names the place in messages."""
    schema = keys.get("schema")
    refuse_other(keys, where, SCHEMA)
    if schema not in (SCHEMA, LAST_SCHEMA):
        raise InvalidInput(f"{where}: schema is {spoken(schema)}; this escala reads '{SCHEMA}'")
    _known(keys, PLAN_KEYS if schema == SCHEMA else LAST_KEYS, where)
    plans = _plans(keys, where)
    searched = _searched(table_of(keys.get("search", {}), f"{where}: search"), plans[0], f"{where}: search")
    problem = _problem(keys, where)
    refuse_impossible(problem, plans, where)
    return PlanFile(
        problem=problem,
        plans=plans,
        recommended=_index(keys.get("recommended", 0), len(plans), where),
        searched=searched,
        estimate=table_of(keys.get("estimate", {}), f"{where}: estimate"),
    )


def _write_json(path: Path, document: Any) -> None:
    write_whole(path, _json_bytes(document))


def _json_bytes(document: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _common(file: PlanFile, schema: str) -> dict[str, Any]:
    problem, searched, own = without_own(file.problem), file.searched, file.problem.own
    workload = keys_of(problem.workload)
    return {
        "schema": schema,
        "escala": __version__,
        "workload": {**workload, "network": network_keys(problem.workload.network)},
        "cluster": keys_of(problem.cluster),
        "engine": problem.engine.name,
        "search": {
            "fix": _fix(searched.limits),
            "all_placements": searched.limits.all_placements,
            "objective": str(searched.objective),
            "tolerance": searched.tolerance,
        },
        **({} if own is None else {OWN: keys_of(own.runs)}),
    }


def network_keys(network: Network) -> dict[str, Any]:
    """A reference to the catalog where it has this very network, else the whole shape."""
    if network.name in catalog.names() and catalog.network(network.name) == network:
        return {"catalog": network.name}
    return {"shape": keys_of(network)}


def _fix(limits: SpaceLimits) -> list[str]:
    return [
        f"{name}={','.join(text_of(name, each) for each in values)}" for name, values in limits.fixed.items()
    ]


def _plans(keys: Mapping[str, Any], where: str) -> tuple[Plan, ...]:
    given = keys.get("plans", [keys.get("plan")])
    if not isinstance(given, list) or not given:
        raise InvalidInput(f"{where}: plans is no list of plans")
    return tuple(plan_of(table_of(each, f"{where}: plan"), f"{where}: plan") for each in given)


def _problem(keys: Mapping[str, Any], where: str) -> Problem:
    problem = Problem(
        workload=_workload(table_of(keys.get("workload"), f"{where}: workload"), f"{where}: workload"),
        cluster=record_of(Cluster, keys.get("cluster"), f"{where}: cluster"),
        engine=engine(str(keys.get("engine", "pytorch"))),
        assumptions=assumptions(),
    )
    if OWN not in keys:
        return problem
    place = f"{where}: {OWN}"
    return with_own(problem, calibration_of(table_of(keys[OWN], place), place))


def _workload(table: Mapping[str, Any], where: str) -> Workload:
    network = _network(table_of(table.get("network"), f"{where}.network"), f"{where}.network")
    # the shape is read apart, since a reference to the catalog may stand for it
    return record_of(Workload, {**table, "network": keys_of(network)}, where)


def _network(table: Mapping[str, Any], where: str) -> Network:
    _known(table, ("catalog", "shape"), where)
    if "catalog" in table:
        return catalog.network(str(table["catalog"]))
    return record_of(Network, table.get("shape"), f"{where}.shape")


def _searched(table: Mapping[str, Any], plan: Plan, where: str) -> Searched:
    _known(table, SEARCH_KEYS, where)
    fix, all_placements = table.get("fix", []), table.get("all_placements", False)
    if not isinstance(fix, list) or not isinstance(all_placements, bool):
        raise InvalidInput(f"{where}: fix has to be a list of texts and all_placements true or false")
    limits = SpaceLimits(
        fixed=narrowed(tuple(str(each) for each in fix)),
        precision=plan.precision,
        all_placements=all_placements,
    )
    tolerance = table.get("tolerance", TOLERANCE)
    if not isinstance(tolerance, int | float) or not 0 <= tolerance <= 1:
        raise InvalidInput(f"{where}: tolerance is {spoken(tolerance)}; give a number from 0 to 1")
    objective = objective_of(str(table.get("objective", "time")))
    return Searched(limits=limits, objective=objective, tolerance=float(tolerance))


def _index(given: object, plans: int, where: str) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given < plans:
        raise InvalidInput(f"{where}: recommended is {spoken(given)}; there are plans 0 to {plans - 1}")
    return given


def _known(table: Mapping[str, Any], allowed: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in allowed:
            raise unknown("key", shown(str(key)), allowed, f"it stands in {where}; {choices(allowed)}")
