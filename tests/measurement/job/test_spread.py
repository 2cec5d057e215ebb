import pytest

from escala.measurement.job.spread import spread


def test_below_six_samples_no_interval_is_sure_enough():
    # 2 / 2^5 = 6 % of the cases have all five on one side of the true median
    found = spread([1.0, 5.0, 3.0, 2.0, 4.0])

    assert (found.median, found.low, found.high, found.samples) == (3.0, None, None, 5)


def test_six_samples_reach_from_the_smallest_to_the_largest():
    # 2 / 2^6 = 3 % is below 5 %
    found = spread([6.0, 1.0, 5.0, 2.0, 4.0, 3.0])

    assert (found.median, found.low, found.high) == (3.5, 1.0, 6.0)


@pytest.mark.parametrize(("samples", "depth"), [(8, 1), (9, 2), (11, 2), (12, 3), (20, 6)])
def test_more_samples_leave_out_as_many_at_each_end_as_the_sign_test_allows(samples: int, depth: int):
    # 9: 2 (1 + 9) / 2^9 = 3.9 %; 12: 2 (1 + 12 + 66) / 2^12 = 3.9 %; 20: 2 * 21,700 / 2^20 = 4.1 %
    found = spread([float(each) for each in range(1, samples + 1)])

    assert (found.low, found.high) == (depth, samples + 1 - depth)


def test_one_sample_is_its_own_median():
    assert spread([2.5]).median == pytest.approx(2.5)
