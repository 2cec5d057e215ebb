"""Every engine sees a client's samples in the same order, each sample once an epoch."""

import numpy as np
import pytest

from escala.errors import InvalidInput
from escala.federated.order import EMPTY, batches
from escala.federated.ranges import Range, exactly, range_of


def test_each_epoch_holds_each_sample_once_and_pads_the_last_batch():
    # 10 samples in batches of 4: 3 steps an epoch, 2 empty places
    made = batches(10, 4, 2, seed=1, client=3, round_=5)

    assert made.shape == (6, 4)
    for epoch in made.reshape(2, 12):
        assert sorted(epoch) == [EMPTY, EMPTY, *range(10)]


def test_order_depends_on_seed_client_round_and_epoch_only():
    first, again = (batches(50, 8, 1, seed=1, client=3, round_=5) for _ in range(2))
    others = [
        batches(50, 8, 1, seed=2, client=3, round_=5),
        batches(50, 8, 1, seed=1, client=4, round_=5),
        batches(50, 8, 1, seed=1, client=3, round_=6),
    ]

    assert np.array_equal(first, again)
    assert not any(np.array_equal(first, other) for other in others)


def test_a_range_is_ordered_and_survives_its_column():
    known = Range(low=1, mid=2, high=4)

    assert range_of(known.column()) == known
    assert range_of(exactly(3.0).column()) == exactly(3.0)
    with pytest.raises(InvalidInput, match="in this order"):
        Range(low=2, mid=1, high=4)
