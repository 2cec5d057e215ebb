"""What is written for torchtitan is read back as the plan; what it cannot express is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from escala.foreign.orders import lacking
from escala.foreign.torchtitan import writing
from escala.model.plan import ContextKind, Plan
from foreign.plans import ORDERS
from foreign.round import assert_written_or_refused
from foreign.torchtitan.orders import MORE, order

WRITTEN = {"single-device", "ddp", "fsdp", "hsdp", "fsdp-tp-sp"}


@pytest.mark.parametrize("name", ORDERS)
def test_plans_come_back_or_are_refused_with_reasons(name: str, tmp_path: Path) -> None:
    assert assert_written_or_refused(writing, ORDERS[name], tmp_path) == (name in WRITTEN)


@pytest.mark.parametrize("name", MORE)
def test_plans_of_its_own_kinds_come_back(name: str, tmp_path: Path) -> None:
    assert lacking(writing.TARGET, MORE[name]) == []
    assert assert_written_or_refused(writing, MORE[name], tmp_path)


@pytest.mark.parametrize(
    ("name", "plan", "reason"),
    [
        ("llama-3.1-8b", Plan(tp=16), "tp 16 for 8 KV heads"),
        ("llama-3.2-1b", Plan(pp=2), "embedding and head are one weight"),
        ("mistral-7b", Plan(), "the network mistral-7b"),
        (
            "llama-3.1-8b",
            Plan(dp=2, cp=2, cp_kind=ContextKind.ALL_GATHER),
            "replicas with context parallelism",
        ),
    ],
)
def test_combinations_that_torchtitan_refuses_are_refused_before(name: str, plan: Plan, reason: str) -> None:
    one = order("llama-3.1-8b", Plan())
    given = replace(order(name, Plan()), plan=plan, digest=one.digest)

    assert any(reason in each for each in lacking(writing.TARGET, given))
