from collections.abc import Callable
from pathlib import Path

import pytest

from escala.training.data.encoders import ByteEncoder
from escala.training.data.files import files_of
from escala.training.data.index import TokensIndex
from escala.training.data.prepare import Recipe, prepare


def quiet(what: str, left_s: float) -> None:
    """Progress that nobody reads."""


Prepare = Callable[..., TokensIndex]


@pytest.fixture
def made(tmp_path: Path) -> Prepare:
    """Prepares sources by bytes into tmp_path / tokens, without validation if nothing else is said."""

    def make(*sources: Path, into: str = "tokens", **settings: object) -> TokensIndex:
        recipe = {"encoder": ByteEncoder(), "validation_share": 0.0} | settings
        return prepare(Recipe(files=files_of(sources), **recipe), tmp_path / into, quiet)

    return make


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Eleven documents of JSON lines: 'a', 'bb', 'ccc', ..."""
    file = tmp_path / "lines.jsonl"
    texts = [chr(ord("a") + n) * (n + 1) for n in range(11)]
    file.write_text("".join(f'{{"id": {n}, "text": "{text}"}}\n' for n, text in enumerate(texts)))
    return file
