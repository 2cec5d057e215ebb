"""Learning rates by hand."""

import pytest

from escala.training.job import Decay, Rate
from escala.training.rates import learning_rate


def test_warm_up_rises_to_the_highest_by_equal_steps():
    rate = Rate(highest=4.0, warmup_steps=4)

    assert [learning_rate(rate, step, 100) for step in range(4)] == [1.0, 2.0, 3.0, 4.0]


def test_a_cosine_is_half_way_down_in_the_middle_and_ends_at_its_last_share():
    # 11 steps: the fall goes over steps 0 to 10; half of it at step 5: 0.2 + 0.8 / 2
    rate = Rate(highest=1.0, last_share=0.2)

    assert learning_rate(rate, 5, 11) == pytest.approx(0.6)
    assert learning_rate(rate, 10, 11) == pytest.approx(0.2)


def test_a_line_falls_by_equal_steps():
    rate = Rate(highest=1.0, decay=Decay.LINEAR, last_share=0.0)

    assert [learning_rate(rate, step, 5) for step in range(5)] == pytest.approx([1.0, 0.75, 0.5, 0.25, 0.0])


def test_a_constant_rate_stays():
    rate = Rate(highest=3.0, decay=Decay.CONSTANT)

    assert learning_rate(rate, 0, 10) == learning_rate(rate, 9, 10) == 3.0


def test_more_steps_than_planned_stay_at_the_last_share():
    rate = Rate(highest=1.0, last_share=0.1)

    assert learning_rate(rate, 50, 11) == pytest.approx(0.1)
