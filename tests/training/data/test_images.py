"""Images of folders and Parquet; needs Pillow and pyarrow."""

import io
from pathlib import Path

import numpy as np
import pytest

from escala.errors import InvalidInput
from escala.training.data.images import DEVIATION, MEAN, Images, middle, part
from escala.training.data.pictures import picture_folder, picture_table


def png(colour: tuple[int, int, int], size: tuple[int, int] = (12, 8)) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, "PNG")
    return out.getvalue()


def noise(seed: int) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (20, 30, 3), np.uint8)
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for label, name in enumerate(("cat", "dog")):
        (tmp_path / "set" / name).mkdir(parents=True)
        for n in range(3):
            (tmp_path / "set" / name / f"{n}.png").write_bytes(noise(3 * label + n))
    return tmp_path / "set"


@pytest.mark.optional
def test_pixels_are_scaled_by_mean_and_deviation_of_their_channel(tmp_path: Path):
    (tmp_path / "set" / "red").mkdir(parents=True)
    (tmp_path / "set" / "red" / "a.png").write_bytes(png((255, 0, 51)))

    found = Images(pictures=picture_folder(tmp_path / "set"), pixels=4, seed=None).batch(0, 1)

    # 255, 0 and 51 of 255 are 1, 0 and 0.2
    wanted = (np.array([1.0, 0.0, 0.2]) - MEAN) / DEVIATION
    assert found.inputs.shape == (1, 3, 4, 4)
    assert found.inputs.dtype == np.float32
    assert found.inputs[0].min(axis=(1, 2)) == pytest.approx(wanted, rel=1e-6)
    assert found.inputs[0].max(axis=(1, 2)) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.optional
def test_labels_are_the_folders_by_name(folder: Path):
    pictures = picture_folder(folder)

    found = Images(pictures=pictures, pixels=8, seed=None).batch(0, 6)

    assert (pictures.names, pictures.classes) == (("cat", "dog"), 2)
    assert found.targets.tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.optional
@pytest.mark.parametrize("threads", [1, 3])
def test_a_sample_looks_the_same_whoever_reads_it(folder: Path, threads: int):
    pictures = picture_folder(folder)
    images = Images(pictures=pictures, pixels=8, seed=4, is_augmented=True, threads=threads)

    batch = images.batch(3, 9)

    alone = [Images(pictures=pictures, pixels=8, seed=4, is_augmented=True).batch(3 + n, 1) for n in range(9)]
    assert (batch.inputs == np.concatenate([each.inputs for each in alone])).all()
    assert (batch.targets == np.concatenate([each.targets for each in alone])).all()


@pytest.mark.optional
def test_chance_cuts_an_image_differently_in_each_epoch(folder: Path):
    images = Images(pictures=picture_folder(folder), pixels=8, seed=4, is_augmented=True)

    means = {float(images.batch(epoch * 6 + n, 1).inputs.mean()) for epoch in range(4) for n in range(6)}

    assert len(means) == 24


@pytest.mark.optional
def test_mirroring_swaps_left_and_right_alone(tmp_path: Path):
    from PIL import Image

    (tmp_path / "set" / "a").mkdir(parents=True)
    columns = np.zeros((64, 64, 3), np.uint8)
    columns[:, :, 0] = np.arange(64) * 4  # redder from left to right
    columns[:, :, 1] = np.arange(64)[:, None] * 4  # greener from top to bottom
    Image.fromarray(columns).save(tmp_path / "set" / "a" / "a.png")
    images = Images(pictures=picture_folder(tmp_path / "set"), pixels=8, seed=4, is_augmented=True)

    found = images.batch(0, 200).inputs

    is_mirrored = found[:, 0, 4, 0] > found[:, 0, 4, -1]
    assert abs(int(is_mirrored.sum()) - 100) < 5 * 7.1  # 200 draws of 1/2: deviation 7.1
    assert (found[:, 1, 0, 4] <= found[:, 1, -1, 4]).all()


def test_the_middle_is_seven_eighths_of_the_shorter_side():
    # 0.875 * 80 = 70: from (100 - 70) / 2 = 15 and (80 - 70) / 2 = 5
    assert middle(100, 80) == (15.0, 5.0, 85.0, 75.0)


