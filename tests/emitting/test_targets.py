"""Targets are found by the names of their modules, and named as people call them."""

from pathlib import Path

import pytest

from emitting.fakes import FAKES
from escala import foreign
from escala.catalog.engines import engines
from escala.emitting import targets
from escala.errors import InvalidInput

SOURCE = Path(foreign.__path__[0])
ROOT = Path(__file__).parents[2]


def test_every_module_that_writes_is_found() -> None:
    modules = [each for each in SOURCE.glob("*/writing*.py") if "TARGET" in each.read_text()]

    assert len(targets.writers()) == len(modules)


def test_every_target_has_its_name_its_version_and_its_page() -> None:
    for name, writer in targets.writers().items():
        target = writer.TARGET
        assert name == target.name == name.lower()
        assert target.version
        assert target.launch
        assert (ROOT / target.page).is_file()
        assert target.engine in engines()


def test_unknown_targets_are_refused_with_near_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "writers", lambda: FAKES)

    with pytest.raises(InvalidInput, match="unknown target 'pipe': did you mean piped"):
        targets.writer_of("pipe")
    with pytest.raises(InvalidInput, match="unknown scheduler 'piped': there are scheduler"):
        targets.wrapper_of("piped")
