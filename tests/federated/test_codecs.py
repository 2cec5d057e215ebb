"""Packed updates: errors within bounds, nothing lost, bytes exact, bad numbers refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from escala.errors import InvalidInput
from escala.federated.codecs import decode, encode, kept_numbers, pack, packed_bytes, unpack, update_bytes
from escala.federated.order import generator
from escala.federated.training import Codec

NONE = Codec()
HALF = Codec(kind="fp16")
INT8 = Codec(kind="int8")
TOP = Codec(kind="top-k", keep_ratio=0.1)
HUNDREDTH = Codec(kind="top-k", keep_ratio=0.01, has_feedback=True)
RANDOM = Codec(kind="rand-k", keep_ratio=0.25)
CODECS = (NONE, HALF, INT8, TOP, RANDOM)
LOSSY = tuple(
    Codec(kind=codec.kind, keep_ratio=codec.keep_ratio, has_feedback=True)
    for codec in CODECS
    if codec != NONE
)

shapes = npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9)
numbers = st.floats(-1e4, 1e4, width=32, allow_subnormal=False)
updates = shapes.flatmap(lambda shape: npst.arrays(np.float32, shape, elements=numbers))


def sent(codec, update):
    arrays, _ = encode(codec, "layer", update, None, generator(0, -1, 1))
    return arrays, decode(codec, arrays, update.shape)


@settings(max_examples=40)
@given(updates)
def test_uncompressed_numbers_arrive_as_they_are(update):
    assert np.array_equal(sent(NONE, update)[1], update)


@settings(max_examples=40)
@given(updates)
def test_fp16_errs_by_half_a_unit_of_eleven_bits(update):
    # 10 stored bits and a hidden one: relative error 2^-11, and 2^-25 below the smallest normal number
    error = np.abs(sent(HALF, update)[1] - update)

    assert (error <= np.maximum(np.abs(update) * 2**-11, 2**-25)).all()


@settings(max_examples=40)
@given(updates)
def test_int8_errs_by_half_a_127th_of_the_largest_number(update):
    error = np.abs(sent(INT8, update)[1] - update)

    half_a_step = np.abs(update).max(initial=0.0) / 127 / 2
    assert (error <= half_a_step * (1 + 1e-4) + 1e-37).all()


@settings(max_examples=40)
@given(updates)
def test_top_k_sends_the_largest_numbers_and_nothing_else(update):
    decoded = sent(TOP, update)[1]

    kept = kept_numbers(TOP, update.shape)
    rest = np.sort(np.abs(update).ravel())[::-1][kept:].astype(np.float64)
    error = np.abs(decoded - update).astype(np.float64)
    most_rounding = np.maximum(np.abs(update) * 2**-11, 2**-25).max(initial=0.0)
    assert np.count_nonzero(decoded) <= kept
    assert error.sum() <= rest.sum() + kept * most_rounding * (1 + 1e-6)


@settings(max_examples=40)
@given(updates, st.sampled_from(LOSSY))
def test_what_is_not_sent_is_the_residual(update, codec):
    arrays, residual = encode(codec, "layer", update, None, generator(0, -1, 1))

    assert np.array_equal(decode(codec, arrays, update.shape) + residual, update)


@settings(max_examples=40)
@given(st.lists(npst.arrays(np.float32, 12, elements=st.integers(-1000, 1000).map(float)), max_size=8))
@pytest.mark.parametrize("codec", LOSSY, ids=lambda codec: codec.kind)
def test_sent_plus_residual_is_the_sum_of_all_differences(codec, updates):
    total_sent, residual = np.zeros(12), None
    for round_, update in enumerate(updates):
        arrays, residual = encode(codec, "layer", update, residual, generator(0, -1, round_))
        total_sent += decode(codec, arrays, (12,))

    # at most 8 sums, each rounded to 24 bits of numbers below 8 * 1000
    total = np.sum(updates, axis=0) if updates else 0.0
    assert np.allclose(
        total_sent + (0 if residual is None else residual), total, rtol=0, atol=8 * 8000 * 2**-23
    )


def test_rand_k_without_feedback_means_what_was_meant():
    # 4,000 draws of a quarter of 8 numbers, each standing for 4: the mean comes back
    update = np.arange(1, 9, dtype=np.float32)
    draws = [
        decode(RANDOM, encode(RANDOM, "layer", update, None, generator(0, -1, round_))[0], (8,))
        for round_ in range(4000)
    ]

    # one number: standard deviation sqrt(3) * its size, of the mean sqrt(3 / 4000) = 2.7 %; five of them
    assert np.abs(np.mean(draws, axis=0) / update - 1).max() < 5 * (3 / 4000) ** 0.5


def test_clients_that_share_the_rounds_generator_send_the_same_positions():
    first, second = np.ones(100, np.float32), np.full(100, 2, np.float32)

    sums = [encode(RANDOM, "layer", each, None, generator(7, -1, 3))[0] for each in (first, second)]

    assert np.array_equal(sums[0]["mask"], sums[1]["mask"])
    added = {"mask": sums[0]["mask"], "values": sums[0]["values"] + sums[1]["values"]}
    decoded = decode(RANDOM, added, (100,))
    assert set(np.unique(decoded)) == {0.0, 12.0}  # (1 + 2) * 4
    assert not np.array_equal(
        sums[0]["mask"], encode(RANDOM, "layer", first, None, generator(7, -1, 4))[0]["mask"]
    )


@settings(max_examples=40)
@given(updates, st.sampled_from(CODECS))
def test_bytes_are_those_of_the_arrays(update, codec):
    arrays, _ = sent(codec, update)

    # every array carries a header of 128 bytes beside its numbers
    assert packed_bytes(codec, update.shape) == sum(128 + array.nbytes for array in arrays.values())


def test_bytes_of_a_small_network_by_hand():
    # 64-128-64-10: weights 8192, 8192, 640 and biases 128, 64, 10, together 17,226 numbers in 6 tensors
    shapes = {"a": (128, 64), "b": (128,), "c": (64, 128), "d": (64,), "e": (10, 64), "f": (10,)}
    # 10 %: 819 + 13 + 819 + 6 + 64 + 1 = 1,722 numbers of 2 bytes, positions of 2 bytes, 12 headers

    assert update_bytes(NONE, shapes) == 4 * 17226 + 6 * 128
    assert update_bytes(HALF, shapes) == 2 * 17226 + 6 * 128
    assert update_bytes(INT8, shapes) == 17226 + 6 * (128 + 128 + 4)
    assert update_bytes(TOP, shapes) == 1722 * 4 + 12 * 128


def test_a_whole_update_comes_back_by_name():
    update = {"a.weight": np.ones((2, 3), np.float32), "a|b": np.zeros(4, np.float32)}
    codec = Codec(kind="int8", has_feedback=True)

    packed, residuals = pack(codec, update, {}, generator(0, 1, 1))
    again = unpack(codec, packed, {name: each.shape for name, each in update.items()})

    assert set(packed) == {"a.weight|values", "a.weight|scale", "a|b|values", "a|b|scale"}
    assert set(residuals) == set(update)
    assert np.allclose(again["a.weight"], 1, rtol=1e-6)
    with pytest.raises(InvalidInput, match="which the model does not have"):
        unpack(codec, packed, {"a|b": (4,)})


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.kind)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(codec, bad):
    with pytest.raises(InvalidInput, match="update of 'layer' holds NaN or infinity"):
        encode(codec, "layer", np.array([1, bad], np.float32), None, generator(0, 0))


def test_numbers_beyond_fp16_are_refused():
    with pytest.raises(InvalidInput, match="exceeds 65504"):
        encode(HALF, "layer", np.array([1e5], np.float32), None, generator(0, 0))


@pytest.mark.parametrize(
    ("codec", "field", "bad"),
    [
        (INT8, "scale", np.array([np.nan], np.float32)),
        (INT8, "scale", np.array([1.0], np.float64)),
        (TOP, "values", np.array([np.inf], np.float16)),
        (TOP, "positions", np.array([10], np.uint16)),
        (TOP, "positions", np.array([1, 2], np.uint16)),
        (HALF, "more", np.zeros(1)),
    ],
)
def test_packed_tensors_that_lie_are_refused(codec, field, bad):
    arrays, _ = encode(codec, "layer", np.ones(10, np.float32), None, generator(0, 0))

    with pytest.raises(InvalidInput):
        decode(codec, arrays | {field: bad}, (10,))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"kind": "topk"}, "did you mean top-k"),
        ({"kind": "top-k"}, "needs keep_ratio"),
        ({"kind": "rand-k", "keep_ratio": 1.5}, "at most 1"),
        ({"kind": "int8", "keep_ratio": 0.1}, "sends every number"),
        ({"has_feedback": True}, "no error to feed back"),
    ],
)
def test_codecs_that_mean_nothing_are_refused(asked, told):
    with pytest.raises(InvalidInput, match=told):
        Codec(**asked)


@pytest.mark.optional
@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.kind)
def test_bytes_are_those_that_flower_carries(codec):
    app = pytest.importorskip("flwr.app")
    update = {"w": np.ones((128, 64), np.float32), "b": np.ones(10, np.float32), "s": np.ones((), np.float32)}

    packed, _ = pack(codec, update, {}, generator(0, -1, 1))
    record = app.ArrayRecord({key: app.Array(array) for key, array in packed.items()})

    shapes = {name: each.shape for name, each in update.items()}
    assert update_bytes(codec, shapes) == sum(len(array.data) for array in record.values())
    # what Flower counts adds the names
    assert record.count_bytes() == update_bytes(codec, shapes) + sum(map(len, packed))


@pytest.mark.optional
def test_codecs_pay_in_rounds_what_they_save_in_bytes():
    pytest.importorskip("torch")
    from escala.federated.learning import Learning
    from escala.federated.partition import exact
    from escala.federated.scenario import Skew
    from escala.federated.task import digits
    from federated.populations import clients, population, training

    each, task = clients(10, 64, Skew.DIRICHLET, concentration=0.5), digits()
    reached = {}
    for name, codec in {"none": NONE, "int8": INT8, "tenth": LOSSY[2], "hundredth": HUNDREDTH}.items():
        asked = training(local_epochs=2, learning_rate=0.3, codec_up=codec)
        run = Learning(population([each], asked), task, exact(task, [each], 0), print)
        reached[name] = [record.metrics["accuracy"] for record in run.rounds(10)]

    # of 360 test images int8 may turn a few; with a tenth of the numbers a round or two are lost, with a
    # hundredth about half of them: ten rounds come less far than the plain seven
    assert reached["int8"][-1] == pytest.approx(reached["none"][-1], abs=0.02)
    assert reached["none"][-3] - 0.05 <= reached["tenth"][-1] <= reached["none"][-1]
    assert reached["none"][2] < reached["hundredth"][-1] < reached["none"][6]
