"""How unevenly experts are loaded: a share, or a file with one number for each expert. Reads, never writes.

A share such as 15% is the standard deviation of the loads over their mean. A file has numbers apart by
commas, spaces or lines (a JSON list is one as well): tokens of each expert, in the order of the experts.
"""

import math
import re
from pathlib import Path
from typing import Final

from escala.catalog.loader import shown
from escala.errors import InvalidInput
from escala.inputs import read_text

SHARE: Final = re.compile(r"(?P<percent>\d{1,4}(\.\d+)?)\s*%", re.ASCII)
FILE_BYTES: Final = 1_000_000
MOST_LOAD: Final = 1e18


def expert_loads_of(text: str) -> float | tuple[float, ...]:
    """The deviation of a share, or the loads of a file."""
    share = SHARE.fullmatch(text.strip())
    if share is not None:
        return float(share["percent"]) / 100.0
    if re.fullmatch(r"[\d.]+", text.strip(), re.ASCII) and not Path(text).is_file():
        raise InvalidInput(f"'{shown(text)}' is no share and no file; write 15% or name a file of loads")
    content = read_text(Path(text), FILE_BYTES, "give one number for each expert")
    words = re.split(r"[\s,;]+", content.strip().strip("[]"))
    loads = tuple(_load(word, text) for word in words if word)
    if not any(loads):
        raise InvalidInput(f"{text} has no loads above 0; write the tokens of each expert")
    return loads


def _load(word: str, file: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= MOST_LOAD:
        raise InvalidInput(f"{file}: '{shown(word)}' is no number of tokens; write one for each expert")
    return value
