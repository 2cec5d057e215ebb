"""Noise is sized for the sampler that is used; epsilon is that of dp-accounting or is not told at all."""

from dataclasses import replace

import numpy as np
import pytest

from escala.errors import InvalidInput
from escala.federated.privacy import (
    clipped,
    epsilon,
    locally_private,
    noise_for,
    norms,
    private_mean,
    sampler_of,
    spent,
    why_no_epsilon,
)
from escala.federated.ranges import exactly
from escala.federated.training import Codec, Privacy, Selection, Training

NOISE = Privacy(place="central", noise_ratio=1.0, clip=1.0, delta=1e-5)
FIXED = Training(rounds=exactly(100), clients_per_round=100, privacy=NOISE)
POISSON = replace(FIXED, selection=Selection.POISSON)
needs_accounting = pytest.mark.optional


def changes(*rows):
    return {
        "a": np.array([row[:2] for row in rows], np.float32),
        "b": np.array([row[2:] for row in rows], "f4"),
    }


def test_an_update_is_shortened_over_all_its_tensors_together():
    # (3, 4 | 12): length 13, to 6.5 halves it; (0, 0 | 0) and (1, 2 | 2) are short enough
    given = changes((3, 4, 12), (0, 0, 0), (1, 2, 2))

    assert norms(given).tolist() == [13.0, 0.0, 3.0]
    short = clipped(given, 6.5)
    assert short["a"].tolist() == [[1.5, 2], [0, 0], [1, 2]]
    assert short["b"].tolist() == [[6], [0], [2]]


def test_the_private_mean_divides_by_the_clients_expected():
    # two updates of length 1 came, four were expected: (1 + 1) / 4, and noise of 1e-9 / 4
    quiet = replace(NOISE, noise_ratio=1e-9)

    mean = private_mean(changes((1, 0, 0), (1, 0, 0)), quiet, 4, np.random.default_rng(0))

    assert mean["a"] == pytest.approx([0.5, 0], abs=1e-8)


def test_one_client_moves_the_private_mean_by_clip_over_expected_at_most():
    quiet = replace(NOISE, noise_ratio=1e-9)
    without, more = changes((1, 0, 0), (0, 1, 0)), changes((1, 0, 0), (0, 1, 0), (-900, 50, 7))

    means = [private_mean(each, quiet, 10, np.random.default_rng(0)) for each in (without, more)]

    moved = np.concatenate([means[1][name] - means[0][name] for name in ("a", "b")])
    assert np.linalg.norm(moved) == pytest.approx(1 / 10, rel=1e-5)


def test_noise_has_the_deviation_that_was_asked():
    # ratio 2, clip 3, 50 expected: 2 * 3 / 50 = 0.12; at a single client: 6
    loud = replace(NOISE, noise_ratio=2.0, clip=3.0)
    nothing = {"a": np.zeros((1, 40_000), np.float32)}

    central = private_mean(nothing, loud, 50, np.random.default_rng(1))["a"]
    local = locally_private({"a": nothing["a"][0]}, loud, np.random.default_rng(2))["a"]

    # the deviation of 40,000 draws is known to 1 / sqrt(80,000) = 0.35 %
    assert central.std() == pytest.approx(0.12, rel=5 * 0.0035)
    assert local.std() == pytest.approx(6, rel=5 * 0.0035)


@pytest.mark.parametrize(
    ("training", "told"),
    [
        (replace(FIXED, privacy=None), "no noise is added"),
        (replace(FIXED, selection=Selection.UTILITY), "so by their data"),
        (replace(FIXED, selection=Selection.ENERGY), "so by their data"),
        (replace(FIXED, round_deadline_s=60.0), "drops clients by how long"),
        (replace(FIXED, over_selection=1.3), "drops clients by how long"),
        (
            replace(POISSON, codec_up=Codec(kind="top-k", keep_ratio=0.1, has_feedback=True)),
            "Poisson amplification does not allow",
        ),
        (replace(FIXED, clients_per_round=2000), "choose from 1 to 1000"),
    ],
)
def test_no_epsilon_is_told_where_no_event_matches(training, told):
    assert told in (why_no_epsilon(training, 1000) or "")
    with pytest.raises(InvalidInput, match="no epsilon"):
        epsilon(training, 1000, 10)


def test_each_sampler_has_its_event():
    everyone = replace(FIXED, clients_per_round=1000)
    local = replace(FIXED, privacy=replace(NOISE, place="local"))

    assert sampler_of(POISSON, 1000).share == 0.1
    assert sampler_of(FIXED, 1000).share == 1.0
    assert sampler_of(everyone, 1000).share == 1.0
    assert sampler_of(local, 1000).noise_share == 0.5
    feedback = replace(FIXED, codec_up=Codec(kind="int8", has_feedback=True))
    assert sampler_of(feedback, 1000).share == 1.0


@needs_accounting
@pytest.mark.parametrize(
    ("selection", "clients", "rounds", "published"),
    [
        (Selection.UNIFORM, 1000, 100, "96"),
        (Selection.UNIFORM, 1000, 1000, "655"),
        (Selection.POISSON, 1000, 100, "7.9"),
        (Selection.POISSON, 1000, 1000, "27"),
        (Selection.POISSON, 10_000, 100, "1.2"),
        (Selection.POISSON, 10_000, 1000, "2.1"),
    ],
)
def test_epsilon_of_known_settings(selection, clients, rounds, published):
    # noise ratio 1, delta 1e-5; Poisson with chances of 0.1 and 0.01
    pytest.importorskip("dp_accounting")
    found = epsilon(replace(FIXED, selection=selection), clients, rounds)

    places = len(published.partition(".")[2])
    assert f"{found:.{places}f}" == published


@needs_accounting
def test_a_gaussian_by_hand_is_not_above_renyi_accounting_by_the_formula():
    # Renyi of order a after T rounds: T a / (2 s^2); classic conversion: + ln(1 / delta) / (a - 1)
    # T = 100, s = 1: best a = 1 + sqrt(ln(1e5) / 50) = 1.48, 50 a + 11.51 / (a - 1) = 98; newer are below
    pytest.importorskip("dp_accounting")
    orders = np.linspace(1.05, 3, 2000)
    classic = (50 * orders + np.log(1e5) / (orders - 1)).min()

    assert 0.95 * classic < epsilon(FIXED, 1000, 100) < classic


@needs_accounting
def test_noise_found_for_an_epsilon_spends_no_more_and_hardly_less():
    pytest.importorskip("dp_accounting")
    sampler = sampler_of(POISSON, 1000)

    noise = noise_for(sampler, 8.0, 100, 1e-5)

    assert 7.98 < spent(sampler, noise, 100, 1e-5) <= 8.0
    with pytest.raises(InvalidInput, match="above 0"):
        noise_for(sampler, 0.0, 100, 1e-5)


@needs_accounting
def test_epsilon_of_local_noise_is_that_of_half_the_noise():
    # replacing one client's data moves its clipped update by up to two clips
    pytest.importorskip("dp_accounting")
    local = replace(FIXED, privacy=replace(NOISE, place="local", noise_ratio=2.0))

    assert epsilon(local, 1000, 100) == pytest.approx(epsilon(FIXED, 1000, 100), rel=1e-12)
