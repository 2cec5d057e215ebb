"""Files that appear whole or not at all. Knows paths, no content."""

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from escala.errors import InvalidInput

Content = bytes | memoryview


def write_whole(path: Path, content: Content) -> None:
    """Write through a draft beside the file; what cannot be written leaves nothing behind.

    A link is followed. What is no regular file (a pipe, a device) is written as it stands, never replaced.
    """
    write_together({path: content})


def write_together(contents: Mapping[Path, Content]) -> None:
    """Write several files as write_whole does, none before all drafts stand; pipes and devices first."""
    with ExitStack() as drafts:
        steps: dict[Path, Callable[[], object]] = {}
        for path, content in contents.items():
            with _told(path):
                steps[path] = _draft(_target(path), content, drafts)
        for path in sorted(steps, key=_is_plain):
            with _told(path):
                steps[path]()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidInput(f"{path} cannot be written ({reason}); name another place") from None


def _is_plain(path: Path) -> bool:
    return path.is_file() or not path.exists()


def _target(path: Path) -> Path:
    """The file behind links."""
    if not path.name:
        raise InvalidInput(f"'{path}' names no file to write; give a name such as plan.json")
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


def _draft(target: Path, content: Content, drafts: ExitStack) -> Callable[[], object]:
    """Write the draft of a file, which goes at the end, and give the step that makes it the file."""
    if target.is_dir():
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not _is_plain(target):
        return partial(target.write_bytes, content)
    draft = target.with_name(f".{target.name[:200]}.{os.getpid()}")
    drafts.callback(_removed, draft)
    draft.write_bytes(content)
    return partial(draft.replace, target)


def _removed(draft: Path) -> None:
    with suppress(OSError):
        draft.unlink()
