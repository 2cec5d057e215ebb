import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escala.model.columns import distinct, doublings, soft_maximum


def test_distinct_rows_by_hand():
    first, group = distinct([np.array([1, 1, 2, 1]), np.array([5, 6, 5, 5])])

    # rows 0 and 3 are (1, 5), row 1 is (1, 6), row 2 is (2, 5)
    assert first.tolist() == [0, 1, 2]
    assert group.tolist() == [0, 1, 2, 0]


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 2), st.integers(100, 102)), min_size=1, max_size=40)
)
def test_distinct_gives_every_row_back(rows):
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]

    first, group = distinct(columns)

    assert [tuple(int(c[first[g]]) for c in columns) for g in group] == rows
    assert len(first) == len(set(rows))


def test_distinct_rows_of_columns_that_are_too_wide_for_one_integer():
    # ten columns of 0 and 2^20: 2^200 codes
    columns = [np.array([0, 2**20, 0, 2**20, 0]) for _ in range(9)] + [np.array([0, 0, 2**20, 0, 0])]

    first, group = distinct(columns)

    assert first.tolist() == [0, 2, 1]
    assert group.tolist() == [0, 2, 1, 2, 0]


def test_rows_without_difference_are_one():
    first, group = distinct([np.array([7, 7, 7]), np.array([0, 0, 0])])

    assert first.tolist() == [0]
    assert group.tolist() == [0, 0, 0]


def test_no_rows_have_no_distinct_row():
    first, group = distinct([np.empty(0, np.int64)])

    assert len(first) == len(group) == 0


def test_soft_maximum_of_equal_sides():
    # (3^2 + 3^2)^(1/2) = 3 * sqrt(2)
    assert soft_maximum(np.array([3.0]), np.array([3.0]), 2.0)[0] == pytest.approx(3 * 2**0.5, rel=1e-12)


def test_soft_maximum_of_three_and_four():
    assert soft_maximum(np.array([3.0]), np.array([4.0]), 2.0)[0] == pytest.approx(5.0, rel=1e-12)


def test_soft_maximum_with_zero_is_the_other():
    assert soft_maximum(np.array([0.0, 7.0]), np.array([0.0, 0.0]), 3.0).tolist() == [0.0, 7.0]


@given(a=st.floats(0, 1e6), b=st.floats(0, 1e6), power=st.floats(1, 20))
def test_soft_maximum_lies_between_maximum_and_sum(a, b, power):
    soft = soft_maximum(np.array([a]), np.array([b]), power)[0]

    assert max(a, b) <= soft <= (a + b) * (1 + 1e-12)


def test_doublings():
    assert doublings(np.array([1, 2, 8, 1024])).tolist() == [0, 1, 3, 10]


def test_fewer_than_one_has_no_doubling():
    assert doublings(np.array([0.125, 0.0])).tolist() == [0, 0]
