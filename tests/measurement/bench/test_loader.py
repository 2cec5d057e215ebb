import shutil
from pathlib import Path

import numpy as np
import pytest

from escala.measurement.bench.fio import FILE_BYTES, fio_probes, seconds_of
from escala.measurement.bench.loader import PIXELS, Images, compressed, decoded


def test_a_decoded_image_holds_floats_from_zero_to_one():
    image = decoded(compressed())

    assert (image.shape, image.dtype) == (PIXELS, np.float32)
    assert 0.0 <= image.min() <= image.max() <= 15 / 255
    assert np.array_equal(Images()[3], image)


def test_the_noise_of_an_image_is_half_compressible():
    # four random bits of eight
    assert len(compressed()) == pytest.approx(np.prod(PIXELS) / 2, rel=0.15)


def test_fio_says_bytes_and_milliseconds():
    document = {"jobs": [{"read": {"io_bytes": 2 * FILE_BYTES, "runtime": 500}, "write": {"io_bytes": 0}}]}

    assert seconds_of(document, "randread") == pytest.approx(0.25)
    with pytest.raises(ValueError, match="fio moved nothing"):
        seconds_of(document, "write")


def test_without_fio_our_own_reads_and_writes_stand_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(shutil, "which", lambda name: None)

    assert list(fio_probes(tmp_path, rests=False)) == []


def test_with_fio_it_writes_and_reads_in_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    names = [probe.subjects[0].name for probe in fio_probes(tmp_path, rests=False)]

    assert names == [
        "fio write, blocks of 1 MiB",
        "fio read, blocks of 1 MiB",
        "fio randread, blocks of 4 KiB",
    ]
