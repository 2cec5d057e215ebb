import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escala.measurement.profile.intervals import both, closed, holds, total_s, union, without

moments = st.integers(0, 40)
raw_spans = st.lists(st.tuples(moments, moments), max_size=12).map(
    lambda pairs: np.array([sorted(pair) for pair in pairs], float).reshape(-1, 2)
)


def spans(*pairs: tuple[float, float]) -> np.ndarray:
    return np.array(pairs, float).reshape(-1, 2)


def points(given: np.ndarray) -> set[int]:
    """The unit cells that whole-numbered spans cover."""
    return {cell for start, end in given for cell in range(int(start), int(end))}


def test_union_joins_what_overlaps_or_touches():
    assert union(spans((5, 7), (0, 2)), spans((1, 3), (3, 4))).tolist() == [[0, 4], [5, 7]]


def test_union_drops_empty_spans():
    assert len(union(spans((2, 2)))) == 0


def test_difference_cuts_holes():
    assert without(spans((0, 10)), spans((2, 3), (5, 6))).tolist() == [[0, 2], [3, 5], [6, 10]]


def test_gaps_up_to_the_given_length_are_filled():
    assert closed(spans((0, 1), (2, 3), (5, 6)), 1.0).tolist() == [[0, 3], [5, 6]]


def test_a_span_holds_its_start_and_not_its_end():
    assert holds(spans((1, 2), (3, 4)), np.array([0.5, 1, 2, 3.5, 4])).tolist() == [
        False,
        True,
        False,
        True,
        False,
    ]


def test_nothing_holds_nothing():
    assert not holds(spans(), np.array([1.0])).any()


@given(raw_spans, raw_spans)
def test_sets_of_spans_are_sets_of_moments(one: np.ndarray, other: np.ndarray):
    a, b = union(one), union(other)

    assert points(union(a, b)) == points(a) | points(b)
    assert points(both(a, b)) == points(a) & points(b)
    assert points(without(a, b)) == points(a) - points(b)


@given(raw_spans, raw_spans)
def test_a_set_is_what_it_shares_and_what_it_does_not(one: np.ndarray, other: np.ndarray):
    a, b = union(one), union(other)

    assert total_s(both(a, b)) + total_s(without(a, b)) == pytest.approx(total_s(a), rel=1e-12)
