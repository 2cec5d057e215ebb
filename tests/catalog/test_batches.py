from dataclasses import replace

import numpy as np
import pytest

from escala.catalog.batches import CHECKS, critical_batch, law_tokens, overhead, studies, why_unknown
from escala.catalog.networks import network
from escala.model.targets import samples_to_target
from escala.model.workload import Method, Workload

LANGUAGE = Workload(
    network=network("llama-3.1-8b"), sequence_tokens=8192, global_batch=128, total_tokens=1e12
)
IMAGES = Workload(network=network("resnet-50"), sequence_tokens=1, global_batch=256)


def test_one_line_fits_every_study():
    # samples = fewest * (1 + batch / critical) leaves at most an eighth, over batches that differ by 256
    for each in studies():
        critical, fewest = each.critical
        line = samples_to_target(fewest, critical, np.array(each.batches))
        assert np.abs(line / np.array(each.samples) - 1.0).max() < 0.125, each.name


def test_the_law_holds_for_a_run_that_it_has_not_seen():
    # Llama 3.1 8B from random weights, MLPerf: inside the factor of 3 that the prior states
    (check,) = (each for each in studies() if each.name in CHECKS)
    critical, fewest = (each * check.sample_tokens for each in check.critical)

    assert 1 / 3 < critical / law_tokens(fewest) < 3


def test_the_law_is_the_published_one():
    # B* = 93.20 N^0.47 sequences of 512 tokens, N in millions at 20 tokens each: a fifth of the critical
    for millions in (85.0, 302.0, 1200.0):
        published = 93.20 * millions**0.47 * 512 / 0.2
        assert law_tokens(20 * millions * 1e6) == pytest.approx(published, rel=0.35)


def test_more_tokens_have_a_larger_critical_batch():
    short, long = (critical_batch(replace(LANGUAGE, total_tokens=tokens)) for tokens in (1e10, 1e13))

    assert short is not None
    assert long is not None
    assert short.batch < long.batch
    assert long.low < long.batch < (long.high or 0.0)


def test_images_have_that_of_resnet_50():
    found = critical_batch(IMAGES)

    assert found is not None
    assert not found.is_measured
    assert 40_000 < found.batch < 55_000


@pytest.mark.parametrize(
    ("workload", "why"),
    [
        (replace(LANGUAGE, total_tokens=None), "tokens"),
        (replace(LANGUAGE, method=Method.FULL), "fine-tuning"),
    ],
)
def test_what_nobody_published_has_none_and_says_why(workload, why):
    assert critical_batch(workload) is None
    assert why in why_unknown(workload)


def test_a_fifth_more_samples_are_told():
    assert overhead(LANGUAGE) == overhead(IMAGES) == 0.2
