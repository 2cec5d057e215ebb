import pytest
from hypothesis import given
from hypothesis import strategies as st

from escala.measurement.bench.fits import line_fit, near_mean, overlap, typical_line
from escala.model.lines import line

SIZES = (1024.0, 1048576.0, 268435456.0)


def test_two_points_give_the_line_through_them():
    # 10 us + 2 ns a byte: 1,000 bytes in 12 us, 5,000 in 20 us
    assert line([1000, 5000], [12e-6, 20e-6]) == pytest.approx((10e-6, 2e-9), rel=1e-12)


def test_the_sum_of_squared_relative_errors_is_least():
    # three points: relative residuals of the solution are orthogonal to 1/t and x/t
    x, t = [0.0, 1.0, 2.0], [1.0, 3.0, 4.0]
    alpha, beta = line(x, t)
    residuals = [(alpha + beta * each) / time - 1 for each, time in zip(x, t, strict=True)]

    assert sum(r / time for r, time in zip(residuals, t, strict=True)) == pytest.approx(0, abs=1e-14)
    assert sum(r * each / time for r, each, time in zip(residuals, x, t, strict=True)) == pytest.approx(
        0, abs=1e-14
    )


def test_a_latency_below_zero_becomes_zero_and_the_slope_the_best_without_it():
    # through (1, 1) and (2, 4) the line has alpha -2; alone, beta = sum(x/t) / sum((x/t)^2) = 1.5 / 1.25
    assert line([1, 2], [1, 4]) == pytest.approx((0.0, 1.2), rel=1e-12)


def test_times_that_fall_with_size_have_no_slope():
    # alone, alpha = sum(1/t) / sum(1/t^2) = 1.5 / 1.25
    assert line([1, 2], [2, 1]) == pytest.approx((1.2, 0.0), rel=1e-12)


@given(st.floats(1e-7, 1e-2), st.floats(1e-12, 1e-6))
def test_exact_lines_are_found_again(alpha: float, beta: float):
    found = line(SIZES, [alpha + beta * size for size in SIZES])

    assert [found[0] + found[1] * size for size in SIZES] == pytest.approx(
        [alpha + beta * size for size in SIZES], rel=1e-6
    )


@given(
    st.lists(
        st.lists(st.floats(1e-7, 10.0), min_size=1, max_size=12),
        min_size=3,
        max_size=3,
    )
)
def test_the_interval_holds_the_value_and_nothing_is_below_zero(samples: list[list[float]]):
    fit = line_fit("node", "send", 2, dict(zip(SIZES, samples, strict=True)))

    assert fit is not None
    for each in (fit.alpha_s, fit.beta_s_per_byte):
        assert 0 <= each.low <= each.value <= each.high


def test_the_typical_line_goes_through_means_of_what_was_not_disturbed():
    # two ways to run, 1 and 2 ms, once each; 9 ms is more than three times the best
    assert near_mean([1e-3, 2e-3, 9e-3]) == pytest.approx(1.5e-3, rel=1e-12)


def test_the_typical_line_is_that_of_the_smallest_and_the_two_largest_sizes():
    # 1.5 ms for a small message; 3.5 and 6.5 ms for 1,000 and 3,000 bytes: 2 + 5 ms more for 4,000 bytes
    points = {10.0: [1e-3, 2e-3, 9e-3], 100.0: [7e-3], 1000.0: [3.5e-3], 3000.0: [6.5e-3]}
    fit = line_fit("network", "all-gather", 2, points)

    assert typical_line(points) == pytest.approx((1.5e-3, 7e-3 / 4000), rel=1e-12)
    assert fit is not None
    assert (fit.typical_alpha_s, fit.typical_beta_s_per_byte) == typical_line(points)


def test_large_messages_that_take_no_longer_have_no_slope():
    assert typical_line({10.0: [2e-3], 100.0: [1e-3]}) == (2e-3, 0.0)


def test_the_line_goes_through_the_least_of_many_repeats():
    noisy = {1000.0: [15e-6, 12e-6, 90e-6], 5000.0: [20e-6, 31e-6]}
    fit = line_fit("node", "send", 2, noisy)

    assert fit is not None
    assert (fit.alpha_s.value, fit.beta_s_per_byte.value) == pytest.approx((10e-6, 2e-9), rel=1e-12)
    assert fit.worst_error == pytest.approx(0, abs=1e-12)
    assert fit.alpha_s.high > fit.alpha_s.value


def test_one_size_makes_no_line():
    assert line_fit("node", "send", 2, {1024.0: [1.0]}) is None


def test_hidden_share():
    # 3 s and 2 s take 3.5 s at once: 1.5 of the 2 s are hidden
    assert overlap("node", 1.0, 3.0, 2.0, 3.5).hidden_share == pytest.approx(0.75)
    assert overlap("node", 1.0, 3.0, 2.0, 6.0).hidden_share == 0.0
    assert overlap("node", 1.0, 3.0, 2.0, 2.5).hidden_share == 1.0
