"""Files from outside as text: bounded, UTF-8. Knows no format; reads, never writes.

Whatever is wrong with a file is one InvalidInput: missing, not allowed, too large, wrong encoding.
"""

import os
import sys
from pathlib import Path
from typing import Final

from escala.errors import InvalidInput, one_line

MOST_BYTES: Final = 20_000_000
UTF8_BOM: Final = b"\xef\xbb\xbf"
UTF16_BOMS: Final = (b"\xff\xfe", b"\xfe\xff")
LOCKED: Final = "may not be read by this user; change its permissions"
NO_WEIGHTS: Final = "name a description, not the weights"


def read_text(file: Path, most_bytes: int = MOST_BYTES, hint: str = NO_WEIGHTS) -> str:
    """The text of a file; the hint says what to do with one that is larger than most_bytes."""
    return utf8(read_bytes(file, most_bytes, hint), str(file))


def read_bytes(file: Path, most_bytes: int, hint: str) -> bytes:
    """The bytes of a file that has no more than so many."""
    try:
        if file.is_dir():
            raise InvalidInput(f"{file} is a folder; name a file in it")
        if file.stat().st_size > most_bytes:
            raise InvalidInput(f"{file} is larger than {most_bytes // 1_000_000} MB; {hint}")
        return file.read_bytes()
    except FileNotFoundError:
        raise InvalidInput(f"{file} does not exist; check the path") from None
    except PermissionError:
        raise InvalidInput(f"{file} {LOCKED}") from None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{file} cannot be read ({reason(error)}); check the path") from None


def read_stdin(most_bytes: int, hint: str) -> bytes:
    """The bytes that are piped in, of which there may be no more than so many."""
    if sys.stdin is None or sys.stdin.isatty():
        raise InvalidInput("nothing is piped in; name a file, or write: cat FILE | escala check -")
    content = sys.stdin.buffer.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise InvalidInput(f"what is piped in is larger than {most_bytes // 1_000_000} MB; {hint}")
    return content


def refuse_locked(folder: Path) -> None:
    """Refuse a folder in which this user may not look, which else seems empty."""
    if not os.access(folder, os.R_OK | os.X_OK):
        raise InvalidInput(f"{folder} {LOCKED}")


def utf8(content: bytes, name: str) -> str:
    """The text of UTF-8 bytes, with or without byte order mark; other encodings are refused."""
    if content.startswith(UTF16_BOMS) or _is_utf16(content[:400]):
        raise InvalidInput(f"{name} is encoded in UTF-16; save it as UTF-8")
    try:
        return content.removeprefix(UTF8_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name} is not UTF-8 at byte {error.start}; save it as UTF-8") from None


def _is_utf16(head: bytes) -> bool:
    """Without mark: most bytes of one side of each pair are 0 and none of the other, as of Latin text."""
    sides = head[::2], head[1::2]
    return any(2 * a.count(0) > len(a) > 1 and 0 not in b for a, b in (sides, sides[::-1]))


def reason(error: Exception) -> str:
    """The first line of what a library says, for the parentheses of a message."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return one_line(str(error).strip().partition("\n")[0])
