import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module of this test's own name in the current folder; gives its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    written: list[str] = []

    def once(text: str) -> str:
        name = f"own_{tmp_path.name}_{len(written)}".replace("-", "_")
        (tmp_path / f"{name}.py").write_text(text)
        written.append(name)
        return name

    yield once
    for name in written:
        sys.modules.pop(name, None)
