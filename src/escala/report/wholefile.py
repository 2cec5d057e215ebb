"""Files that appear whole or not at all. Knows paths, no content."""

import errno
import os
from contextlib import suppress
from pathlib import Path

from escala.errors import InvalidInput


def write_whole(path: Path, content: bytes) -> None:
    """Write through a draft beside the file; what cannot be written leaves nothing behind.

    A link is followed. What is no regular file (a pipe, a device) is written as it stands, never replaced.
    """
    try:
        _write(_target(path), content)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidInput(f"{path} cannot be written ({reason}); name another place") from None


def _target(path: Path) -> Path:
    """The file behind links."""
    if not path.name:
        raise InvalidInput(f"'{path}' names no file to write; give a name such as plan.json")
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


def _write(target: Path, content: bytes) -> None:
    if target.exists() and not target.is_file():
        target.write_bytes(content)
        return
    draft = target.with_name(f".{target.name[:200]}.{os.getpid()}")
    try:
        draft.write_bytes(content)
        draft.replace(target)
    finally:
        with suppress(OSError):
            draft.unlink()
