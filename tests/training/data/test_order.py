import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escala.errors import InvalidInput
from escala.training.data.order import Order, mixed, mixed_number, permuted

timeless = settings(max_examples=40)
sizes, seeds = st.integers(1, 3000), st.integers(0, 2**63 - 1)


@timeless
@given(sizes, seeds, st.integers(0, 10**6))
def test_every_item_comes_once_an_epoch(items: int, seed: int, epoch: int):
    _, found = Order(items=items, seed=seed).at(epoch * items, items)

    assert sorted(found.tolist()) == list(range(items))


@timeless
@given(sizes, seeds, st.data())
def test_a_sample_does_not_depend_on_who_asks_beside_which_others(items: int, seed: int, data):
    order = Order(items=items, seed=seed)
    first, count = data.draw(st.integers(0, 5 * items)), data.draw(st.integers(1, 50))

    epochs, found = order.at(first, count)

    alone = [order.at(first + place, 1) for place in range(count)]
    assert found.tolist() == [int(item[0]) for _, item in alone]
    assert epochs.tolist() == [(first + place) // items for place in range(count)]


def test_without_seed_items_come_as_they_stand():
    epochs, items = Order(items=3, seed=None).at(2, 5)

    assert (epochs.tolist(), items.tolist()) == ([0, 1, 1, 1, 2], [2, 0, 1, 2, 0])


def test_epochs_and_seeds_have_different_orders():
    places = np.arange(1000)
    orders = [permuted(places, 1000, seed, epoch) for seed, epoch in ((1, 0), (1, 1), (2, 0), (0, 1))]

    assert len({tuple(each.tolist()) for each in orders}) == 4
    # Two orders by chance agree in 1 of 1,000 places on average; 9 and more happen once in a million.
    assert all((a != b).sum() > 990 for a in orders for b in orders if a is not b)


def test_an_order_leaves_no_trend():
    items = 100_003
    found = permuted(np.arange(items), items, 7, 0)

    # The correlation of two columns by chance has a deviation of 1 / sqrt(items) = 0.0032.
    assert abs(np.corrcoef(found, np.arange(items))[0, 1]) < 5 * 0.0032
    assert abs(np.corrcoef(found[1:], found[:-1])[0, 1]) < 5 * 0.0032


def test_all_orders_of_four_items_are_equally_likely():
    orders = [tuple(permuted(np.arange(4), 4, seed, 0).tolist()) for seed in range(1200)]
    counts = np.unique(orders, axis=0, return_counts=True)[1]

    # 24 orders, 50 each: chi-square of 23 degrees exceeds 60 once in 25,000 times.
    assert len(counts) == 24
    assert ((counts - 50) ** 2 / 50).sum() < 60


def test_any_place_of_a_huge_set_is_found_at_once():
    _, items = Order(items=10**12, seed=3).at(10**12 - 2, 4)

    assert len(set(items.tolist())) == 4
    assert 0 <= items.min() <= items.max() < 10**12


@pytest.mark.parametrize(("items", "seed", "hint"), [(0, 1, "without samples"), (5, -1, "seed -1")])
def test_what_has_no_order_is_refused(items: int, seed: int, hint: str):
    with pytest.raises(InvalidInput, match=hint):
        Order(items=items, seed=seed)


@timeless
@given(st.integers(0, 2**64 - 1))
def test_the_hash_of_one_number_is_that_of_the_column(number: int):
    assert mixed_number((number,)) == int(mixed(np.array([number], np.uint64))[0])


def test_the_hash_is_that_of_splitmix64():
    # the first three outputs of the reference implementation from seed 1234567
    states = np.uint64(1234567) + np.arange(3, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)

    assert mixed(states).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]