def test_parts_by_chance_lie_inside_and_cover_8_to_100_percent():
    chance = np.random.default_rng(1)
    boxes = np.array([part(100, 80, chance) for _ in range(2000)])

    shares = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) / 8000
    assert boxes.min() >= 0
    assert boxes[:, 2].max() <= 100
    assert boxes[:, 3].max() <= 80
    assert 0.07 < shares.min() < 0.12
    assert 0.9 < shares.max() <= 1.0


@pytest.mark.optional
@pytest.mark.parametrize("is_plain", [True, False])
def test_rows_of_parquet_are_images(tmp_path: Path, folder: Path, is_plain: bool):
    import pyarrow
    import pyarrow.parquet

    contents = [path.read_bytes() for path in sorted(folder.rglob("*.png"))]
    stored = contents if is_plain else [{"bytes": each, "path": None} for each in contents]
    files = []
    for n in (0, 3):
        rows = {"image": stored[n : n + 3], "label": [n // 3] * 3}
        files.append(tmp_path / f"{n}.parquet")
        pyarrow.parquet.write_table(pyarrow.table(rows), files[-1])

    found = Images(pictures=picture_table(files), pixels=8, seed=2).batch(0, 6)

    same = Images(pictures=picture_folder(folder), pixels=8, seed=2).batch(0, 6)
    assert (found.inputs == same.inputs).all()
    assert (found.targets == same.targets).all()


@pytest.mark.optional
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"img": [b""], "label": [0]}, "has no 'image'; it has img, label"),
        ({"image": ["a"], "label": [0]}, "'image' is string, not image bytes"),
        ({"image": [b"a"], "label": ["cat"]}, "'label' is string, not whole numbers"),
        ({"image": [b"a", b"b"], "label": [0, -1]}, "'label' has nulls or negative numbers"),
        ({"image": [b"a", b"b"], "label": [0, None]}, "'label' has nulls or negative numbers"),
    ],
)
def test_a_table_of_something_else_is_refused(tmp_path: Path, columns: dict, message: str):
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")

    with pytest.raises(InvalidInput, match=message):
        picture_table([tmp_path / "a.parquet"])


@pytest.mark.optional
@pytest.mark.parametrize("content", [b"", b"no image", noise, None])
def test_a_broken_image_is_named_by_the_step_that_needs_it(folder: Path, content):
    file = folder / "cat" / "1.png"
    file.write_bytes(noise(0)[:200] if callable(content) else content or png((1, 2, 3))[:50])
    images = Images(pictures=picture_folder(folder), pixels=8, seed=None)

    images.batch(0, 1)
    with pytest.raises(InvalidInput, match=r"1\.png is no image to be read \(.*\); remove it"):
        images.batch(1, 1)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "it is empty; make a folder for each class"),
        (("a.png",), "a.png stands outside of a class"),
        (("cat/1.png", "dog/"), "dog holds no image"),
    ],
)
def test_a_folder_that_is_no_set_of_classes_is_refused(tmp_path: Path, names: tuple, message: str):
    (tmp_path / "set").mkdir()
    for name in names:
        path = tmp_path / "set" / name
        path.parent.mkdir(exist_ok=True)
        path.mkdir() if name.endswith("/") else path.write_bytes(b"")

    with pytest.raises(InvalidInput, match=message):
        picture_folder(tmp_path / "set")


@pytest.mark.optional
def test_chance_without_seed_is_refused(folder: Path):
    with pytest.raises(InvalidInput, match="images cut by chance need a seed"):
        Images(pictures=picture_folder(folder), pixels=8, seed=None, is_augmented=True)


@pytest.mark.optional
def test_tables_that_would_fill_the_memory_are_refused(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("escala.training.data.pictures.MOST_TABLE_BYTES", 99)
    (tmp_path / "a.parquet").write_bytes(bytes(100))

    with pytest.raises(
        InvalidInput, match=r"more than the .* held in memory; write the images into a folder"
    ):
        picture_table([tmp_path / "a.parquet"])


@pytest.mark.optional
def test_tables_of_different_types_are_refused(tmp_path: Path):
    import pyarrow
    import pyarrow.parquet

    for name, image in (("a", b"1"), ("b", {"bytes": b"1", "path": None})):
        rows = {"image": [image], "label": [0]}
        pyarrow.parquet.write_table(pyarrow.table(rows), tmp_path / f"{name}.parquet")

    with pytest.raises(InvalidInput, match=r"stores images or labels in another type than .*a\.parquet"):
        picture_table([tmp_path / "a.parquet", tmp_path / "b.parquet"])
