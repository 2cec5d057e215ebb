import numpy as np
import pytest

from escala.errors import InvalidInput
from escala.training.data.samples import IGNORED
from escala.training.data.wrapped import Wrapped


def test_pairs_are_taken_as_they_stand():
    found = Wrapped(dataset=[([n, n], [n, IGNORED]) for n in range(5)], seed=None).batch(3, 4)

    assert found.inputs.tolist() == [[3, 3], [4, 4], [0, 0], [1, 1]]
    assert found.targets.tolist() == [[3, IGNORED], [4, IGNORED], [0, IGNORED], [1, IGNORED]]


def test_labels_of_hugging_face_are_moved_to_the_token_before():
    item = {"input_ids": [5, 6, 7, 0], "labels": [IGNORED, 6, 7, 0], "attention_mask": [1, 1, 1, 0]}

    found = Wrapped(dataset=[item], seed=None).batch(0, 1)

    assert found.targets.tolist() == [[6, 7, IGNORED, IGNORED]]


def test_without_labels_the_next_token_is_the_target():
    found = Wrapped(dataset=[{"input_ids": [5, 6, 7]}], seed=None).batch(0, 1)

    assert found.targets.tolist() == [[6, 7, IGNORED]]


def test_images_become_float_and_their_labels_whole():
    item = {"pixel_values": np.ones((3, 2, 2)), "label": 4}

    found = Wrapped(dataset=[item], seed=None).batch(0, 2)

    assert (found.inputs.shape, found.inputs.dtype) == ((2, 3, 2, 2), np.float32)
    assert found.targets.tolist() == [4, 4]


def test_every_item_comes_once_an_epoch():
    found = Wrapped(dataset=[([n], [n]) for n in range(100)], seed=3).batch(100, 100)

    assert sorted(found.inputs[:, 0].tolist()) == list(range(100))
    assert found.inputs[:, 0].tolist() != list(range(100))


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (
            [([1], [1]), ([1, 2], [1, 2])],
            r"inputs of item 1 has the shape \(2,\), that of item 0 \(1,\); pad",
        ),
        ([{"text": "a"}] * 2, "item 0 of the data set has keys text; give a pair"),
        ([{"pixel_values": 1}] * 2, "has keys pixel_values; give a pair"),
        ([3] * 2, "item 0 of the data set is 3; give a pair"),
    ],
)
def test_items_that_cannot_be_samples_are_one_clear_line(items: list, message: str):
    with pytest.raises(InvalidInput, match=message):
        Wrapped(dataset=items, seed=None).batch(0, 2)


def test_an_empty_data_set_is_refused():
    with pytest.raises(InvalidInput, match="without samples"):
        Wrapped(dataset=[], seed=None).batch(0, 1)
