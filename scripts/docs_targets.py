"""Tables of the targets: what their files can express, and what each makes of plans of different kinds."""

import sys
from collections.abc import Callable, Iterable
from enum import IntEnum
from importlib import import_module
from pathlib import Path
from types import ModuleType

from docs_tables import table

from escala.emitting.targets import writers
from escala.foreign.orders import ANY, Abilities, Order, Target, lacking
from escala.model.plan import Compile, Offload
from escala.model.precision import recipe
from escala.planning.simplicity import describe
from escala.report.planwords import word

ROOT = Path(__file__).resolve().parents[1]
NONE = "–"


def target_matrix() -> str:
    """What every target can express."""
    head = (
        "target",
        "version",
        "ZeRO",
        "TP",
        "PP",
        "CP",
        "EP",
        "number formats",
        "recompute",
        "offload",
        "also",
    )
    return table(head, [_row(each.TARGET) for each in writers().values()])


def _row(target: Target) -> tuple[str, ...]:
    able = target.abilities
    offloads = [
        f"{what}: {_words(kind for kind in kinds if kind is not Offload.NONE)}"
        for what, kinds in (
            ("optimizer", able.offload_optimizer),
            ("weights", able.offload_params),
            ("activations", able.offload_activations),
        )
        if set(kinds) != {Offload.NONE}
    ]
    return (
        f"{_page(target)}",
        target.version,
        ", ".join(map(str, able.zero)) + (" and HSDP" if able.hybrid else ""),
        _degree(able.tp, {(True,): "with SP", (False,): "without SP"}.get(able.sp, "SP or not")),
        _degree(able.pp, _words(able.schedules)),
        _degree(able.cp, _words(able.cp_kinds)),
        _degree(able.ep, "with expert TP" if able.etp > 1 else ""),
        ", ".join(recipe(each).name for each in able.precisions),
        _words(each for each in able.recompute if each) or NONE,
        "; ".join(offloads) or NONE,
        ", ".join(_also(able)) or NONE,
    )


def _page(target: Target) -> str:
    name = f"{Path(target.page).stem}.md"
    there = (ROOT / "docs" / "targets" / name).is_file()
    return f"[{target.name}]({name})" if there else target.name


def _degree(most: int, more: str) -> str:
    if most == 1:
        return NONE
    text = "any" if most == ANY else f"to {most}"
    return f"{text}: {more}" if more else text


def _also(able: Abilities) -> list[str]:
    has = {
        "no reshard": able.no_reshard,
        "compile": any(each is not Compile.OFF for each in able.compiles),
        "fused loss": able.fused_loss,
        "local steps": able.local_steps > 1,
        "orders of ranks": able.placements,
        "images": able.images,
    }
    return [*(str(each) for each in able.methods), *(name for name, is_there in has.items() if is_there)]


def _words(choices: Iterable[IntEnum]) -> str:
    return ", ".join(word(each) for each in choices)


def target_plans() -> str:
    """Targets by plans: written or refused."""
    orders = _orders()
    rows = [
        (_page(each.TARGET), *("–" if lacking(each.TARGET, order) else "✓" for order in orders.values()))
        for each in writers().values()
    ]
    return table(("target", *(str(number) for number in range(1, len(orders) + 1))), rows)


def target_reasons() -> str:
    """Why each target refuses which plans."""
    rows = []
    for each in writers().values():
        found: dict[str, list[str]] = {}
        for number, order in enumerate(_orders().values(), 1):
            for reason in lacking(each.TARGET, order):
                found.setdefault(reason, []).append(str(number))
        rows.append(
            (_page(each.TARGET), "; ".join(f"{reason} ({', '.join(n)})" for reason, n in found.items()))
        )
    return table(("target", "cannot express (plans)"), rows)


def target_plan_list() -> str:
    """The plans that every target is tried with."""
    rows = [
        (
            number,
            name,
            order.problem.workload.network.name,
            str(order.problem.workload.method),
            describe(order.plan),
        )
        for number, (name, order) in enumerate(_orders().items(), 1)
    ]
    return table(("", "kind", "network", "method", "plan"), rows)


def _orders() -> dict[str, Order]:
    sys.path.insert(0, str(ROOT / "tests"))
    plans: ModuleType = import_module("foreign.plans")
    orders: dict[str, Order] = plans.ORDERS
    return orders


TARGET_SECTIONS: dict[str, Callable[[], str]] = {
    "target_matrix": target_matrix,
    "target_plans": target_plans,
    "target_plan_list": target_plan_list,
    "target_reasons": target_reasons,
}
