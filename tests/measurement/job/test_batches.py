"""Batches of every shape; run by `make test-hf`."""

from collections import UserDict, namedtuple

import pytest

from escala.errors import InvalidInput

pytestmark = pytest.mark.optional
torch = pytest.importorskip("torch", reason="batches are PyTorch's tensors")

Pair = namedtuple("Pair", "x y")


def test_tensors_are_replaced_in_whatever_holds_them():
    from escala.measurement.job.batches import mapped

    one = torch.ones(2)
    batch = {"a": one, "b": [one, (one, "text")], "c": Pair(one, 3), "d": UserDict(e=one)}

    found = mapped(batch, lambda each: each + 1)

    assert found["a"].tolist() == found["b"][1][0].tolist() == found["d"]["e"].tolist() == [2.0, 2.0]
    assert (found["b"][1][1], type(found["c"]), found["c"].y, type(found["d"])) == ("text", Pair, 3, UserDict)
    assert one.tolist() == [1.0, 1.0]


def test_a_batch_counts_samples_and_tokens_and_is_split_along_its_first_dimension():
    from escala.measurement.job.batches import samples, split, tokens

    batch = {"input_ids": torch.arange(12).reshape(4, 3), "labels": torch.arange(4)}

    assert (samples(batch), tokens(batch), tokens((batch,))) == (4, 12, None)
    first, second = split(batch, 2)
    assert first["labels"].tolist() == [0, 1]
    assert second["input_ids"].tolist() == [[6, 7, 8], [9, 10, 11]]


@pytest.mark.parametrize(
    ("lengths", "said"),
    [((3, 3), "3 samples of a batch do not make 2"), ((4, 2), "share no first dimension")],
)
def test_what_cannot_be_split_is_refused(lengths: tuple[int, int], said: str):
    from escala.measurement.job.batches import split

    with pytest.raises(InvalidInput, match=said):
        split(tuple(torch.zeros(each) for each in lengths), 2)


def test_batches_begin_again_and_a_generator_that_ended_is_refused():
    from escala.measurement.job.batches import Feed

    again = Feed([1, 2])
    assert [again.next() for _ in range(5)] == [1, 2, 1, 2, 1]

    once = Feed(iter([1]))
    assert once.next() == 1
    with pytest.raises(InvalidInput, match="the batches ended; return a DataLoader or a list"):
        once.next()
    with pytest.raises(InvalidInput, match="the batches are empty"):
        Feed([]).next()
