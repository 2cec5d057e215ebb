import threading
import time
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from escala.training.data.feed import Feed
from escala.training.data.order import Order
from escala.training.data.samples import Samples
from escala.training.data.share import Share


class Numbers:
    """Sample i is the number of its item; sample `broken` of the run cannot be read."""

    def __init__(self, items: int, broken: int | None = None) -> None:
        self.order, self.broken, self.read = Order(items=items, seed=5), broken, 0

    def __len__(self) -> int:
        return self.order.items

    def batch(self, first: int, count: int) -> Samples:
        if self.broken is not None and first <= self.broken < first + count:
            raise OSError("the disk is gone")
        self.read += count
        _, items = self.order.at(first, count)
        return Samples(inputs=items[:, None], targets=items[:, None])


def given_out(items: int, whole: int, ranks: int, first: int, last: int) -> list[list[int]]:
    """What the ranks together get in steps first to last of a run of global batches `whole`."""
    parts = []
    for rank in range(ranks):
        share = Share(global_batch=whole, rank=rank, ranks=ranks)
        with Feed(Numbers(items), share, numbers, cursor=first * whole) as feed:
            parts.append([feed.step() for _ in range(first, last)])
    return [list(chain(*step)) for step in zip(*parts, strict=True)]


def numbers(samples: Samples) -> list[int]:
    return samples.inputs[:, 0].tolist()


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("escala-")]


@settings(max_examples=10)
@given(st.integers(1, 40), st.integers(1, 4), st.integers(1, 3), st.integers(0, 6), st.integers(1, 4))
def test_resume_on_other_ranks_goes_on_with_the_same_samples(items, each, before, stop, after):
    whole = 12 * each  # which 1 to 4 ranks can deal

    alone = given_out(items, whole, 1, 0, 8)

    assert given_out(items, whole, before, 0, stop) + given_out(items, whole, after, stop, 8) == alone


def test_the_cursor_counts_what_was_given_out_not_what_was_read():
    source = Numbers(100)
    with Feed(source, Share(global_batch=4, ranks=2), numbers, cursor=40, ahead=3) as feed:
        feed.step()
        wait_until(lambda: source.read == 8)  # one step given out, three ahead, 2 samples each

        assert feed.cursor == 44


def wait_until(is_true) -> None:
    until_s = time.monotonic() + 10
    while not is_true() and time.monotonic() < until_s:
        time.sleep(0.001)
    assert is_true()


def test_an_error_comes_at_the_step_that_needed_the_samples_and_again():
    with Feed(Numbers(100, broken=9), Share(global_batch=4), numbers, ahead=3) as feed:
        feed.step(), feed.step()

        for _ in range(2):
            with pytest.raises(OSError, match="the disk is gone"):
                feed.step()
        assert feed.cursor == 8


def test_reading_goes_on_while_a_step_works():
    source = Numbers(100)
    with Feed(source, Share(global_batch=1), numbers, ahead=2):
        wait_until(lambda: source.read == 2)


def test_nothing_is_left_behind_by_a_closed_feed():
    feed = Feed(Numbers(10), Share(global_batch=2), numbers)
    feed.step()
    assert threads() == ["escala-feed_0"]

    feed.close()
    feed.close()

    assert threads() == []


def test_a_closed_feed_gives_nothing_more_than_was_read():
    feed = Feed(Numbers(10), Share(global_batch=2), numbers, ahead=0)
    feed.close()

    with pytest.raises(RuntimeError, match="shutdown"):
        feed.step()


def test_samples_are_converted_in_the_thread_that_reads():
    def where(samples: Samples) -> str:
        return threading.current_thread().name

    with Feed(Numbers(10), Share(global_batch=2), where) as feed:
        assert feed.step() == "escala-feed_0"


def test_samples_count_themselves():
    assert len(Samples(inputs=np.zeros((3, 2), np.int64), targets=np.zeros((3, 2), np.int64))) == 3
