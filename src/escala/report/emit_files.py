"""Files for other tools on the disk: whole, and never over another one unasked. Knows no target."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from escala.errors import InvalidInput
from escala.foreign.orders import OutFile
from escala.wholefile import write_together


def save_files(files: Mapping[str, OutFile], folder: Path, *, may_replace: bool) -> None:
    """Write all files of a target into a folder, or none of them."""
    contents = {folder / name: each.text.encode() for name, each in files.items()}
    if not may_replace:
        _refuse_others(contents)
    made = _folders(folder, contents)
    try:
        write_together(contents)
    except InvalidInput:
        for place in reversed(made):
            with suppress(OSError):  # somebody else put something into it
                place.rmdir()
        raise
    for name, each in files.items():
        if each.is_executable:
            path = folder / name
            path.chmod(path.stat().st_mode | 0o111)


def _refuse_others(contents: Mapping[Path, bytes]) -> None:
    """Refuse files of the same names with other content."""
    others = [str(path) for path, text in contents.items() if path.exists() and not _holds(path, text)]
    if others:
        raise InvalidInput(
            f"{', '.join(others)} exist{'s' if len(others) == 1 else ''} and would change; "
            "name another folder with -o, or replace with --force"
        )


def _holds(path: Path, text: bytes) -> bool:
    return path.is_file() and path.read_bytes() == text


def _folders(folder: Path, contents: Mapping[Path, bytes]) -> list[Path]:
    """Make the folders that files need; those that were not there before, from the outside in."""
    wanted = {parent for path in (folder / "x", *contents) for parent in path.parents if not parent.exists()}
    made = sorted(wanted, key=lambda each: len(each.parts))
    for each in made:
        try:
            each.mkdir()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise InvalidInput(f"{each} cannot be made ({reason}); name another folder with -o") from None
    return made
