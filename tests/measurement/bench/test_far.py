"""Memory that left the caches: what a call takes and makes is touched again only after all the rest."""

import weakref

import pytest

pytestmark = pytest.mark.optional
torch = pytest.importorskip("torch", reason="needs PyTorch")

from escala.measurement.bench.operations import Far  # noqa: E402 - after the check for torch


def test_every_call_takes_the_next_numbers_and_the_last_begins_again():
    far = Far(10)
    first, second, third = far.take(2, 3), far.take(4), far.take(5)

    # 6 and 4 of 10 are taken, so 5 more begin again
    assert (first.shape, second.shape) == ((2, 3), (4,))
    assert second.data_ptr() == first.data_ptr() + 6 * 4
    assert third.data_ptr() == first.data_ptr()


def test_what_was_made_is_held_until_as_much_was_made_after_it():
    far = Far(10)
    made = [torch.zeros(4) for _ in range(3)]
    alive = [weakref.ref(each) for each in made]
    while made:
        far.keep(made.pop(0))

    # 4 + 4 + 4 floats are more than 10
    assert [each() is None for each in alive] == [True, False, False]
