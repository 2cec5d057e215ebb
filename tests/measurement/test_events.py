"""TensorBoard records: the checksum is that of the format, damage is said, other content is passed over."""

import struct
from pathlib import Path

import pytest

from escala.errors import InvalidInput
from escala.measurement.logs.events import LARGE, masked_crc
from escala.measurement.logs.gather import read_file
from escala.measurement.logs.samples import What
from escala.measurement.logs.source import CUT

DATA = Path(__file__).parent / "data" / "torchtitan.tfevents"


def write(folder: Path, content: bytes) -> Path:
    path = folder / "events"
    path.write_bytes(content)
    return path


def framed(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked_crc(head)) + data + struct.pack("<I", masked_crc(data))


def event(tag: bytes, value: bytes, step: int) -> bytes:
    """An event with one scalar whose Value holds the given bytes after its tag."""
    inner = b"\x0a" + bytes([len(tag)]) + tag + value
    summary = b"\x0a" + bytes([len(inner)]) + inner
    return b"\x09" + struct.pack("<d", 100.0 + step) + bytes([0x10, step, 0x2A, len(summary)]) + summary


def test_the_checksum_is_crc_32c():
    crc = 0xE3069283  # of the digits 1 to 9: RFC 3720, B.4 has the polynomial, this value is its check

    assert masked_crc(b"123456789") == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def test_scalars_of_tensorflow_2_are_tensors(tmp_path: Path):
    tensor = b"\x08\x01\x22\x04" + struct.pack("<f", 1.5)  # DT_FLOAT, tensor_content
    value = bytes([0x42, len(tensor)]) + tensor
    path = write(tmp_path, framed(event(b"iteration-time", value, 1)))

    assert read_file(path).last(What.STEP_S) == 1.5


def test_a_flipped_bit_leaves_out_one_record(tmp_path: Path):
    content = bytearray(DATA.read_bytes())
    place = content.index(b"throughput(tps)")
    content[place] ^= 1
    found = read_file(write(tmp_path, bytes(content)))

    assert found.left_out == {"records with a wrong checksum": 1}
    assert len(found.of(What.TOKENS_PER_S_PER_DEVICE)[""]) == 11


def test_a_file_that_is_cut_keeps_what_came_before(tmp_path: Path):
    whole = DATA.read_bytes()
    found = read_file(write(tmp_path, whole[:-3]))

    assert found.left_out == {CUT: 1}


def test_large_records_are_passed_over_unread(tmp_path: Path):
    scalar = framed(event(b"iteration-time", b"\x15" + struct.pack("<f", 2.0), 1))
    found = read_file(write(tmp_path, framed(bytes(20_000)) + scalar))

    assert found.left_out == {LARGE: 1}
    assert found.last(What.STEP_S) == 2.0


def test_an_event_file_without_scalars_is_refused(tmp_path: Path):
    with pytest.raises(InvalidInput, match="has no number of a run"):
        read_file(write(tmp_path, framed(b"\x09" + struct.pack("<d", 1.0))))
