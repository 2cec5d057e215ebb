"""TensorBoard event files: records with checksums, and of each record the scalars. Needs no TensorFlow.

Source: TensorFlow core/lib/io/record_writer.h (length, masked CRC-32C, data, masked CRC-32C) and
core/util/event.proto, core/framework/summary.proto, tensor.proto (field numbers).
"""

import struct
from collections.abc import Iterator
from typing import IO, Final

from escala.measurement.logs.names import scalar
from escala.measurement.logs.samples import Sample, Samples, What
from escala.measurement.logs.source import CUT, Source

HEAD: Final = 12
MOST_SCALAR_BYTES: Final = 16_384
"""Larger records hold pictures, histograms or graphs and are passed over."""
LARGE: Final = "records that hold no scalar"
FLOAT: Final = 1
_POLYNOMIAL: Final = 0x82F63B78


def _table() -> tuple[int, ...]:
    table = []
    for each in range(256):
        crc = each
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_TABLE: Final = _table()


def masked_crc(data: bytes) -> int:
    """CRC-32C of the bytes, rotated right by 15 bits, plus 0xa282ead8."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def length_of(head: bytes) -> int | None:
    """Bytes of the record that starts with these twelve; None where their checksum is wrong."""
    if len(head) < HEAD:
        return None
    length, crc = struct.unpack("<QI", head[:HEAD])
    return int(length) if masked_crc(head[:8]) == crc else None


def tensorboard(source: Source) -> Samples:
    """Scalars by their names; the clock of the writer at each new step."""
    last = -1
    with source.opened() as file:
        for data in _records(source, file):
            try:
                found = list(_scalars(data))
            except (IndexError, struct.error, UnicodeDecodeError):
                source.leave("records that are no event")
                continue
            for tag, value, step, at_s in found:
                if step > last:
                    last = step
                    yield Sample(What.CLOCK_S, at_s, step, "", at_s)
                yield from scalar(tag, value, step, at_s)


def _records(source: Source, file: IO[bytes]) -> Iterator[bytes]:
    while head := file.read(HEAD):
        length = length_of(head)
        if length is None:
            source.leave(CUT if len(head) < HEAD else "all that follows a damaged record")
            return
        if length > MOST_SCALAR_BYTES:
            source.leave(LARGE)
            file.seek(length + 4, 1)
            continue
        data, tail = file.read(length), file.read(4)
        if len(data) < length or len(tail) < 4:
            source.leave(CUT)
        elif struct.unpack("<I", tail)[0] == masked_crc(data):
            yield data
        else:
            source.leave("records with a wrong checksum")


def _scalars(data: bytes) -> Iterator[tuple[str, float, int, float]]:
    """Tag, value, step and time of every scalar of an event."""
    fields = list(_fields(data))
    at_s = next(
        (struct.unpack("<d", bytes(each))[0] for key, each in fields if key == 1 and _is_bytes(each)), 0.0
    )
    step = next((each for key, each in fields if key == 2 and isinstance(each, int)), 0)
    for key, summary in fields:
        if key == 5 and isinstance(summary, bytes):
            for inner, value in _fields(summary):
                if inner == 1 and isinstance(value, bytes):
                    yield from _value(value, step, at_s)


def _value(data: bytes, step: int, at_s: float) -> Iterator[tuple[str, float, int, float]]:
    fields = dict(_fields(data))
    tag, number = fields.get(1), fields.get(2)
    if number is None and isinstance(fields.get(8), bytes):
        number = _of_tensor(dict(_fields(fields[8])))  # type: ignore[arg-type] # bytes, as just seen
    if isinstance(tag, bytes) and isinstance(number, bytes):
        yield tag.decode(), struct.unpack("<f", number)[0], step, at_s


def _of_tensor(fields: dict[int, int | bytes]) -> int | bytes | None:
    """The four bytes of a tensor of one float."""
    content = fields.get(4, fields.get(5))
    return content if fields.get(1) == FLOAT and isinstance(content, bytes) and len(content) == 4 else None


def _is_bytes(value: int | bytes) -> bool:
    return isinstance(value, bytes)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values of a protocol buffer: varints as whole numbers, all else as bytes."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        kind = key & 7
        if kind == 0:
            number, place = _varint(data, place)
            yield key >> 3, number
            continue
        size = {1: 8, 5: 4}.get(kind)
        if size is None:
            size, place = _varint(data, place)
        if kind not in (1, 2, 5) or place + size > len(data):
            raise IndexError(place)
        yield key >> 3, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[place]
        number |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return number, place
        if shift > 63:
            raise IndexError(place)
