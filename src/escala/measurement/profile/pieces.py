"""The events of a Chrome trace in pieces, so that a file of any size takes little memory. Knows JSON only.

A piece is cut where one event ends and the next begins. A cut inside a text or inside a nested list leaves a
piece that is no JSON, so a piece that can be decoded was cut rightly, however the file is laid out.
"""

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, TypeVar, cast

import msgspec

from escala.errors import InvalidInput, spoken
from escala.inputs import UTF8_BOM, reason

CHUNK_BYTES: Final = 4 * 2**20
MOST_HEAD_BYTES: Final = 64 * 2**20
MOST_CUTS: Final = 64
GZIP: Final = b"\x1f\x8b"
_OPENING: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_NO_NUMBER: Final = re.compile(rb"(?i:-?inf(inity)?|nan)")
_BETWEEN: Final = re.compile(rb"\}\s*,\s*\{")
_CLOSING: Final = re.compile(rb"\}\s*\]|^\s*\]")
_BYTE: Final = re.compile(r"\(byte (\d+)\)$")
_END: Final = re.compile(rb'\]\s*(,\s*"[^{}]*)?\}\s*$')
NO_JSON: Final = "an event that is no JSON"
Event = TypeVar("Event")


class Pieces:
    """One trace file: its keys beside the events, and the events list by list.

    `on_bytes` is told how many more bytes of the file were read.
    `keys` holds what stands before the events once they are asked for, and all once they have ended.
    """

    def __init__(self, path: Path, on_bytes: Callable[[int], None]) -> None:
        self.path = path
        self.keys: dict[str, Any] = {}
        self._on_bytes = on_bytes
        self._unpacked_bytes = 0

    def lists(self, kind: type[Event]) -> Iterator[list[Event]]:
        """The events, some thousand at once; a file that ends early is refused."""
        decoder = msgspec.json.Decoder(list[kind])  # type: ignore[valid-type] # the kind is a variable
        with opened(self.path) as (content, file):
            chunks = self._chunks(content, file)
            left = self._after_head(chunks)
            for chunk in chunks:
                left += chunk
                found, left = self._cut(left, decoder)
                if found:
                    yield found
                if len(left) > MOST_HEAD_BYTES:
                    raise InvalidInput(f"{self.path} holds no list of events that can be told apart")
            yield self._last(left, decoder)

    def _chunks(self, content: IO[bytes], file: IO[bytes]) -> Iterator[bytes]:
        read_bytes = 0
        try:
            while chunk := content.read(CHUNK_BYTES):
                self._on_bytes(file.tell() - read_bytes)
                read_bytes = file.tell()
                self._unpacked_bytes += len(chunk)
                yield chunk
        except EOFError:
            raise cut_short(self.path) from None
        except (OSError, zlib.error) as error:
            raise InvalidInput(f"{self.path} cannot be read ({reason(error)}); copy it again") from None

    def _after_head(self, chunks: Iterator[bytes]) -> bytes:
        """What follows the bracket that opens the events; the keys before it are kept."""
        head = b""
        for chunk in chunks:
            head += chunk
            for opening in _OPENING.finditer(head):
                keys = _decoded(head[: opening.end()] + b"]}")
                if isinstance(keys, dict):
                    self.keys = keys
                    return head[opening.end() :]
            if len(head) > MOST_HEAD_BYTES:
                break
        raise self._no_events(head)

    def _no_events(self, head: bytes) -> InvalidInput:
        if not head.strip():
            return InvalidInput(f"{self.path} is empty; record the trace again")
        if _is_json(head.removeprefix(UTF8_BOM)):
            return InvalidInput(
                f"{self.path} has no 'traceEvents'; name a trace that PyTorch's profiler exported"
            )
        if head.lstrip().startswith((b"{", UTF8_BOM + b"{")):
            return self._broken(b"", head.removeprefix(UTF8_BOM))
        return InvalidInput(f"{self.path} is no JSON; name a trace that PyTorch's profiler exported")

    def _cut(self, text: bytes, decoder: msgspec.json.Decoder[list[Event]]) -> tuple[list[Event], bytes]:
        """The whole events at the front, and what is left behind them."""
        cuts = [each.start() + 1 for each in _BETWEEN.finditer(text)][-MOST_CUTS:]
        for cut in reversed(cuts):
            try:
                return decoder.decode(b"[%b]" % text[:cut]), text[cut:].lstrip().removeprefix(b",")
            except msgspec.ValidationError as error:
                raise self._odd(error) from None
            except msgspec.DecodeError:
                continue
        return [], text

    def _last(self, text: bytes, decoder: msgspec.json.Decoder[list[Event]]) -> list[Event]:
        """The events up to the bracket that closes them, and the keys behind it."""
        for closing in _CLOSING.finditer(text):
            try:
                found = decoder.decode(b"[%b" % text[: closing.end()])
            except msgspec.ValidationError as error:
                raise self._odd(error) from None
            except msgspec.DecodeError:
                continue
            rest = _decoded(b'{"":0' + text[closing.end() :].rstrip().rstrip(b"\0"))
            if not isinstance(rest, dict):
                break
            self.keys |= rest
            return found
        raise self._broken(b'{"":[', text)

    def _broken(self, before: bytes, text: bytes) -> InvalidInput:
        """The refusal of the last bytes of a file, which are no JSON behind others: cut, or spoiled."""
        try:
            msgspec.json.decode(before + text.rstrip(b"\0"))
        except (msgspec.DecodeError, RecursionError) as error:
            found = _BYTE.search(str(error))
            at = len(text) if found is None else int(found[1]) - len(before)
            if 0 <= at < len(text.rstrip(b"\0")):
                place = f"{spoken(chr(text[at]))} at byte {self._unpacked_bytes - len(text) + at:,}"
                return InvalidInput(
                    f"{self.path} holds {NO_JSON}: {place}{_word(text, at)}; export the trace again"
                )
        if _END.search(text):
            return InvalidInput(f"{self.path} holds {NO_JSON}; export the trace again")
        return cut_short(self.path)

    def _odd(self, error: msgspec.ValidationError) -> InvalidInput:
        return InvalidInput(f"{self.path} has an event that PyTorch's profiler does not write ({error})")


def cut_short(path: Path) -> InvalidInput:
    """The refusal of a file that ends before its end."""
    return InvalidInput(
        f"{path} is cut short: the profiler had not finished writing, or the copy broke; export it again"
    )


@contextmanager
def opened(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The bytes of a trace, unpacked where they are gzip, whatever the name says, and the file itself."""
    try:
        with path.open("rb") as file:
            is_packed = file.read(2) == GZIP
            file.seek(0)
            yield (cast(IO[bytes], gzip.GzipFile(fileobj=file)) if is_packed else file), file
    except FileNotFoundError:
        raise InvalidInput(f"{path} does not exist; check the path") from None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read ({reason(error)}); check the path") from None


def _word(text: bytes, at: int) -> str:
    """What Python's json writes for numbers that are none, where it stands at a byte."""
    found = _NO_NUMBER.match(text, at)
    return "" if found is None else f" ({found[0].decode()} is no number in JSON)"


def _is_json(text: bytes) -> bool:
    return _decoded(text) is not None or text.strip() == b"null"


def _decoded(text: bytes) -> Any:
    """The JSON, or None where it is none."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
