"""Lengths of samples from quantiles or from a file: one number of tokens each. Reads, never writes.

Quantiles are "p50=400,p90=1500,max=4096" (also min): lengths between them are taken evenly. A file has a
number in each line (.txt), a column (.csv), or JSON lines with numbers, lists of tokens, or objects.
"""

import csv
import io
import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np

from escala.catalog.loader import shown
from escala.errors import InvalidInput
from escala.inputs import read_text

MOST_BINS: Final = 512
"""Equally likely lengths that stand for all: the mean of each part of the sorted lengths."""
MOST_TOKENS: Final = 100_000_000
FILE_BYTES: Final = 100_000_000
TOKEN_KEYS: Final = ("tokens", "n_tokens", "num_tokens", "length", "input_ids")
QUANTILE: Final = re.compile(r"(min|max|p(?P<percent>\d{1,2}(\.\d+)?))=(?P<tokens>[\d_]+)", re.ASCII)


def lengths_of(text: str) -> tuple[float, ...]:
    """Equally likely lengths in rising order, from quantiles or the file of a name."""
    if "=" in text and not Path(text).is_file():
        return _binned(_between(text))
    file = Path(text)
    return _binned(np.array([_checked(each, text) for each in _numbers(file)]))


def _binned(tokens: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> tuple[float, ...]:
    """Means of equal parts of the sorted lengths, and the longest in place of the last."""
    parts = np.array_split(np.sort(tokens), min(len(tokens), MOST_BINS))
    return (*(float(part.mean()) for part in parts[:-1]), float(tokens.max()))


def _between(text: str) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Lengths at the middle of equal shares, on straight lines between the quantiles; the shortest has 1."""
    found = {0.0: 1.0}
    for part in text.split(","):
        match = QUANTILE.fullmatch(part.strip())
        if match is None:
            raise InvalidInput(
                f"'{shown(part)}' is no quantile of lengths; write p50=400,p90=1500,max=4096, or name a file"
            )
        share = {"min": 0.0, "max": 1.0}.get(match[1].split("=")[0], float(match["percent"] or 0) / 100)
        found[share] = _checked(match["tokens"].replace("_", ""), part)
    shares, tokens = sorted(found), [found[share] for share in sorted(found)]
    if shares[-1] != 1.0 or tokens != sorted(tokens):
        raise InvalidInput(
            f"'{shown(text)}' does not rise to a max; write rising quantiles, p50=400,p90=1500,max=4096"
        )
    middles = (np.arange(MOST_BINS - 1) + 0.5) / MOST_BINS
    return np.asarray(np.interp([*middles, 1.0], shares, tokens), np.float64)


def _numbers(file: Path) -> Iterable[object]:
    text = read_text(file, FILE_BYTES, "give quantiles, or the lengths of some of the samples")
    ending = file.suffix.lower()
    found = (
        _csv(text, file)
        if ending == ".csv"
        else [_json(line, file) for line in _lines(text)]
        if ending in (".jsonl", ".json", ".ndjson")
        else _lines(text)
    )
    if not found:
        raise InvalidInput(f"{file} has no lengths; write one number of tokens in each line")
    return found


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _csv(text: str, file: Path) -> list[object]:
    rows = list(csv.reader(io.StringIO(text)))
    if not rows:
        return []
    names = [name.strip().lower() for name in rows[0]]
    known = [names.index(key) for key in TOKEN_KEYS if key in names]
    if not known and (len(names) > 1 or not names[0].isdecimal()):
        raise InvalidInput(f"{file} has no column {' or '.join(TOKEN_KEYS[:4])}; name one so")
    column, first = (known[0], 1) if known else (0, 0)
    return [row[column] if column < len(row) else "" for row in rows[first:] if row]


def _json(line: str, file: Path) -> object:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise InvalidInput(f"{file}: '{shown(line)}' is no JSON; write one object in each line") from None
    if isinstance(value, dict):
        value = next((value[key] for key in TOKEN_KEYS if key in value), None)
    return len(value) if isinstance(value, list) else value


def _checked(given: object, where: str) -> float:
    """A length: a whole number of tokens from 1."""
    try:
        tokens = float(given) if isinstance(given, str | int | float) else math.nan
    except ValueError:
        tokens = math.nan
    if isinstance(given, bool) or not 1 <= tokens <= MOST_TOKENS or tokens != math.floor(tokens):
        raise InvalidInput(
            f"{shown(where)}: '{shown(str(given))}' is no length; give 1 to {MOST_TOKENS:,} tokens"
        )
    return tokens
