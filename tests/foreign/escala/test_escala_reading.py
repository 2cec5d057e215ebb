"""escala's own plan.json gives every fact of its plan."""

from pathlib import Path

import pytest

from escala.foreign.findings import Severity
from escala.foreign.jobs import read_job
from escala.model.plan import Recompute
from foreign.plans import ORDERS
from foreign.round import facts_of, plan_file

BESIDE = ("learning_rate", "steps")
"""What is no part of a plan."""


@pytest.mark.parametrize("name", ORDERS)
def test_a_plan_says_every_fact_of_itself(name: str, tmp_path: Path) -> None:
    order = ORDERS[name]

    job = read_job([plan_file(order, tmp_path)], {}, {})

    wanted = {name: value for name, value in facts_of(order).items() if name not in BESIDE}
    assert {name: job.value(name) for name in wanted} == wanted
    assert job.value("device") == order.problem.accelerator.name
    assert [each.engine for each in job.readings] == [order.problem.engine.name]
    assert [each for each in job.findings if each.severity is Severity.ERROR] == []


def test_layers_are_said_where_some_are_recomputed(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(
        '{"schema": "escala/plan-file@1", "plan": {"recompute": "first-layers", "recompute_layers": 4}}'
    )

    job = read_job([str(path)], {}, {})

    assert job.value("recompute") == Recompute.FIRST_LAYERS.name.lower().replace("_", "-")
    assert job.value("recompute_layers") == 4


@pytest.mark.parametrize("text", ['{"schema": "escala/last-run@1"}', '{"plan": {"dp": 2}}', '{"schema": 3}'])
def test_other_files_are_not_plans(text: str, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(text)

    assert read_job([str(tmp_path / "other.json")], {}, {}).readings == ()


@pytest.mark.parametrize("plan", ["3", "[]", '{"dp": "x", "zero": []}', '{"dp": 2, "shard": {}}'])
def test_a_broken_plan_is_read_without_a_traceback(plan: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(f'{{"schema": "escala/plan-file@1", "plan": {plan}}}')

    assert read_job([str(tmp_path / "plan.json")], {}, {}).value("tp") is None
