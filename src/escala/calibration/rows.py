"""Rows of published measurements as typed records. Knows columns and types; interprets nothing.

A row holds what its source prints, blank where it prints nothing. A cell that is not what its column holds
makes the row a fault with a reason, never a traceback; unknown columns are counted and left aside.
"""

import csv
import gzip
import io
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

from escala.errors import InvalidInput, one_line

MOST_BYTES: Final = 50_000_000
MOST_ROWS: Final = 200_000
MOST_VALUE: Final = 1e15  # no count or rate in a table of runs is larger
UTF8_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One published measurement as printed; None and "" are blank.

    Counts are whole numbers, rates and shares as the column name says; memory keeps the unit of the source
    (`memory_unit`). `trust` is "ok" or "low"; low rows are kept out of gates.
    """

    id: str
    source: str
    address: str = ""
    year: int | None = None
    model: str = ""
    arch: str = ""
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    ffn_width: int | None = None
    ffn_kind: str = ""
    vocab: int | None = None
    experts: int | None = None
    top_k: int | None = None
    expert_width: int | None = None
    parameters_billion: str = ""
    sequence_tokens: int | None = None
    accelerator: str = ""
    accelerator_gb: float | None = None
    devices: int | None = None
    devices_per_node: int | None = None
    link_inside: str = ""
    link_outside: str = ""
    framework: str = ""
    precision: str = ""
    dp: int | None = None
    tp: int | None = None
    sp: bool | None = None
    pp: int | None = None
    vp: int | None = None
    cp: int | None = None
    ep: int | None = None
    sharding: str = ""
    micro_batch: int | None = None
    global_batch: int | None = None
    recompute: str = ""
    offload: str = ""
    flash: bool | None = None
    compiled: bool | None = None
    method: str = ""
    step_s: float | None = None
    tokens_per_s: float | None = None
    device_tokens_per_s: float | None = None
    samples_per_s: float | None = None
    device_tflop_per_s: float | None = None
    mfu_percent: float | None = None
    hfu_percent: float | None = None
    memory: float | None = None
    memory_unit: str = ""
    efficiency: float | None = None
    energy_kwh: float | None = None
    other: str = ""
    notes: str = ""
    trust: str = "ok"

    @property
    def tags(self) -> Mapping[str, str]:
        """The words of `other` that read key=value."""
        pairs = (word.strip().partition("=") for word in self.other.split(";"))
        return {key: value for key, is_pair, value in pairs if is_pair}


# Column of the CSV for every field of Row; the names are those of the published tables.
COLUMNS: Final[Mapping[str, str]] = {
    "id": "id",
    "source": "source_title",
    "address": "source_url_or_repo_path",
    "year": "year",
    "model": "model_name",
    "arch": "arch",
    "layers": "n_layers",
    "hidden": "hidden",
    "heads": "n_heads",
    "kv_heads": "n_kv_heads",
    "head_dim": "head_dim",
    "ffn_width": "ffn_hidden",
    "ffn_kind": "ffn_kind",
    "vocab": "vocab",
    "experts": "n_experts",
    "top_k": "top_k",
    "expert_width": "moe_ffn_hidden",
    "parameters_billion": "params_total_b",
    "sequence_tokens": "seq_len",
    "accelerator": "accelerator",
    "accelerator_gb": "accel_mem_gb",
    "devices": "n_devices",
    "devices_per_node": "devices_per_node",
    "link_inside": "intra_node_link",
    "link_outside": "inter_node_link",
    "framework": "framework",
    "precision": "precision",
    "dp": "dp",
    "tp": "tp",
    "sp": "sp",
    "pp": "pp",
    "vp": "vp",
    "cp": "cp",
    "ep": "ep",
    "sharding": "zero_stage_or_fsdp",
    "micro_batch": "micro_batch",
    "global_batch": "global_batch",
    "recompute": "recompute",
    "offload": "offload",
    "flash": "flash_attention",
    "compiled": "compile",
    "method": "finetune",
    "step_s": "step_time_s",
    "tokens_per_s": "tokens_per_s_total",
    "device_tokens_per_s": "tokens_per_s_per_device",
    "samples_per_s": "samples_per_s_total",
    "device_tflop_per_s": "tflops_per_device",
    "mfu_percent": "mfu_pct",
    "hfu_percent": "hfu_pct",
    "memory": "peak_mem_gb_per_device",
    "memory_unit": "mem_unit",
    "efficiency": "parallel_efficiency",
    "energy_kwh": "energy_kwh",
    "other": "other_metric",
    "notes": "notes",
    "trust": "trust",
}
_SWITCHES: Final = {"true": True, "false": False, "1": True, "0": False}
_WANTED: Final = {int: "a whole number of at least 0", float: "a number of at least 0", bool: "true or false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A row that cannot be read: its line in the file, its id and why."""

    line: int
    id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What a table holds: rows, the faulty ones, columns that are not known and columns that are missing."""

    rows: tuple[Row, ...]
    faults: tuple[Fault, ...] = ()
    ignored_columns: tuple[str, ...] = ()
    missing_columns: tuple[str, ...] = ()


def read_rows(path: Path | None = None) -> Rows:
    """The published measurements that escala ships, or those of a CSV file with the same columns."""
    if path is None:
        return _shipped()
    return parse_rows(_text(_bytes(path), str(path)), str(path))


@cache
def _shipped() -> Rows:
    data = files("escala.calibration") / "data"
    notes = csv.DictReader(io.StringIO((data / "sources.csv").read_text(encoding="utf-8")))
    common = {source["source_title"]: source["notes"] for source in notes}
    archive = (data / "rows.csv.gz").read_bytes()
    return parse_rows(gzip.decompress(archive).decode("utf-8"), "rows.csv.gz", common)


def parse_rows(text: str, name: str, common_notes: Mapping[str, str] | None = None) -> Rows:
    """Rows of CSV text; `common_notes` are notes that hold for every row of a source."""
    records = _records(text, name)
    header = [cell.strip() for cell in next(records, (1, []))[1]]
    _check_header(header, name)
    read = [_row(line, header, cells, common_notes or {}) for line, cells in records if any(cells)]
    return Rows(
        rows=tuple(each for each in read if isinstance(each, Row)),
        faults=tuple(each for each in read if isinstance(each, Fault)),
        ignored_columns=tuple(column for column in header if column not in COLUMNS.values()),
        missing_columns=tuple(column for column in COLUMNS.values() if column not in header),
    )


def _check_header(header: Sequence[str], name: str) -> None:
    if not {"source_title", "accelerator"} & set(header):
        raise InvalidInput(
            f"{name} lacks the columns source_title and accelerator; the first line names columns"
        )
    twice = [column for column, count in Counter(header).items() if column and count > 1]
    if twice:
        raise InvalidInput(f"{name} has the column '{one_line(twice[0])}' twice; rename one of them")


def _records(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        for number, cells in enumerate(reader):
            if number > MOST_ROWS:
                raise InvalidInput(f"{name} has more than {MOST_ROWS:,} rows; split it")
            yield reader.line_num, [cell.strip() for cell in cells]
    except csv.Error as error:
        raise InvalidInput(f"{name} is not CSV at line {reader.line_num} ({error}); correct it") from None


def _row(line: int, header: Sequence[str], cells: Sequence[str], common: Mapping[str, str]) -> Row | Fault:
    given = dict(zip(header, cells, strict=False))
    name = one_line(given.get("id") or f"line {line}")
    if len(cells) > len(header):
        return Fault(line=line, id=name, reason=f"{len(cells)} cells under {len(header)} columns")
    texts = {field: given[column] for field, column in COLUMNS.items() if given.get(column)}
    try:
        values: dict[str, Any] = {field: _value(field, text) for field, text in texts.items()}
    except _BadCell as error:
        return Fault(line=line, id=name, reason=str(error))
    values |= {"id": name, "source": values.get("source", "not named")}
    notes = (common.get(values["source"], ""), values.get("notes", ""))
    return Row(**{**values, "notes": "; ".join(note for note in notes if note)})


class _BadCell(Exception):
    """A cell that is not what its column holds."""


def _value(field: str, text: str) -> str | int | float | bool:
    kind = _KINDS[field]
    if kind is str:
        return text
    value = _SWITCHES.get(text.lower()) if kind is bool else _number(text, kind)
    if value is None:
        raise _BadCell(f"{COLUMNS[field]} is '{one_line(text, 30)}', not {_WANTED[kind]}")
    return value


def _number(text: str, kind: type) -> int | float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    if not math.isfinite(number) or not 0 <= number <= MOST_VALUE:
        return None
    if kind is float:
        return number
    return int(number) if number == int(number) else None


def _kind(hint: Any) -> type:
    """The type of a field whose blank is None: int, float, bool; else str."""
    kinds: tuple[type, ...] = get_args(hint) or (hint,)
    return kinds[0]


_KINDS: Final = {name: _kind(hint) for name, hint in get_type_hints(Row).items()}


def _bytes(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise InvalidInput(f"{path} is a folder; name a CSV file in it")
        if path.stat().st_size > MOST_BYTES:
            raise InvalidInput(f"{path} is larger than 50 MB; split it")
        return path.read_bytes()
    except FileNotFoundError:
        raise InvalidInput(f"{path} does not exist; check the path") from None
    except PermissionError:
        raise InvalidInput(f"{path} may not be read by this user; change its permissions") from None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read ({one_line(str(error))}); check the path") from None


def _text(content: bytes, name: str) -> str:
    try:
        return content.removeprefix(UTF8_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name} is not UTF-8 at byte {error.start}; save it as UTF-8") from None
