"""The noise scale by hand, and from gradients whose noise is known."""

import numpy as np
import pytest

from escala.errors import InvalidInput
from escala.training.noise import (
    Lengths,
    Noise,
    noise_trace,
    squared_signal,
)


def test_signal_and_noise_by_hand():
    # |G|^2 = 4, tr(S) = 48: 8 samples give 4 + 48 / 8 = 10, 32 samples 4 + 48 / 32 = 5.5
    lengths = Lengths(few=8, many=32, few_squared_norm=10.0, many_squared_norm=5.5)

    assert squared_signal(lengths) == pytest.approx(4.0, rel=1e-12)  # (32 * 5.5 - 8 * 10) / 24
    assert noise_trace(lengths) == pytest.approx(48.0, rel=1e-12)  # 4.5 / (1/8 - 1/32)
    assert Noise().after(lengths).batch == pytest.approx(12.0, rel=1e-12)  # 48 / 4


def test_parts_are_averaged_before_they_are_divided():
    first = Lengths(few=1, many=2, few_squared_norm=3.0, many_squared_norm=2.0)  # signal 1, noise 2
    second = Lengths(few=1, many=2, few_squared_norm=5.0, many_squared_norm=4.0)  # signal 3, noise 2

    noise = Noise().after(first).after(second)

    assert noise.batch == pytest.approx(2.0 / 2.0, rel=1e-12)  # not the mean of 2 and 2/3


def test_no_batch_is_suggested_while_the_signal_drowns():
    drowned = Lengths(few=1, many=2, few_squared_norm=4.0, many_squared_norm=1.0)  # signal -2

    assert Noise().after(drowned).batch is None


def drawn(made: np.random.Generator, steps: int) -> Noise:
    """Noise of 50 weights, gradient 0.1 each, deviation 1: the scale is 50 / 0.5 = 100 samples."""
    noise = Noise()
    for _ in range(steps):
        few, rest = (0.1 + made.normal(size=50) / np.sqrt(each) for each in (64, 192))
        many = (64 * few + 192 * rest) / 256
        noise = noise.after(
            Lengths(few=64, many=256, few_squared_norm=few @ few, many_squared_norm=many @ many)
        )
    return noise


def test_four_of_five_intervals_hold_the_noise_scale():
    made = np.random.default_rng(5)

    found = [drawn(made, 30).estimate for _ in range(400)]

    inside = [each.low <= 100 <= (each.high or np.inf) for each in found]
    assert np.mean(inside) == pytest.approx(0.8, abs=0.06)  # 3 deviations of 400 draws


def test_where_the_signal_may_be_none_there_is_no_upper_end():
    # signals -3 and 4 in turn, noise 8: the mean 0.5 is within its own scatter, 3.5 / sqrt(23) = 0.73, of 0
    weak = [Lengths(few=1, many=2, few_squared_norm=8 + each, many_squared_norm=4 + each) for each in (-3, 4)]
    noise = Noise()
    for number in range(24):
        noise = noise.after(weak[number % 2])

    assert [(squared_signal(each), noise_trace(each)) for each in weak] == [(-3, 8), (4, 8)]
    assert noise.estimate is not None
    assert noise.estimate.high is None
    assert 0 < noise.estimate.low < noise.estimate.batch == pytest.approx(8 / 0.5, rel=1e-12)


def test_few_steps_tell_no_number():
    made = np.random.default_rng(5)

    assert drawn(made, 19).batch is not None
    assert drawn(made, 19).estimate is None


def test_one_batch_size_tells_nothing():
    with pytest.raises(InvalidInput, match="cannot be compared"):
        Lengths(few=8, many=8, few_squared_norm=1.0, many_squared_norm=1.0)


def test_the_noise_of_random_gradients_is_found():
    # 50 weights, gradient 0.1 each: |G|^2 = 0.5; deviation 1 each: tr(S) = 50; noise scale 100 samples
    made, noise = np.random.default_rng(3), Noise()
    for _ in range(4000):
        few, rest = (0.1 + made.normal(size=50) / np.sqrt(each) for each in (16, 48))
        many = (16 * few + 48 * rest) / 64
        lengths = Lengths(few=16, many=64, few_squared_norm=few @ few, many_squared_norm=many @ many)
        noise = Noise(
            signal=noise.signal + squared_signal(lengths) / 4000,
            trace=noise.trace + noise_trace(lengths) / 4000,
        )

    assert noise.batch == pytest.approx(100, rel=0.1)  # deviation of the estimate: 3 %
