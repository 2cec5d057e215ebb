import numpy as np
import pytest

from escala.model.scaling import (
    STUDENT_80,
    amdahl_speedup,
    efficiency,
    efficiency_ends,
    fit,
    gustafson_speedup,
    serial_share,
    speedup,
)

RATIOS = np.array([1.0, 2.0, 4.0])


def amdahl_rates(serial: float, ratios: np.ndarray) -> np.ndarray:
    return 1.0 / (serial + (1.0 - serial) / ratios)


def test_efficiency_is_speedup_over_devices_in_terms_of_the_first_point():
    rates, devices = np.array([10.0, 18.0, 30.0]), np.array([2.0, 4.0, 8.0])

    assert speedup(rates).tolist() == [1.0, 1.8, 3.0]
    assert efficiency(rates, devices).tolist() == [1.0, 0.9, 0.75]


def test_quartiles_of_both_points_widen_efficiency():
    # 2 s (1.9 to 2.2) on one device, 1.25 s (1.2 to 1.3) on two: 2 / 1.25 / 2 = 0.8
    step_s, low_s, high_s = np.array([2.0, 1.25]), np.array([1.9, 1.2]), np.array([2.2, 1.3])

    low, high = efficiency_ends(step_s, low_s, high_s, np.array([1.0, 0.8]))

    assert low.tolist() == pytest.approx([1.0, 1.9 / 1.3 / 2], rel=1e-12)
    assert high.tolist() == pytest.approx([1.0, 2.2 / 1.2 / 2], rel=1e-12)


def test_karp_flatt_of_perfect_speedup_is_zero():
    assert serial_share(np.array([2.0, 4.0]), np.array([2.0, 4.0])).tolist() == [0.0, 0.0]


def test_karp_flatt_gives_back_the_share_of_amdahl():
    shares = serial_share(amdahl_rates(0.05, RATIOS), RATIOS)

    assert np.isnan(shares[0])
    assert shares[1:] == pytest.approx(0.05, rel=1e-12)


def test_fit_of_amdahl_gives_back_its_serial_share_exactly():
    # 1 / efficiency = p (s + (1 - s) / p) = 1 + s (p - 1)
    costs, none = 1.0 + 0.05 * (RATIOS - 1.0), np.zeros(3)

    found = fit(RATIOS, costs, none, none, is_weak=False)

    assert [each.cause for each in found.losses] == ["serial", "communication", "waiting"]
    assert found.losses[0].share == pytest.approx(0.05, rel=1e-12)
    assert found.losses[0].share_error == pytest.approx(0.0, abs=1e-12)
    assert [each.share for each in found.losses[1:]] == [0.0, 0.0]
    assert found.cost(np.array([8.0]))[0] == pytest.approx(1.35, rel=1e-12)
    assert found.cost_error(np.array([8.0]))[0] == pytest.approx(0.0, abs=1e-12)


def test_fit_takes_causes_apart_by_their_shares_of_the_step():
    # at p = 2 and 4: serial 0.05 (p - 1), messages 0.1 (p - 1), waiting 0.02 sqrt(2 ln p)
    serial, messages = 0.05 * (RATIOS - 1.0), 0.1 * (RATIOS - 1.0)
    waiting = 0.02 * np.sqrt(2.0 * np.log(RATIOS))
    costs = 1.0 + serial + messages + waiting

    found = fit(RATIOS, costs, messages / costs, waiting / costs, is_weak=False)

    assert [each.share for each in found.losses] == pytest.approx([0.05, 0.1, 0.02], rel=1e-9)
    assert [each.first_share for each in found.losses] == pytest.approx([1.0, 0.0, 0.0], abs=1e-12)


def test_messages_of_weak_scaling_grow_as_a_ring():
    # (p - 1) / p = 1/2 and 3/4 of 0.2
    costs = np.array([1.0, 1.1, 1.15])

    found = fit(RATIOS, costs, 1.0 - 1.0 / costs, np.zeros(3), is_weak=True)

    assert found.losses[1].share == pytest.approx(0.2, rel=1e-12)


def test_interval_is_the_error_of_a_slope_times_student():
    # increases 0.1 and 0.2 on growth 1 and 3: share = (0.1 + 0.6) / 10 = 0.07, left 0.03 and -0.01
    found = fit(RATIOS, np.array([1.0, 1.1, 1.2]), None, None, is_weak=False)

    error = np.sqrt((0.03**2 + 0.01**2) / 1 / 10)
    assert [each.cause for each in found.losses] == ["all together"]
    assert found.losses[0].share == pytest.approx(0.07, rel=1e-12)
    assert found.losses[0].share_error == pytest.approx(error, rel=1e-9)
    assert found.cost_error(np.array([8.0]))[0] == pytest.approx(STUDENT_80[0] * error * 7, rel=1e-9)


def test_two_points_give_shares_without_an_interval_and_one_gives_none():
    two = fit(RATIOS[:2], np.array([1.0, 1.1]), None, None, is_weak=False)

    assert two.losses[0].share == pytest.approx(0.1, rel=1e-12)
    assert two.cost_error(np.array([4.0])) is None
    assert fit(RATIOS[:1], np.ones(1), None, None, is_weak=False) is None


def test_amdahl_ends_at_one_over_the_serial_share():
    # f = 0.05: 1 / (0.05 + 0.95 / 19) = 10 on 19 devices, at most 20
    assert amdahl_speedup(0.05, np.array([1.0, 19.0, np.inf])) == pytest.approx([1.0, 10.0, 20.0], rel=1e-12)


def test_gustafson_grows_with_the_devices():
    # 64 - 0.05 * 63 = 60.85
    assert gustafson_speedup(0.05, np.array([1.0, 64.0])) == pytest.approx([1.0, 60.85], rel=1e-12)


def test_karp_flatt_finds_the_share_that_amdahl_put_in():
    ratios = np.array([2.0, 8.0, 64.0])

    assert serial_share(amdahl_speedup(0.03, ratios), ratios) == pytest.approx([0.03] * 3, rel=1e-9)
