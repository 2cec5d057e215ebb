"""When a round ends: exact expectations beside hand arithmetic and beside draws."""

import numpy as np
import pytest

from escala.federated.returns import Cohort, at_least, expected_counted, expected_end_s

approx = pytest.approx


def cohort(
    times: list[float],
    chances: list[float],
    counts: list[float],
    asked: int,
    wanted: int,
    deadline_s: float | None = None,
) -> Cohort:
    return Cohort(
        times_s=np.array(times)[:, None],
        chances=np.array(chances)[:, None],
        counts=np.array(counts),
        asked=asked,
        wanted=wanted,
        deadline_s=deadline_s,
    )


def test_chance_of_at_least_two_of_three():
    # 3 * 0.5^2 * 0.5 + 0.5^3 = 0.5; none wanted is certain, four of three is impossible
    assert at_least(np.array([0.5]), 3, 2)[0] == approx(0.5, rel=1e-12)
    assert at_least(np.array([0.0, 0.5, 1.0]), 3, 0).tolist() == [1, 1, 1]
    assert at_least(np.array([0.0, 0.5, 1.0]), 3, 4).tolist() == [0, 0, 0]
    assert at_least(np.array([0.0, 1.0]), 3, 3).tolist() == [0, 1]


def test_a_round_of_two_waits_for_the_slower():
    # fast (1 s) and slow (2 s) alike often: both fast 1/4 -> 1 s, else 2 s
    assert expected_end_s(cohort([1, 2], [1, 1], [500, 500], 2, 2)) == approx(1.75, rel=1e-12)


def test_with_over_selection_the_first_is_enough():
    # one of two is wanted: both slow 1/4 -> 2 s, else 1 s
    assert expected_end_s(cohort([1, 2], [1, 1], [500, 500], 2, 1)) == approx(1.25, rel=1e-12)


def test_where_everyone_is_asked_the_slow_class_is_always_there():
    assert expected_end_s(cohort([1, 2], [1, 1], [1, 1], 2, 2)) == approx(2.0, rel=1e-12)
    assert expected_end_s(cohort([1, 2], [1, 1], [1, 1], 2, 1)) == approx(1.0, rel=1e-12)


def test_a_lost_client_is_not_waited_for():
    # each returns with 0.8: none 0.04 -> 0 s; slowest of those that return
    # fast alone 2 * 0.4 * 0.2 + both fast 0.16 = 0.32 -> 1 s; the rest 0.64 -> 2 s
    found = expected_end_s(cohort([1, 2], [0.8, 0.8], [500, 500], 2, 2))

    assert found == approx(0.32 * 1 + 0.64 * 2, rel=1e-12)


def test_a_deadline_cuts():
    # both fast 1/4 -> 1 s, else 1.5 s instead of 2 s
    found = expected_end_s(cohort([1, 2], [1, 1], [500, 500], 2, 2, deadline_s=1.5))

    assert found == approx(0.25 * 1 + 0.75 * 1.5, rel=1e-12)


def test_clients_that_count_by_hand():
    # two asked, each back with 0.5, one wanted: 0 with 1/4, else 1
    assert expected_counted(0.5, 2, 1) == approx(0.75, rel=1e-12)
    # three asked, two wanted: 0 * 1/8 + 1 * 3/8 + 2 * 4/8
    assert expected_counted(0.5, 3, 2) == approx(1.375, rel=1e-12)


@pytest.mark.parametrize("is_everyone", [False, True])
def test_the_expectation_is_the_mean_of_draws(is_everyone: bool):
    generator, draws = np.random.default_rng(0), 40_000
    times, chances, counts = np.array([3.0, 5.0, 9.0]), np.array([0.9, 0.8, 0.95]), np.array([3, 6, 4])
    kinds = (
        np.broadcast_to(np.repeat(np.arange(3), counts), (draws, 13))
        if is_everyone
        else generator.choice(3, (draws, 13), p=counts / 13)
    )
    back = np.where(generator.random((draws, 13)) < chances[kinds], times[kinds], np.inf)
    ordered = np.sort(back, axis=1)
    last = np.where(np.isfinite(ordered), ordered, 0.0).max(axis=1)
    deadline_s = 30.0 if is_everyone else 8.0
    ends = np.minimum(np.where(np.isfinite(ordered[:, 6]), ordered[:, 6], last), deadline_s)

    scale = 1.0 if is_everyone else 1e6
    found = expected_end_s(cohort(list(times), list(chances), list(counts * scale), 13, 7, deadline_s))

    assert found == approx(ends.mean(), abs=4 * ends.std() / np.sqrt(draws))
