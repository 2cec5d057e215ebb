import pytest

from escala.calibration import Row, read_rows
from escala.calibration.curves import curves, nearest


def row(name: str, devices: int, batch: int, rate: float, **more: object) -> Row:
    given = {"source": "a paper", "model": "net", "tp": 1, "pp": 1, "device_tokens_per_s": rate, **more}
    return Row(id=name, devices=devices, global_batch=batch, **given)


def test_rows_with_one_batch_are_a_strong_curve_and_with_one_a_device_a_weak_one():
    strong = [row("a", 8, 64, 100.0), row("b", 32, 64, 81.0)]
    weak = [row("c", 8, 8, 100.0, model="other"), row("d", 16, 16, 95.0, model="other")]

    found = {each.network: each for each in curves(strong + weak)}

    assert (found["net"].is_weak, found["net"].devices) == (False, (8, 32))
    assert found["net"].efficiency == pytest.approx((1.0, 0.81), rel=1e-12)
    assert found["net"].per_doubling == pytest.approx(0.9, rel=1e-12)  # two doublings: sqrt(0.81)
    assert (found["other"].is_weak, found["other"].efficiency) == (True, (1.0, 0.95))


def test_rows_that_differ_in_more_than_devices_are_no_curve():
    for change in ({"tp": 2}, {"micro_batch": 2}, {"precision": "fp8"}, {"source": "another"}):
        assert not curves([row("a", 8, 64, 100.0), row("b", 16, 64, 90.0, **change)])


def test_rows_of_low_trust_and_of_unknown_degrees_are_no_curve():
    assert not curves([row("a", 8, 64, 100.0), row("b", 16, 64, 90.0, trust="low")])
    assert not curves([row("a", 8, 64, 100.0, tp=None), row("b", 16, 64, 90.0, tp=None)])


def test_shipped_rows_hold_curves_of_the_kind_that_is_asked_for_one_a_network():
    found = nearest(read_rows().rows, is_weak=False, has_experts=False, is_data_parallel=True, devices=1)

    assert found
    assert all(not each.is_weak and not each.has_experts and each.is_data_parallel for each in found)
    assert len({(each.source, each.network) for each in found}) == len(found)
