import pytest
from hypothesis import given
from hypothesis import strategies as st

from escala.measurement.bench.ladder import product
from escala.measurement.bench.samples import MOST_HELD, Subject, held, slowest, thinned, timed

SECONDS = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=200)


@given(SECONDS)
def test_thinned_samples_are_few_and_keep_the_least(samples: list[float]):
    kept = thinned(samples)

    assert len(kept) == min(len(samples), 32)
    assert min(kept) == min(samples)
    assert set(kept) <= set(samples)


def test_held_samples_stay_bounded_and_keep_the_least():
    found: list[float] = []
    for _ in range(10):
        found = held(found, [0.5, *[1.0] * 999])

    assert len(found) <= MOST_HELD + 1
    assert min(found) == 0.5


def test_the_slowest_rank_is_found_for_every_name():
    assert slowest([{"a": 1.0, "b": 3.0}, {"a": 2.0, "b": 1.0}, {"a": 1.5}]) == {"a": 1, "b": 0}


def test_rates_are_those_of_the_best():
    subject = Subject(part="gemm", name="x", flop=6e9, payload_bytes=3e9)
    record = timed(subject, [3.0, 1.5, 2.0], 1, 1.0)

    assert (record.best_s, record.median_s, record.repeats) == (1.5, 2.0, 3)
    assert (record.flop_per_s, record.bytes_per_s) == (pytest.approx(4e9), pytest.approx(2e9))
    assert (record.slowest_rank, record.fastest_best_s) == (1, 1.0)


def test_the_first_rung_multiplies():
    assert product([[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]) == [[19.0, 22.0], [43.0, 50.0]]
