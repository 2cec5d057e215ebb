"""Where stored images come from: a folder with a folder for each class, or Parquet. Decodes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from escala.errors import InvalidInput
from escala.inputs import read_bytes, refuse_locked
from escala.training.data.documents import table_told
from escala.training.data.extra import library
from escala.training.data.files import opened, size_bytes, walk
from escala.training.data.images import Picture

MOST_IMAGE_BYTES: Final = 2**28
# What one process holds of Parquet. Its rows are packed in groups, of which one row costs as much as all.
MOST_TABLE_BYTES: Final = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureFolder:
    """Images of a folder whose folders are the classes, labelled by the order of their names."""

    names: tuple[str, ...]
    files: tuple[Path, ...]
    labels: tuple[int, ...]

    @property
    def classes(self) -> int:
        """Labels that there are."""
        return len(self.names)

    def __len__(self) -> int:
        """Images of the set."""
        return len(self.files)

    def picture(self, item: int) -> Picture:
        """One of them."""
        file = self.files[item]
        content = read_bytes(file, MOST_IMAGE_BYTES, "leave it out")
        return Picture(content=content, label=self.labels[item], name=str(file))


def picture_folder(folder: Path) -> PictureFolder:
    """The images of FOLDER/CLASS/...; what else lies in the folder itself is refused."""
    if not folder.is_dir():
        raise InvalidInput(f"{folder} is no folder; name one with a folder for each class of images")
    refuse_locked(folder)
    inside = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    loose = [each for each in inside if not each.is_dir()]
    if loose or not inside:
        what = f"{loose[0].name} stands outside of a class" if loose else "it is empty"
        raise InvalidInput(f"{folder}: {what}; make a folder for each class and put its images there")
    files = [(path, label) for label, each in enumerate(inside) for path in walk(each)]
    empty = sorted(set(range(len(inside))) - {label for _, label in files})
    if empty:
        raise InvalidInput(f"{inside[empty[0]]} holds no image; remove the folder, or put some there")
    paths, labels = zip(*files, strict=True)
    return PictureFolder(names=tuple(each.name for each in inside), files=paths, labels=labels)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PictureTable:
    """Images of Parquet files, held in memory as they are stored."""

    contents: Any
    labels: tuple[int, ...]
    name: str

    @property
    def classes(self) -> int:
        """The largest label, and one."""
        return max(self.labels) + 1

    def __len__(self) -> int:
        """Images of the set."""
        return len(self.labels)

    def picture(self, item: int) -> Picture:
        """One of them."""
        content = self.contents[item].as_py()
        content = content["bytes"] if isinstance(content, dict) else content
        name = f"{self.name}, row {item + 1:,}"
        if content is None:
            raise InvalidInput(f"{name} holds no image, at most a path; write the bytes into the table")
        return Picture(content=content, label=self.labels[item], name=name)


def picture_table(files: Sequence[Path], image: str = "image", label: str = "label") -> PictureTable:
    """The rows of Parquet files: bytes (or {bytes, path}, as `datasets` writes them) and a label from 0."""
    parquet = library("pyarrow.parquet", "images are in Parquet")
    arrow = library("pyarrow", "images are in Parquet")
    if not files:
        raise InvalidInput("no Parquet file is named; name one at least")
    _refuse_large(files)
    tables = []
    for path in files:
        with opened(path) as file, table_told(path):
            table = parquet.ParquetFile(file)
            _check(path, table.schema_arrow, image, label)
            tables.append(table.read(columns=[image, label]))
        if not tables[-1].schema.equals(tables[0].schema):
            raise InvalidInput(f"{path} stores images or labels in another type than {files[0]}; write one")
    whole = arrow.concat_tables(tables)
    labels = tuple(whole[label].to_pylist())
    name = str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    if not labels or None in labels or min(labels) < 0:
        wrong = "nulls or negative numbers" if labels else "no rows"
        raise InvalidInput(f"{name}: '{label}' has {wrong}; labels are whole numbers from 0")
    return PictureTable(contents=whole[image], labels=labels, name=name)


def _check(path: Path, schema: Any, image: str, label: str) -> None:
    for field, kinds, what in (
        (image, ("binary", "large_binary", "struct<bytes: binary"), "image bytes"),
        (label, ("int", "uint"), "whole numbers"),
    ):
        if field not in schema.names:
            raise InvalidInput(f"{path} has no '{field}'; it has {', '.join(schema.names)}")
        kind = str(schema.field(field).type)
        if not kind.startswith(kinds):
            raise InvalidInput(f"{path}: '{field}' is {kind}, not {what}")


def _refuse_large(files: Sequence[Path]) -> None:
    whole_bytes = sum(map(size_bytes, files))
    if whole_bytes > MOST_TABLE_BYTES:
        raise InvalidInput(
            f"{len(files)} files of {whole_bytes / 2**30:.1f} GiB are more than the "
            f"{MOST_TABLE_BYTES // 2**30} GiB that are held in memory; write the images into a folder"
        )
