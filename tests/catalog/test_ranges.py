from dataclasses import fields

from escala.catalog.engines import assumption_settings, assumptions
from escala.catalog.ranges import assumption_ends


def test_every_shared_constant_lies_inside_its_range():
    low, high = assumption_ends()

    for each in fields(assumptions()):
        value = getattr(assumptions(), each.name)
        assert getattr(low, each.name) <= value <= getattr(high, each.name)


def test_the_ends_are_those_of_the_catalog():
    low, high = assumption_ends()
    given = assumption_settings()["power_idle_share"]

    assert (low.power_idle_share, high.power_idle_share) == (given.low, given.high) == (0.2, 0.4)
