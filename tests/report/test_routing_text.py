"""A risk of a mixture of experts says what uneven routing may add."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from escala.model.host import PLACES
from escala.report.answer import PlanView
from escala.report.figures_text import out_of_memory

GIB = 2.0**30


def text(probability: float, routing_bytes: float) -> str:
    memory = SimpleNamespace(routing=routing_bytes)
    plan: Any = SimpleNamespace(
        memory_bytes=memory, out_of_memory_probability=probability, plan=dict.fromkeys(PLACES, "none")
    )
    return out_of_memory(cast(PlanView, plan)).plain


def test_a_risk_names_uneven_routing():
    assert text(0.3, 4 * GIB).endswith("uneven routing up to +4.0 GiB")


@pytest.mark.parametrize(("probability", "routing_bytes"), [(0.01, 4 * GIB), (0.3, 0.0), (0.3, 0.1 * GIB)])
def test_no_risk_or_little_routing_is_not_named(probability: float, routing_bytes: float):
    assert "routing" not in text(probability, routing_bytes)
