"""run.json: a RunRecord as a file, read and written without loss. Reads no log."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from escala.errors import InvalidInput, spoken
from escala.formats.files import read_keys
from escala.formats.record_keys import record_of
from escala.inputs import UTF8_BOM
from escala.measurement.logs.recognise import recognise
from escala.measurement.logs.record import record
from escala.measurement.logs.source import Source
from escala.measurement.runrecord import RUN_SCHEMA, RunRecord
from escala.wholefile import write_whole


def recorded(names: Sequence[str], warmup: int | None) -> RunRecord:
    """The logs of one run as a record."""
    return record(names, warmup)


def save_run(given: RunRecord, path: str) -> None:
    """Write a record; the file appears whole or not at all, and never over a log that was read."""
    if any(Path(path).resolve() == Path(each.path).resolve() for each in given.sources):
        raise InvalidInput(f"{path} is a log that was read; name another file to write")
    write_whole(Path(path), msgspec.json.format(msgspec.json.encode(given), indent=2) + b"\n")


def read_run(path: str) -> RunRecord:
    """A record that `escala record --out` wrote."""
    if not path.strip():
        raise InvalidInput("no run is named; give the run.json that `escala record --out` wrote")
    if not Source(Path(path)).head().lstrip(UTF8_BOM + b" \t\r\n").startswith(b"{"):
        raise InvalidInput(f"{path} is no run record; {_made_from(path)}")
    return run_of(read_keys(Path(path)), path)


def _made_from(path: str) -> str:
    """What to do with a file that is no record: make one from it, if it is a log."""
    try:
        recognise(Source(Path(path)))
    except InvalidInput:
        return "give the run.json that `escala record LOGS --out run.json` writes"
    return f"write one with `escala record {path} --out run.json`"


def run_of(keys: Mapping[str, object], path: str) -> RunRecord:
    """The record that the keys of a file hold."""
    if keys.get("schema") != RUN_SCHEMA:
        raise InvalidInput(
            f"{path}: schema is {spoken(keys.get('schema'))}; this escala reads '{RUN_SCHEMA}', "
            "which `escala record LOGS --out run.json` writes"
        )
    return record_of(RunRecord, keys, path)
