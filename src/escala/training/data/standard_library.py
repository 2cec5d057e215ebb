"""A real corpus that is always there: the sources of this Python's own standard library, by bytes."""

import sysconfig
from pathlib import Path
from typing import Final

from escala.errors import InvalidInput
from escala.progress import Progress
from escala.training.data.encoders import ByteEncoder
from escala.training.data.files import Found, walk
from escala.training.data.index import TokensIndex
from escala.training.data.prepare import Recipe, prepare

# Not its tests: many of them are broken on purpose, and distributions often leave them out.
# Not what was installed beside it.
LEFT_OUT: Final = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test"})


def standard_library(folder: Path, progress: Progress) -> TokensIndex:
    """Make the corpus in a folder, where it is not there already."""
    return prepare(Recipe(files=_files(), encoder=ByteEncoder()), folder, progress)


def _files() -> tuple[Found, ...]:
    root = Path(sysconfig.get_path("stdlib"))
    found = [path for path in walk(root, LEFT_OUT) if path.suffix == ".py"]
    if not found:
        raise InvalidInput(f"{root} holds no sources of the standard library; name another corpus")
    return tuple(Found(path=each, name=str(each.relative_to(root))) for each in found)
