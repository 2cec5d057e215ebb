"""Evenness by hand, and the totals of rounds."""

import numpy as np
import pytest

from escala.federated.fairness import fairness_of, gini, jain
from escala.federated.roundrecord import Round
from escala.federated.summary import Tally


def test_gini_and_jain_by_hand():
    # mean difference of 0, 1, 3 over all pairs: (1 + 3 + 2) * 2 / 9 = 4/3; half of it over the mean 4/3
    assert gini(np.array([1.0, 0.0, 3.0])) == pytest.approx(0.5)
    # 4^2 / (3 * 10)
    assert jain(np.array([1.0, 0.0, 3.0])) == pytest.approx(16 / 30)


def test_ends_of_gini_and_jain():
    even, one = np.full(10, 7.0), np.eye(10)[0]

    assert gini(even) == pytest.approx(0)
    assert jain(even) == pytest.approx(1)
    # one of ten did all: 1 - 1/10, and 1/10
    assert gini(one) == pytest.approx(0.9)
    assert jain(one) == pytest.approx(0.1)


def test_coverage_by_class():
    # class a: 2 of 4 clients with 3 of 4 updates, so 3/4 over 1/2
    found = fairness_of(np.array([2, 1, 1, 0]), np.array([2, 1, 1, 0]), np.array([0, 0, 1, 1]), ["a", "b"])

    assert [(each.name, each.updates_per_share) for each in found.classes] == [("a", 1.5), ("b", 0.5)]
    assert [each.never_asked_share for each in found.classes] == [0.0, 0.5]
    assert found.never_counted_share == 0.25


def record(number: int, returned: tuple[int, ...], lost: dict[str, int], round_s: float) -> Round:
    return Round(
        round=number,
        cohort=(0, 1),
        returned=returned,
        lost=lost,
        down_bytes=20,
        up_bytes=10,
        start_s=100.0 * number,
        round_s=round_s,
        phase_s={"compute": 5.0 * number},
        energy_j={"compute": (1.0, 2.0, 4.0), "server": (0.0, 2.0, 8.0)},
        carbon_kg=(0.1, 0.2, 0.3),
    )


def test_rounds_add_up():
    tally = Tally(np.array([0, 0, 0]), ["a"])

    tally.add(record(1, (0, 1), {}, 10.0))
    tally.add(record(2, (0,), {"late": 1}, 30.0))

    found = tally.result(policy="uniform", engine="events")
    assert (found.asked, found.returned, found.lost) == (4, 3, {"late": 1})
    assert (found.down_bytes, found.up_bytes) == (40, 20)
    assert found.end_s == 230.0
    assert found.total_energy_j == (2.0, 8.0, 24.0)
    assert found.energy_shares == {"compute": 0.5, "server": 0.5}
    assert found.energy_j_per_update == pytest.approx(8 / 3)
    # two updates of 5 s, one of 10 s
    assert found.phase_s["compute"] == pytest.approx(20 / 3)
    assert found.carbon_kg == pytest.approx((0.2, 0.4, 0.6))
