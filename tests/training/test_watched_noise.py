"""What the loop makes of a step's norms."""

from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from escala.parallel.step import Outcome
from escala.training.loop import Progress, _noise
from escala.training.noise import Noise

pytestmark = pytest.mark.optional


def outcome(**more):
    given = {"loss": 1.0, "gradient_norm": 5.5**0.5, "targets": 8, "is_skipped": False, **more}
    return Outcome(**given)


def run():
    return SimpleNamespace(job=SimpleNamespace(global_batch=32), done=Progress())


def test_parts_of_a_step_tell_the_noise_by_hand():
    # 4 parts of 32 samples: 8 each; |G|^2 = (32 * 5.5 - 8 * 10) / 24 = 4, tr(S) = 4.5 / (1/8 - 1/32) = 48
    found = _noise(run(), outcome(parts=4, part_squared_norm=10.0))

    assert found.batch == pytest.approx(12.0, rel=1e-12)


def test_a_skipped_step_and_one_without_parts_tell_nothing():
    assert _noise(run(), outcome()) == Noise()
    assert _noise(run(), outcome(parts=4, part_squared_norm=10.0, is_skipped=True)) == Noise()
