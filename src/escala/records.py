"""What was measured and what a run was: Measurement and JournalEntry, kept as JSON lines.

One line is one document with its schema name and version, so that a file can be appended to while a run goes
on and read while it grows. Unknown keys are errors; a last line cut short by a crash is reported, not hidden.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from escala.errors import InvalidInput, one_line

MEASUREMENT_SCHEMA: Final = "escala/measurement@1"
JOURNAL_SCHEMA: Final = "escala/journal@1"
MAX_LINE_BYTES: Final = 16 * 2**20


class Measurement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing timed on one device, with its raw samples.

    `clock` names the clock, `synchronised_by` what made the device finish before the clock was read (an
    event, a barrier, nothing). Statistics are functions of the samples and are not stored.
    """

    schema: str = MEASUREMENT_SCHEMA
    what: str
    samples_s: tuple[float, ...]
    device: str
    clock: str
    synchronised_by: str
    payload_bytes: float | None = None
    flop: float | None = None
    ranks: int = 1
    date: str = ""


class Environment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a run took place: versions of what matters, host names left out."""

    escala: str
    python: str
    platform: str
    versions: dict[str, str] = {}
    fingerprint: str = ""


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run, or one step of it: the question, the plan, what was predicted and what was measured.

    `plan_file` is a document of the schema escala/plan-file (workload, cluster, engine, plan), `predicted` an
    estimate by term, `measured` the same terms as far as they were measured, in seconds and bytes.
    """

    schema: str = JOURNAL_SCHEMA
    run: str
    plan_file: dict[str, Any]
    predicted: dict[str, float]
    measured: dict[str, float] = {}
    measurements: tuple[Measurement, ...] = ()
    environment: Environment
    seed: int | None = None
    step: int | None = None
    date: str = ""


Record = Measurement | JournalEntry
_KINDS: Final[dict[str, type[Measurement] | type[JournalEntry]]] = {
    MEASUREMENT_SCHEMA: Measurement,
    JOURNAL_SCHEMA: JournalEntry,
}


def append(path: Path, record: Record) -> None:
    """Add one record to a file of JSON lines: one write of one whole line."""
    line = msgspec.json.encode(record) + b"\n"
    with path.open("ab", buffering=0) as file:
        file.write(line)


def read(path: Path) -> Iterator[Record]:
    """The records of a file of JSON lines, in order; InvalidInput names the line that is none."""
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), start=1):
            if line.strip():
                yield _record(path, number, line)


def _record(path: Path, number: int, line: bytes) -> Record:
    where = f"{one_line(str(path))}, line {number}"
    if not line.endswith(b"\n"):
        raise InvalidInput(f"{where} is cut short or too long; drop that line and read the rest")
    try:
        kind = _KINDS[_schema(line)]
        return msgspec.json.decode(line, type=kind)
    except KeyError as error:
        raise InvalidInput(f"{where} has no known schema; allowed are {', '.join(_KINDS)}") from error
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"{where} is no record: {one_line(str(error), 200)}") from error


class _Head(msgspec.Struct):
    schema: str = ""


def _schema(line: bytes) -> str:
    return msgspec.json.decode(line, type=_Head).schema
