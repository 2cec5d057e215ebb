import numpy as np
import pytest

from escala.errors import InvalidInput
from escala.model.targets import (
    Critical,
    LearningRateRule,
    critical_tokens,
    excess_share,
    fitted_critical,
    fitted_scale,
    learning_rate_ratio,
    learning_rate_rule,
    samples_ratio,
    samples_to_target,
    steps_to_target,
)
from escala.model.workload import Optimizer, OptimizerKind


def test_a_critical_batch_takes_twice_the_fewest_steps_and_samples():
    # 1,000 steps of 100 samples at least: at batch 100, 2 * 1,000 steps, 2 * 100,000 samples
    assert steps_to_target(1000.0, 100.0, np.array([100.0]))[0] == 2000.0
    assert samples_to_target(100_000.0, 100.0, np.array([100.0]))[0] == 200_000.0


def test_samples_are_steps_times_the_batch():
    batch = np.array([1.0, 64.0, 100.0, 1e6])

    steps, samples = steps_to_target(1000.0, 100.0, batch), samples_to_target(1e5, 100.0, batch)

    assert samples == pytest.approx(steps * batch, rel=1e-12)


def test_small_batches_halve_the_steps_and_large_ones_save_none():
    steps = steps_to_target(1.0, 1e4, np.array([1.0, 2.0, 1e9, 2e9]))

    assert steps[0] / steps[1] == pytest.approx(2.0, rel=1e-3)
    assert steps[2] / steps[3] == pytest.approx(1.0, rel=1e-4)


def test_samples_over_those_of_a_reference_batch():
    # critical 100: (100 + 300) / (100 + 100) = 2; without an end 1; without any signal batch / reference
    batch = np.array([300.0])

    assert samples_ratio(100.0, batch, 100.0)[0] == 2.0
    assert samples_ratio(np.inf, batch, 100.0)[0] == 1.0
    assert samples_ratio(0.0, batch, 100.0)[0] == 3.0


def test_a_fifth_of_the_critical_batch_costs_a_fifth_more_samples():
    assert excess_share(500.0, 100.0) == 0.2
    assert excess_share(0.0, 100.0) == np.inf


def test_the_fit_finds_the_batch_that_made_the_samples():
    batches = np.array([16.0, 256.0, 4096.0])

    critical, fewest = fitted_critical(batches, samples_to_target(5e6, 900.0, batches))

    assert (critical, fewest) == pytest.approx((900.0, 5e6), rel=1e-9)


def test_samples_that_fall_with_the_batch_are_refused():
    with pytest.raises(InvalidInput, match="do not rise"):
        fitted_critical(np.array([1.0, 2.0]), np.array([100.0, 50.0]))


def test_the_scale_is_a_geometric_mean():
    # 4 / 4^0.5 = 2 and 32 / 16^0.5 = 8: sqrt(2 * 8) = 4
    assert fitted_scale(np.array([4.0, 16.0]), np.array([4.0, 32.0]), 0.5) == pytest.approx(4.0, rel=1e-12)


def test_the_law_counts_the_fewest_tokens():
    # fewest = 100 / (1 + 10 / critical), critical = sqrt(fewest): critical^2 + 10 critical = 100
    found = critical_tokens(1.0, 0.5, 100.0, 10.0)

    assert found**2 + 10 * found == pytest.approx(100.0, rel=1e-9)
    assert critical_tokens(1.0, 0.5, 100.0, 0.0) == pytest.approx(10.0, rel=1e-12)


def test_the_learning_rate_follows_the_batch_or_its_root():
    assert learning_rate_rule(Optimizer(kind=OptimizerKind.SGD, moments=1)) is LearningRateRule.LINEAR
    assert learning_rate_rule(Optimizer()) is LearningRateRule.SQUARE_ROOT
    assert learning_rate_ratio(LearningRateRule.LINEAR, 4.0) == 4.0
    assert learning_rate_ratio(LearningRateRule.SQUARE_ROOT, 4.0) == 2.0


def test_a_range_holds_its_batch():
    with pytest.raises(InvalidInput, match="not inside"):
        Critical(batch=10.0, low=20.0, high=30.0, source="test")
    assert Critical(batch=10.0, low=1.0, high=None, source="test").ends == (1.0, np.inf)
