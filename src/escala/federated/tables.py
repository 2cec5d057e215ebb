"""A person's own samples: Parquet with numbers or images, or a folder with a folder for each class.

Needs pyarrow, and Pillow where samples are images. Everything is held in memory.
"""

import io
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from escala.errors import InvalidInput, MissingExtra, unknown
from escala.federated.task import Task, split
from escala.federated.weights import F32
from escala.inputs import reason, refuse_locked
from escala.model.columns import I64

PIXELS: Final = 32
"""Side of the squares that images become."""
MOST_BYTES: Final = 2**32
INSTALL: Final = "pip install 'escala[data,federated]'"


def task_from(given: Path, *, net: str | None, label: str, user: str | None) -> Task:
    """The task of a Parquet file, of a folder of them, or of a folder of images by class.

    Numbers are centred and scaled by mean and deviation of all samples; images become RGB from 0 to 1.
    """
    tables = [given] if given.is_file() else _inside(given)
    if tables:
        return _table_task(given, tables, net, label, user)
    if user is not None:
        raise InvalidInput(f"{given} is a folder of images, which has no column '{user}'; leave the user out")
    files, labels = _pictures(given)
    inputs = np.stack([_square(each.read_bytes(), str(each)) for each in files])
    return split(given.name, net or "cnn", inputs, labels, None)


def _inside(folder: Path) -> list[Path]:
    refuse_locked(folder)
    return sorted(folder.glob("*.parquet"))


def _table_task(given: Path, files: list[Path], net: str | None, label: str, user: str | None) -> Task:
    table = _read(files)
    for column in filter(None, (label, user)):
        if column not in table.column_names:
            there = ", ".join(table.column_names)
            raise unknown("column", column, table.column_names, f"{given} has {there}")
    labels = _codes(table[label].to_pylist(), given, label)
    users = None if user is None else _codes(table[user].to_pylist(), given, user)
    inputs, is_image = _inputs(table.drop_columns([name for name in (label, user) if name]), given)
    return split(given.name, net or ("cnn" if is_image else "mlp"), inputs, labels, users)


def _read(files: Sequence[Path]) -> Any:
    arrow, parquet = _library("pyarrow"), _library("pyarrow.parquet")
    whole_bytes = sum(each.stat().st_size for each in files)
    if whole_bytes > MOST_BYTES:
        raise InvalidInput(f"{files[0].parent} holds {whole_bytes / 2**30:.1f} GiB; 4 GiB are held in memory")
    tables = []
    for path in files:
        try:
            tables.append(parquet.read_table(path))
        except (OSError, ValueError, KeyError, NotImplementedError) as error:
            raise InvalidInput(f"{path} is no Parquet to be read ({reason(error)}); name another") from None
        if tables[-1].schema != tables[0].schema:
            raise InvalidInput(f"{path} has other columns than {files[0]}; write all with the same")
    return arrow.concat_tables(tables)


def _codes(values: list[Any], given: Path, column: str) -> I64:
    """Distinct values numbered in their order: labels 3, 7, 7 become 0, 1, 1."""
    if not values or None in values:
        raise InvalidInput(f"{given}: '{column}' has {'nulls' if values else 'no rows'}; fill or drop them")
    try:
        return np.unique(np.array(values), return_inverse=True)[1].astype(np.int64).reshape(len(values))
    except TypeError:
        raise InvalidInput(f"{given}: '{column}' mixes kinds of values; write one kind") from None


def _inputs(table: Any, given: Path) -> tuple[Any, bool]:
    """One row a sample, and whether it is an image: a column of bytes, else all columns of numbers."""
    for name in table.column_names:
        if str(table.schema.field(name).type).startswith(("binary", "large_binary", "struct<bytes: binary")):
            images = enumerate(table[name].to_pylist())
            return np.stack([_stored(each, given, at) for at, each in images]), True
    columns = [_numbers(table[name], given, name) for name in table.column_names]
    if not columns:
        raise InvalidInput(f"{given} has no column beside label and user; samples need at least one")
    return _scaled(np.concatenate(columns, axis=1)), False


def _numbers(column: Any, given: Path, name: str) -> F32:
    """A column of numbers, or of lists of as many each. Shape (rows, width)."""
    try:
        made = np.array(column.to_pylist(), np.float32).reshape(len(column), -1)
    except (TypeError, ValueError):
        raise InvalidInput(
            f"{given}: '{name}' ({column.type}) is neither numbers without nulls, nor lists of as many, nor "
            "image bytes; drop the column or write numbers"
        ) from None
    if not np.isfinite(made).all():
        raise InvalidInput(f"{given}: '{name}' holds nulls, NaN or infinity; fill or drop those rows")
    return made


def _scaled(numbers: F32) -> F32:
    """Each column less its mean over its deviation; a constant one becomes 0."""
    deviation = numbers.std(axis=0, dtype=np.float64)
    centred = numbers - numbers.mean(axis=0, dtype=np.float64)
    return np.asarray(centred / np.where(deviation > 0, deviation, 1.0), np.float32)


def _pictures(folder: Path) -> tuple[list[Path], I64]:
    names = sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
    found = [(file, at) for at, each in enumerate(names) for file in sorted(each.iterdir()) if file.is_file()]
    if len({at for _, at in found}) < 2:
        raise InvalidInput(
            f"{folder} holds neither Parquet files nor a folder of images for each of two classes or more"
        )
    return [file for file, _ in found], np.array([at for _, at in found], np.int64)


def _stored(value: Any, given: Path, row: int) -> F32:
    content = value["bytes"] if isinstance(value, dict) else value
    if content is None:
        raise InvalidInput(f"{given}, row {row + 1:,} holds no image; write the bytes into the table")
    return _square(content, f"{given}, row {row + 1:,}")


def _square(content: bytes, name: str) -> F32:
    """An image in RGB from 0 to 1. Shape (3, side, side)."""
    image = _library("PIL.Image")
    try:
        with image.open(io.BytesIO(content)) as opened:
            small = opened.convert("RGB").resize((PIXELS, PIXELS), image.Resampling.BILINEAR)
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        raise InvalidInput(f"{name} is no image to be read ({reason(error)}); remove it") from None
    return np.asarray(small, np.float32).transpose(2, 0, 1) / np.float32(255)


def _library(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError:
        name = module.partition(".")[0]
        raise MissingExtra(f"these samples are read with {name}, which is not installed: {INSTALL}") from None
