"""Widths of intervals: what assumed fields add, and coverage by construction."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from escala.calibration import Reading
from escala.calibration.widths import ASSUMED, assumed_width, ratio_that_covers, widened

LEAST, MOST = 1.03, 10.0


def test_one_assumed_field_is_its_factor():
    assert assumed_width(["padding"]) == pytest.approx(math.log(1.2), rel=1e-12)


def test_assumed_fields_add_in_squares():
    both = math.sqrt(math.log(1.3) ** 2 + math.log(1.2) ** 2)

    assert assumed_width(["micro-batch", "padding"]) == pytest.approx(both, rel=1e-12)
    assert widened(1.5, ["micro-batch", "padding"]) == pytest.approx(
        math.exp(math.sqrt(math.log(1.5) ** 2 + both**2)), rel=1e-12
    )


def test_a_field_that_says_little_of_the_step_adds_nothing():
    assert assumed_width(["link", "device memory"]) == 0.0
    assert widened(1.2, ["link"]) == pytest.approx(1.2, rel=1e-12)


def test_without_errors_the_noise_of_repeats_remains(reading: Reading):
    assert ratio_that_covers(np.zeros(3), [reading] * 3) == pytest.approx(LEAST, rel=1e-12)


def test_errors_that_assumed_fields_explain_leave_the_noise_of_repeats(reading: Reading):
    assumed = replace(reading, imputed=("padding",))

    assert ratio_that_covers(np.full(3, math.log(1.19)), [assumed] * 3) == pytest.approx(LEAST, rel=1e-12)


def test_no_interval_is_wider_than_ten(reading: Reading):
    assert ratio_that_covers(np.full(3, 9.0), [reading] * 3) == pytest.approx(MOST, rel=1e-12)


def test_the_ninth_of_ten_errors_is_the_width(reading: Reading):
    # the 80 % quantile of ten lies between the eighth and the ninth: the higher one
    errors = np.array([0.1, -0.2, 0.3, -0.4, 0.5, -0.6, 0.7, -0.8, 0.9, -1.0])

    assert ratio_that_covers(errors, [reading] * 10) == pytest.approx(math.exp(0.9), rel=1e-12)


IMPUTED = st.sets(st.sampled_from([*ASSUMED, "link"]), max_size=3).map(lambda names: tuple(sorted(names)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(st.floats(-2.0, 2.0), IMPUTED), min_size=1, max_size=30))
def test_four_of_five_rows_lie_in_their_interval(reading: Reading, rows):
    readings = [replace(reading, imputed=imputed) for _, imputed in rows]
    errors = np.array([error for error, _ in rows])

    ratio = ratio_that_covers(errors, readings)

    inside = [abs(e) <= math.log(widened(ratio, names)) * (1 + 1e-12) for e, names in rows]
    assert sum(inside) >= 0.8 * len(rows)
    assert LEAST * (1 - 1e-12) <= ratio <= MOST
