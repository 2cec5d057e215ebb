"""The plans that all writers are tried with can be run, and are of different kinds."""

import pytest

from escala.foreign.orders import Abilities, Target, lacking
from escala.model.plan import Plans
from escala.model.rejects import Reject, describe, rejects
from foreign.plans import ORDERS
from foreign.round import facts_of

PLAIN = Target(name="plain", title="Plain", version="1", abilities=Abilities(), launch="run", page="plain")


@pytest.mark.parametrize("name", ORDERS)
def test_a_plan_breaks_no_rule(name: str) -> None:
    order = ORDERS[name]
    bits = int(rejects(order.problem, Plans.of(order.plan))[0]) & ~int(Reject.OFFLOAD | Reject.ENGINE)

    assert describe(bits) == []


def test_plans_differ_in_every_technique() -> None:
    facts = [facts_of(order) for order in ORDERS.values()]
    varied = (
        "zero",
        "tp",
        "pp",
        "cp",
        "ep",
        "precision",
        "recompute",
        "offload_optimizer",
        "compile",
        "method",
    )

    assert len(ORDERS) >= 12
    assert {name: len({each[name] for each in facts}) > 1 for name in varied} == dict.fromkeys(varied, True)


def test_a_target_of_data_parallelism_alone_refuses_the_others() -> None:
    refused = {name: bool(lacking(PLAIN, order)) for name, order in ORDERS.items()}

    assert [name for name, is_refused in refused.items() if not is_refused] == ["ddp"]
