import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from escala.training.data.synthetic import SyntheticImages, SyntheticTokens

SOURCES = (
    SyntheticTokens(sequence_tokens=9, vocabulary=50, seed=2),
    SyntheticImages(pixels=4, classes=7, seed=2),
)


@given(st.sampled_from(SOURCES), st.integers(0, 2**39), st.integers(1, 9))
def test_a_sample_follows_from_its_number_alone(source, first: int, count: int):
    batch = source.batch(first, count)

    alone = [source.batch(first + place, 1) for place in range(count)]
    assert (batch.inputs == np.concatenate([each.inputs for each in alone])).all()
    assert (batch.targets == np.concatenate([each.targets for each in alone])).all()


def test_the_target_is_the_next_token():
    batch = SyntheticTokens(sequence_tokens=9, vocabulary=50).batch(0, 3)

    assert (batch.inputs[:, 1:] == batch.targets[:, :-1]).all()


def test_tokens_are_equally_frequent():
    counts = np.bincount(SyntheticTokens(sequence_tokens=100, vocabulary=10).batch(0, 100).inputs.ravel())

    # 10,000 draws of 1/10: 1,000 each, deviation 30
    assert len(counts) == 10
    assert (abs(counts - 1000) < 5 * 30).all()


def test_pixels_have_mean_0_and_deviation_1():
    pixels = SyntheticImages(pixels=32, classes=10).batch(0, 30).inputs

    # 30 * 3 * 32 * 32 = 92,160 values: the mean has a deviation of 0.0033
    assert pixels.dtype == np.float32
    assert abs(float(pixels.mean())) < 5 * 0.0033
    assert abs(float(pixels.std()) - 1) < 5 * 0.0033


def test_samples_and_seeds_differ():
    one, other = (SyntheticTokens(sequence_tokens=20, vocabulary=99, seed=seed) for seed in (1, 2))

    rows = [*one.batch(0, 50).inputs.tolist(), *other.batch(0, 50).inputs.tolist()]

    assert len({tuple(row) for row in rows}) == 100
